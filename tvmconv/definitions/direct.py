"""Windows of Convolution: one, with the problem's own strides and dilations."""

from __future__ import annotations

from ..problem import Problem
from ..target import CpuTarget
from .shapes import lane_count
from .window import Axis, Window


def convolution_windows(problem: Problem, target: CpuTarget, across: bool) -> list[Window]:
    """Return the window of a flattened Convolution."""
    outputs = problem.out_channels if across else problem.out_channels // problem.groups
    (axes,) = convolution_axes(problem)
    return [Window(problem, 0, axes, lane_count(outputs, target), across, axes[-1].outputs)]


def convolution_axes(problem: Problem) -> list[tuple[Axis, ...]]:
    """Return the spatial axes of the one window of a Convolution."""
    return [tuple(_axis(problem, axis) for axis in range(problem.rank))]


def _axis(problem: Problem, axis: int) -> Axis:
    begin = problem.pads_begin[axis]
    return Axis(
        inputs=problem.in_spatial[axis],
        outputs=problem.out_spatial[axis],
        taps=problem.kernel[axis],
        step=problem.strides[axis],
        spacing=problem.dilations[axis],
        phases=1,
        origin=lambda phase: -begin,
        filter_tap=lambda phase, k: k,
        place=lambda phase, y: y,
        places=problem.out_spatial[axis],
        always_inside=True,
    )
