"""Search space of outputs that are the bias alone: nothing to choose."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvmconv.algorithms.definition import Definition
from tvmconv.schedules.cpu import steps
from tvmconv.targets.target import CpuTarget


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return the one schedule."""
    if not definition.problem.is_empty:
        steps.fill(sch)
    return [sch]
