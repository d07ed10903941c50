"""Inputs to check kernels with.

`exact_fill` draws small integers, sparse enough that every partial sum is exact in the f32 accumulator
whatever the order of summation, so that a right kernel equals the reference bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import reference
from .errors import missing_extra
from .problem import Problem

# dtype: largest magnitude of data, of the filter (convolution, backprop), and how many products of
# the largest data and filter one output may sum to and stay exact (convolution, backprop).
_RANGES = {
    "f32": (32, (32, 32), (16384, 16384)),
    "bf16": (4, (4, 8), (16, 8)),
    "f16": (4, (2, 2), (256, 256)),
}
_BIAS_RANGE = 8
# Draws before an all-zero output is taken for the problem's own (its windows see only padding).
_DRAWS = 8


class Arrays(NamedTuple):
    """The inputs of one problem, of its dtype (`bf16` as ``ml_dtypes.bfloat16``)."""

    data: npt.NDArray[Any]
    filter: npt.NDArray[Any]
    bias: npt.NDArray[Any] | None


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype of ``"f32"``, ``"f16"`` or ``"bf16"``.

    Raises
    ------
    MissingExtraError
        For ``"bf16"`` when `ml_dtypes` is not installed.
    """
    if dtype != "bf16":
        return np.dtype({"f32": np.float32, "f16": np.float16}[dtype])
    try:
        import ml_dtypes
    except ImportError:
        raise missing_extra("compile", "ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)


def exact_fill(problem: Problem, seed: int = 0) -> Arrays:
    """Return integer inputs for which `problem` has one right answer, whatever the order of its sums.

    The same problem and seed give the same arrays. The output (bias apart) is not all zeros, unless
    the problem allows nothing else.

    Parameters
    ----------
    problem
        What the arrays are for.
    seed
        At least 0.
    """
    return exact_case(problem, seed)[0]


def exact_case(problem: Problem, seed: int = 0) -> tuple[Arrays, npt.NDArray[Any]]:
    """Return :func:`exact_fill`'s inputs with the output a right kernel gives, in the problem's dtype.

    Parameters
    ----------
    problem, seed
        As for :func:`exact_fill`.

    Returns
    -------
    Arrays, numpy.ndarray
        The inputs, and the reference's output rounded once to the problem's dtype.
    """
    for draw in range(_DRAWS):
        arrays = _draw(problem, np.random.default_rng((seed, draw)))
        products = reference.compute(problem.with_(bias=False), arrays.data, arrays.filter)
        if products.any() or problem.is_empty or problem.is_constant:
            break
    if arrays.bias is not None:
        channel_axis = -1 if problem.data_format == "NXC" else 1
        shape = [1] * products.ndim
        shape[channel_axis] = problem.out_channels
        products += arrays.bias.astype(np.float64).reshape(shape)
    return arrays, products.astype(numpy_dtype(problem.dtype))


def random_fill(problem: Problem, seed: int = 0) -> Arrays:
    """Return standard normal inputs, the same for the same problem and seed.

    Parameters
    ----------
    problem
        What the arrays are for.
    seed
        At least 0.
    """
    rng = np.random.default_rng(seed)
    dtype = numpy_dtype(problem.dtype)

    def normal(shape: tuple[int, ...]) -> npt.NDArray[Any]:
        return rng.standard_normal(shape, np.float32).astype(dtype)

    return Arrays(
        normal(problem.data_shape), normal(problem.filter_shape), normal(problem.bias_shape) if problem.bias else None
    )


def _draw(problem: Problem, rng: np.random.Generator) -> Arrays:
    dtype = numpy_dtype(problem.dtype)
    backprop = problem.op == "convolution_backprop_data"
    data_range, filter_ranges, safe = _RANGES[problem.dtype]

    def integers(largest: int, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        return rng.integers(-largest, largest, shape, np.int8, endpoint=True).astype(np.float32)

    data = integers(data_range, problem.data_shape)
    keep = safe[backprop] / max(problem.products, 1)
    if keep < 1:
        data[rng.random(data.shape, np.float32) >= keep] = 0
    filter_ = integers(filter_ranges[backprop], problem.filter_shape)
    bias = integers(_BIAS_RANGE, problem.bias_shape).astype(dtype) if problem.bias else None
    return Arrays(data.astype(dtype), filter_.astype(dtype), bias)
