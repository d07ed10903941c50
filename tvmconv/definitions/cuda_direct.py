"""Direct convolution on GPUs, any problem: every output is a sum over taps and channels, read in place.

acc     the sum, f32
out     bias added, rounded once to the output type
"""

from __future__ import annotations

from tvm import te

from ..problem import Problem
from .cuda_window import CudaWindow, define_cuda, padded
from .definition import Definition
from .types import cuda_dtype
from .window import Expr


def define_cuda_direct(problem: Problem) -> Definition:
    """Define a problem whose output depends on data."""
    return define_cuda(problem, _express)


def _express(window: CudaWindow, data: te.Tensor, weights: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    rank, number = len(window.axes), window.index
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]
    c = te.reduce_axis((0, window.channels), name="c")

    def total(*indices: Expr) -> Expr:
        n, g, o = indices[0], indices[1], indices[-1]
        phases, ys = indices[2 : 2 + rank], indices[2 + rank : -1]
        x = window.coordinates(phases, ys, taps)
        value = padded(window.inside(x), data(*window.data_indices(n, x, g, c)).astype("float32"))
        weight = weights(*window.filter_indices(g, phases, taps, c, o)).astype("float32")
        return te.sum(value * weight, axis=[*taps, c])

    acc = te.compute(window.shape, total, name=f"acc{number}")

    def rounded(*indices: Expr) -> Expr:
        value = acc(*indices)
        if bias is not None:
            value = value + bias[indices[1] * window.outputs + indices[-1]].astype("float32")
        return value.astype(cuda_dtype(window.problem.dtype))

    return te.compute(window.shape, rounded, name=f"out{number}")
