"""Inputs to check kernels with.

`exact_fill` draws small integers, sparse enough that every partial sum is exact in the f32 accumulator
in any order of summation, so that a correct kernel equals the reference bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import log2, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from . import reference
from .dtypes import ROWS, is_integer
from .dtypes import numpy_dtype as numpy_dtype
from .epilogue import QUANTIZERS, SATURATING
from .problem import Problem

# Range of the bias and the residual.
ADDED_RANGE = 8
# Powers of two, so that products stay exact.
FACTORS = (-1.0, -0.5, 0.25, 0.5, 1.0, 2.0)
# Ranges as `Dtype.exact` before steps that saturate: -1, 0 and 1, and so few products that a sum's standard deviation is about 3.
_SATURATING = (1, (1, 1), (20, 20))
# Draws after which an all-zero output is accepted as the problem's own (its taps meet only padding).
_DRAWS = 8


@dataclass(frozen=True, eq=False)
class Arrays:
    """The inputs of one problem, in the types of its operands (`bf16` as ``ml_dtypes.bfloat16``).

    They unpack to data, filter, bias (or None), and those of the epilogue's arrays that there are.
    """

    data: npt.NDArray[Any]
    filter: npt.NDArray[Any]
    bias: npt.NDArray[Any] | None = None
    scale: npt.NDArray[Any] | None = None
    slope: npt.NDArray[Any] | None = None
    residual: npt.NDArray[Any] | None = None

    def given(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that are not None, by name, in the order of a kernel's arguments."""
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: array for name, array in arrays.items() if array is not None}

    def __iter__(self) -> Iterator[Any]:
        others = (array for array in (self.scale, self.slope, self.residual) if array is not None)
        return iter((self.data, self.filter, self.bias, *others))


def exact_fill(problem: Problem, seed: int = 0) -> Arrays:
    """Return integer inputs whose sums are exact in any order.

    The same problem and seed give the same arrays. The sums are not all zeros, unless the problem allows nothing
    else. Outputs of approximated steps are exact within the error of these steps.
    """
    return exact_case(problem, seed)[0]


def exact_case(problem: Problem, seed: int = 0) -> tuple[Arrays, npt.NDArray[Any]]:
    """Return :func:`exact_fill`'s inputs and the output of a correct kernel, in the problem's output type."""
    for draw in range(_DRAWS):
        arrays = _draw(problem, np.random.default_rng((seed, draw)))
        sums = reference.compute(problem.without_epilogue(), arrays.data, arrays.filter)
        if sums.any() or problem.is_empty or problem.is_constant:
            break
    expected = reference.finish(problem, sums, arrays.given())
    return arrays, expected.astype(numpy_dtype(problem.types.output))


def random_fill(problem: Problem, seed: int = 0) -> Arrays:
    """Return normally distributed inputs, the same for the same problem and seed.

    Their standard deviation is 1. With an epilogue the filter is scaled so that sums have a standard deviation of about 1, as in
    networks: steps that saturate leave small differences of large sums, but the errors of the whole sums.
    """
    rng = np.random.default_rng(seed)
    if problem.is_quantized:
        return _draw_integers(problem, rng)
    drawn = {name: rng.standard_normal(shape, np.float32) for name, (shape, _) in problem.operands.items()}
    if problem.epilogue:
        drawn["filter"] *= np.float32(2.0 ** -round(np.log2(max(problem.products, 1)) / 2))
    types = {name: numpy_dtype(dtype) for name, (_, dtype) in problem.operands.items()}
    return Arrays(**{name: array.astype(types[name]) for name, array in drawn.items()})


def fixed_fill(problem: Problem) -> Arrays:
    """Return nearly normal floating-point inputs, the same with every NumPy on every machine.

    Digests of the outputs then show the order of sums.
    """
    arrays = {}
    for name, (shape, dtype) in problem.operands.items():
        bits = hashlib.shake_256(name.encode()).digest(8 * prod(shape))
        four = np.frombuffer(bits, "<u2").reshape(4, *shape).astype(np.int32)
        numbers = (four.sum(0) - 2 * 0xFFFF).astype(np.float32) * np.float32(2.0**-15)
        if name == "filter":  # sums of about 1, as networks have
            numbers *= np.float32(2.0 ** -round(log2(max(problem.products, 1)) / 2))
        arrays[name] = numbers.astype(numpy_dtype(dtype))
    return Arrays(**arrays)


def exact_ranges(problem: Problem) -> tuple[int, int, float]:
    """Return the largest magnitudes of data and filter, and the share of nonzero data, for which all sums are exact."""
    backprop = problem.op == "convolution_backprop_data"
    saturates = problem.is_quantized or any(step.name in SATURATING for step in problem.epilogue)
    data_range, filter_ranges, safe = _SATURATING if saturates else ROWS[problem.dtype].exact
    return data_range, filter_ranges[backprop], safe[backprop] / max(problem.products, 1)


def blank_output(problem: Problem) -> npt.NDArray[Any]:
    """Return an output full of NaN (of integers 85), by which elements that a kernel does not write are noticed."""
    dtype = problem.types.output
    return np.full(problem.output_shape, 85 if is_integer(dtype) else np.nan, numpy_dtype(dtype))


def _draw_integers(problem: Problem, rng: np.random.Generator) -> Arrays:
    """Return integers over the whole range of their types, and epilogue arrays that spread the sums over the output's range and beyond."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, (shape, dtype) in list(problem.operands.items())[:2]:
        least, greatest = ROWS[dtype].range or (0, 0)
        arrays[name] = rng.integers(least, greatest, shape, numpy_dtype(dtype), endpoint=True)
    # Uniform 8-bit numbers have a standard deviation of 74.
    spread = 74.0**2 * max(problem.products, 1) ** 0.5
    steps = [step.numbers[0] for step in problem.epilogue if step.name in QUANTIZERS]
    unit = (steps or [1.0])[0]
    for name, (shape, dtype) in list(problem.operands.items())[2:]:
        if dtype == "s32":
            drawn: npt.NDArray[Any] = rng.integers(-int(spread), int(spread), shape, endpoint=True)
        elif name == "slope":
            drawn = rng.choice(FACTORS, shape)
        elif name == "scale":
            # Powers of two give quotients that are ties.
            drawn = 100 * unit / spread * rng.uniform(0.5, 2, shape)
            drawn = np.where(rng.random(shape) < 0.5, drawn, unit * 2.0 ** -np.round(np.log2(spread / 100)))
        else:
            drawn = unit * rng.integers(-2 * ADDED_RANGE, 2 * ADDED_RANGE, shape, endpoint=True) / 2
        arrays[name] = drawn.astype(numpy_dtype(dtype))
    return Arrays(**arrays)


def _draw(problem: Problem, rng: np.random.Generator) -> Arrays:
    if problem.is_quantized:
        return _draw_integers(problem, rng)
    data_range, filter_range, keep = exact_ranges(problem)

    def integers(largest: int, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        return rng.integers(-largest, largest, shape, np.int8, endpoint=True).astype(np.float32)

    arrays: dict[str, npt.NDArray[Any]] = {"data": integers(data_range, problem.data_shape)}
    if keep < 1:
        arrays["data"][rng.random(problem.data_shape, np.float32) >= keep] = 0
    arrays["filter"] = integers(filter_range, problem.filter_shape)
    for name, (shape, _) in list(problem.operands.items())[2:]:
        added = name in ("bias", "residual")
        arrays[name] = integers(ADDED_RANGE, shape) if added else rng.choice(FACTORS, shape)
    return Arrays(**{name: arrays[name].astype(numpy_dtype(dtype)) for name, (_, dtype) in problem.operands.items()})
