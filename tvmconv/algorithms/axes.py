"""The spatial axes of a problem's sub-convolutions: one for a Convolution, several for a transposed one."""

from __future__ import annotations

from ..problem import Problem
from .backprop import backprop_axes
from .subconvolution import Axis


def axes_of(flat: Problem) -> list[tuple[Axis, ...]]:
    """Return the spatial axes of each sub-convolution of a flattened problem."""
    return convolution_axes(flat) if flat.op == "convolution" else backprop_axes(flat)


def convolution_axes(problem: Problem) -> list[tuple[Axis, ...]]:
    """Return the spatial axes of the one sub-convolution of a Convolution."""
    return [tuple(_axis(problem, axis) for axis in range(problem.rank))]


def _axis(problem: Problem, axis: int) -> Axis:
    begin = problem.pads_begin[axis]
    return Axis(
        inputs=problem.in_spatial[axis],
        outputs=problem.out_spatial[axis],
        taps=problem.kernel[axis],
        stride=problem.strides[axis],
        dilation=problem.dilations[axis],
        phases=1,
        offset=lambda phase: -begin,
        filter_tap=lambda phase, k: k,
        store_index=lambda phase, y: y,
        store_extent=problem.out_spatial[axis],
        always_inside=True,
    )
