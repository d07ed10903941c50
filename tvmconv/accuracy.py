"""Tolerances of a kernel's answer against the reference, by its numerical class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .dtypes import ROWS, is_integer
from .epilogue import is_exact
from .problem import Problem

# Factors are rounded to 11 bits, each by at most 2^-11 of itself: a product errs by 2^-10, sums of many by less.
TF32_ERROR = 2.0**-10

# Unit roundoff of each type: half of the distance between 1 and the next number.
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
UNIT |= {"complex64": UNIT["float32"], "complex128": UNIT["float64"]}
# Error of one layer apart from its sum: the rounding of its result, and approximated steps (in f64 finer by 2^-29, as its roundoff is).
_LAYER_ERROR = {"float64": 1e-6 * 2.0**-29, "float32": 1e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_LAYER_ERROR |= {"complex64": _LAYER_ERROR["float32"], "complex128": _LAYER_ERROR["float64"]}
# Roundings of a sum add up as a random walk, which practically never strays further than so many standard deviations.
_DEVIATIONS = 8.0

# Allowed error of a network's output: relative L2, or the share of integers that differ. Rounding errs far less; on random inputs
# a wrong operator errs by about 1 (Resize by a scale that gives no whole size 0.7 to 1.9, LayerNorm over several axes 2).
NETWORK_ERROR = 1e-2
# Allowed error of a network in a type of 16 bits, against f32: each layer rounds.
_NARROW_ERROR = {"f16": 1e-2, "bf16": 5e-2}
# Root mean square, at least, to which an error is relative: on noise a text detector's probabilities are 4e-7, and
# onnxruntime's answers with and without its optimizations differ by 0.02 of that.
_SMALL = 1e-4


def difference(got: npt.NDArray[Any], expected: npt.NDArray[Any], numerical_class: str, problem: Problem) -> str:
    """Describe how `got` differs from the reference on an exact fill; empty if it is within its class's tolerance.

    TF32 represents the fill's integers, so TF32 is exact too. After an approximated epilogue, an output may differ by the
    approximation's relative error and by a millionth of the largest output (steps may add); an integer output by one.
    """
    if numerical_class in ("exact", "tf32"):
        wrong = got != expected
        if not is_exact(problem.epilogue) and is_integer(problem.types.output):
            wrong = np.abs(got.astype(np.int64) - expected.astype(np.int64)) > 1
        elif not is_exact(problem.epilogue):
            exact = expected.astype(np.float64)
            row = ROWS[problem.types.output]
            allowed = row.approximated_error * np.abs(exact) + 1e-6 * np.abs(exact).max(initial=0)
            allowed += row.approximated_floor
            wrong = ~(np.abs(got.astype(np.float64) - exact) <= allowed)  # a NaN compares false with everything
        if not wrong.any():
            return ""
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        return (
            f"{np.count_nonzero(wrong)} of {wrong.size} outputs differ; the first, at {list(first)}, "
            f"is {float(got[first])} and should be {float(expected[first])}"
        )
    return inaccuracy(got, expected, numerical_class, problem.dtype)


def inaccuracy(got: npt.NDArray[Any], expected: npt.NDArray[Any], numerical_class: str, dtype: str) -> str:
    """Describe the error of `got` on normally distributed data; empty if it is within its class's tolerance."""
    error, most = (
        relative_error(got, expected),
        TF32_ERROR if numerical_class == "tf32" else ROWS[dtype].transform_error,
    )
    # A NaN compares false with everything.
    if error <= most:
        return ""
    what = "TF32" if numerical_class == "tf32" else f"a {dtype} transform"
    return f"the relative L2 error is {error:.2g}; {what} may have {most:.2g}"


def rounding(dtype: Any, summed: int = 1, layers: int = 1) -> float:
    """Return how much two correct answers may differ, relative to the largest intermediate number of either.

    Parameters
    ----------
    dtype
        Type of the answers: NumPy's, PyTorch's or a name such as ``float32``. Types of 16 bits are summed in f32.
    summed
        Products that are summed into one output, in any order, over all layers of the longest path to it.
    layers
        Number of consecutive layers that round or approximate.
    """
    name = str(dtype).removeprefix("torch.")
    unit = min(UNIT[name], UNIT["float32"])
    return _DEVIATIONS * float(summed) ** 0.5 * unit + layers * _LAYER_ERROR[name]


def tolerance(
    expected: Any,
    summed: int = 1,
    layers: int = 1,
    magnitude: float = 0.0,
    dtype: Any = None,
    numerical_class: str = "exact",
) -> dict[str, float]:
    """Return `rtol` and `atol` for an elementwise comparison of answers.

    Sums that cancel have the error of their summands, so each element may differ by `rounding` times the largest.

    Parameters
    ----------
    expected
        A NumPy array or a PyTorch tensor.
    summed, layers
        As for `rounding`.
    magnitude
        The largest intermediate number, where the answer's are smaller, as after a softmax or a difference.
    dtype
        The type of the arithmetic, if it is not that of `expected`.
    numerical_class
        ``"transform"`` where Winograd may be chosen: its error is bounded relative to the root mean square, and the worst
        of thousands of elements may err several times as much.
    """
    sizes = abs(expected)
    finite = sizes[(sizes == sizes) & (sizes != float("inf"))]
    largest = max(magnitude, float(finite.max()) if len(finite) else 0.0)
    kind = expected.dtype if dtype is None else dtype
    transform = 2 * layers * ROWS["f32"].transform_error if numerical_class == "transform" else 0.0
    return {"rtol": 0.0, "atol": (rounding(kind, summed, layers) + transform) * largest}


def relative_error(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the relative L2 error."""
    exact = expected.astype(np.float64)
    return float(np.linalg.norm(got.astype(np.float64) - exact) / max(float(np.linalg.norm(exact)), 1e-30))


def network_tolerance(dtype: str | None) -> float:
    """Return the allowed error of a network compiled for a type, beyond that of the types in its model."""
    return _NARROW_ERROR.get(dtype or "", NETWORK_ERROR)


def describe_differences(
    answers: Mapping[str, npt.NDArray[Any]], expected: Sequence[npt.NDArray[Any]], most: float = NETWORK_ERROR
) -> list[str]:
    """Describe the outputs of a network that differ by more than `most` from another library's answers to the same inputs."""
    found = []
    for (name, answer), right in zip(answers.items(), expected, strict=True):
        if answer.shape != right.shape:
            found.append(f"{name} has the shape {answer.shape} instead of {right.shape}")
        elif (error := network_error(answer, right)) > most:
            found.append(f"{name} by {error:.2g}")
    return found


def network_error(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the relative error of a network's output against another library's; infinities and NaN must be equal."""
    if expected.dtype.kind in "biu":
        return float(np.mean(got != expected)) if expected.size else 0.0
    answer, want = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(want)
    if not np.array_equal(answer[~finite], want[~finite], equal_nan=True) or not np.isfinite(answer[finite]).all():
        return float("inf")
    least = _SMALL * max(float(np.count_nonzero(finite)), 1.0) ** 0.5
    return float(np.linalg.norm(answer[finite] - want[finite]) / max(float(np.linalg.norm(want[finite])), least))
