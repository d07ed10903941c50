"""What the definitions for GPUs share: the windows of a problem, their reads of data and filter, and their outputs.

The windows are those of `window.py`, one for a convolution and one for each class of stride phases of a transposed
one, without what CPUs need: lanes, padded rows and copies of data. Padding is a condition of each read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te

from ...problem import Problem
from ..axes import axes_of
from ..backprop import covers_output
from ..definition import Definition, StoreIndex, fill, in_order
from ..epilogue import Epilogue
from ..flatten import flatten
from ..subconvolution import Axis, SubConvolution
from ..types import CUDA_DTYPES, cuda_dtype

# From a window, data, filter and epilogue to the window's `out`, whose elements' store indices the window knows.
Express = Callable[[Any, te.Tensor, te.Tensor, Epilogue], te.Tensor]


def define_cuda(
    problem: Problem,
    express: Express,
    make: Callable[[Problem, int, tuple[Axis, ...]], SubConvolution] = SubConvolution,
) -> Definition:
    """Define `problem` by the windows of its flattened form, made by `make`, each computed as `express` says.

    The output is filled first where no window writes it.
    """
    windows = cuda_windows(problem, make)
    return _definition(problem, flatten(problem), windows, express)


def cuda_windows(
    problem: Problem, make: Callable[[Problem, int, tuple[Axis, ...]], SubConvolution] = SubConvolution
) -> list[SubConvolution]:
    """Return the windows of a problem's flattened form, made by `make`."""
    flat = flatten(problem)
    return [make(flat, index, axes) for index, axes in enumerate(axes_of(flat))]


def define_cuda_constant(problem: Problem) -> Definition:
    """Define a problem whose output is the bias alone, or empty."""
    return _definition(problem, problem, [], None)


def _definition(
    problem: Problem, flat: Problem, windows: Sequence[SubConvolution], express: Express | None
) -> Definition:
    dtype = cuda_dtype(flat.dtype)
    data = te.placeholder(flat.data_shape, dtype, name="data")
    weights = te.placeholder(flat.filter_shape, dtype, name="filter")
    epilogue = Epilogue(flat, CUDA_DTYPES, lambda value: value.astype(dtype))
    outs = [express(window, data, weights, epilogue) for window in windows] if express else []
    store_indices: list[StoreIndex] = [window.store_index for window in windows]
    if not windows or (flat.op == "convolution_backprop_data" and not covers_output(flat)):
        outs.insert(0, fill(flat, epilogue))
        store_indices.insert(0, in_order(flat))
    return Definition(
        problem, te.create_prim_func([data, weights, *epilogue.inputs, *outs]), list(windows), store_indices
    )
