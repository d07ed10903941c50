"""Tensor expression of wgmma's convolution, which `lowering/cuda/native/wgmma.cuh` computes instead of a schedule."""

from __future__ import annotations

from tvm import te

from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..cpu.model.cost import Counts
from ..definition import Definition
from ..epilogue import Epilogue
from ..stage_names import ACC, OUT, stage_name
from ..subconvolution import Expr, SubConvolution
from ..types import zero_outside
from .wgmma_tiles import covers_wgmma, estimate_wgmma
from .window import define_cuda

__all__ = ["covers", "define", "estimate"]


def covers(problem: Problem, target: CudaTarget, mixed: bool = False) -> str | None:
    """Return None if wgmma computes the problem by tiles of one group (`mixed`: of several), else the reason why not."""
    return covers_wgmma(problem, target, mixed)


def estimate(problem: Problem, target: CudaTarget, mixed: bool = False) -> Counts:
    """Return the cycles with the best tile, and those of copies before."""
    return estimate_wgmma(problem, target)


def define(problem: Problem, target: CudaTarget, mixed: bool = False) -> Definition:
    """Define a convolution by its formula: stages ``acc0``, the sum, and ``out0``, bias added and rounded."""
    return define_cuda(problem, _express)


def _express(window: SubConvolution, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    rank = len(window.axes)
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]
    c = te.reduce_axis((0, window.channels), name="c")

    def total(*indices: Expr) -> Expr:
        n, g, phases, ys, o = indices[0], indices[1], indices[2 : 2 + rank], indices[2 + rank : -1], indices[-1]
        x = window.coordinates(phases, ys, taps)
        value = zero_outside(window.inside(x), data(*window.data_indices(n, x, g, c)).astype("float32"))
        weight = weights(*window.filter_indices(g, phases, taps, c, o)).astype("float32")
        return te.sum(value * weight, axis=[*taps, c])

    acc = te.compute(window.shape, total, name=stage_name(ACC, 0))

    def rounded(*indices: Expr) -> Expr:
        channel = indices[1] * window.outputs + indices[-1]
        return epilogue(acc(*indices), channel, window.store_index(list(indices))[0])

    return te.compute(window.shape, rounded, name=stage_name(OUT, 0))
