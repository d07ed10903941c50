"""Definitions of a problem for GPUs by windows.

A convolution is one window, a transposed one has a window for each class of stride phases, without the lanes, padded rows and
copies of data of CPUs' windows. Padding is a condition of each read.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import te

from ...problem import Problem
from ..axes import axes_of
from ..definition import Definition, Express, fill_rest
from ..epilogue import Epilogue
from ..flatten import flatten
from ..subconvolution import Axis, SubConvolution
from ..types import CUDA_DTYPES, cuda_dtype

# Function from a flattened problem, a window's number and its axes to the window.
Make = Callable[[Problem, int, tuple[Axis, ...]], SubConvolution]


def define_cuda(problem: Problem, express: Express, make: Make = SubConvolution) -> Definition:
    """Define `problem` by the windows of its flattened form, created by `make`, and their outputs by `express`.

    A first stage fills the output if windows do not write all of it.
    """
    flat, windows = flatten(problem), cuda_windows(problem, make)
    arrays = _placeholders(problem, flat)
    return fill_rest(problem, flat, arrays, windows, [express(window, *arrays) for window in windows])


def cuda_windows(problem: Problem, make: Make = SubConvolution) -> list[SubConvolution]:
    """Return the windows of a problem's flattened form, created by `make`."""
    flat = flatten(problem)
    return [make(flat, index, axes) for index, axes in enumerate(axes_of(flat))]


def define_cuda_constant(problem: Problem) -> Definition:
    """Define a problem whose output is the bias alone, or empty."""
    return fill_rest(problem, problem, _placeholders(problem, problem), [], [])


def _placeholders(problem: Problem, flat: Problem) -> tuple[te.Tensor, te.Tensor, Epilogue]:
    """Return placeholders of a problem's flattened data and filter, and the epilogue."""
    dtype = cuda_dtype(problem.dtype)
    data = te.placeholder(flat.data_shape, dtype, name="data")
    weights = te.placeholder(flat.filter_shape, dtype, name="filter")
    return data, weights, Epilogue(problem, flat, CUDA_DTYPES, lambda value: value.astype(dtype))
