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

# Half, for each type, of the distance between 1 and the next number: what one rounding may add.
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
UNIT |= {"complex64": UNIT["float32"], "complex128": UNIT["float64"]}
# Error of one layer beside its sum: its result is rounded, and a step that is approximated errs, in f64 as much more finely as f64 is.
_LAYER_ERROR = {"float64": 1e-6 * 2.0**-29, "float32": 1e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_LAYER_ERROR |= {"complex64": _LAYER_ERROR["float32"], "complex128": _LAYER_ERROR["float64"]}
# Roundings of a sum add up like steps in either direction, of which this many standard deviations are never left.
_DEVIATIONS = 8.0

# Error of a network's output in relative L2, or of its integers the share that differs. Rounding stays far below it; on random inputs
# another operator is of the order of 1: Resize by a scale that gives no whole size 0.7 to 1.9, a LayerNorm of several axes 2.
NETWORK_ERROR = 1e-2
# Error of a network that computes in a type of 16 bits beside one in f32: each layer rounds.
_NARROW_ERROR = {"f16": 1e-2, "bf16": 5e-2}
# Outputs that are less than this in the mean are compared as if they were so large: of a text detector's probabilities on noise,
# 4e-7, onnxruntime's own answers with and without its optimizations differ by 0.02.
_SMALL = 1e-4


def difference(got: npt.NDArray[Any], expected: npt.NDArray[Any], numerical_class: str, problem: Problem) -> str:
    """Return how `got` differs from the reference on an exact fill; empty if no more than its class may.

    The fill's integers are TF32 numbers, so TF32 is exact too. An output of an epilogue that is approximated may be off
    by what that errs, of itself or, where a step adds, of the largest output's millionth; an integer by one step.
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
    """Return how far `got` is from the reference on normal data; empty if no more than its class may."""
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
    """Return how two correct answers may differ, as a part of the largest number that either had on its way.

    Parameters
    ----------
    dtype
        Of the answers, NumPy's or PyTorch's or its name: ``float32``. Types of 16 bits are summed in f32.
    summed
        Products that are added to one output, in any order: of all layers on the longest way to it.
    layers
        Layers that round, or approximate, one after the other.
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
    """Return `rtol` and `atol` for a comparison of all numbers of an answer.

    Sums that cancel have the error of their summands, not of their value: each may differ by `rounding` of the largest.

    Parameters
    ----------
    expected
        An array of NumPy's, or a tensor of PyTorch's.
    summed, layers
        As for `rounding`.
    magnitude
        The largest number on the way to the answer, where the answer's own are smaller, as after a softmax or a difference.
    dtype
        The type that is computed in, where it is not that of `expected`.
    numerical_class
        ``"transform"`` where Winograd may be taken: its L2 error is a part of the root mean square, and a single number of
        thousands may have several times as much, as the largest is several times as large.
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
    """Return the allowed error of a network compiled for a type, on top of the errors of the types its model names."""
    return _NARROW_ERROR.get(dtype or "", NETWORK_ERROR)


def describe_differences(
    answers: Mapping[str, npt.NDArray[Any]], expected: Sequence[npt.NDArray[Any]], most: float = NETWORK_ERROR
) -> list[str]:
    """Describe the outputs of a network that differ by more than `most` from another library's for the same inputs."""
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
