"""The windows of a problem."""

from __future__ import annotations

from ....problem import Problem
from ....targets.target import CpuTarget
from ...axes import axes_of
from ...shapes import lane_count
from .window import Window


def windows_of(flat: Problem, target: CpuTarget, across: bool = False) -> list[Window]:
    """Return the windows of a flattened problem, with lanes across groups or within one."""
    lanes = lane_count(flat.out_channels if across else flat.out_channels // flat.groups, target)
    rounds_groups = across and flat.dtype == "bf16" and target.has_dot
    return [
        Window(flat, number, axes, lanes, across, axes[-1].outputs, rounds_groups=rounds_groups)
        for number, axes in enumerate(axes_of(flat))
    ]
