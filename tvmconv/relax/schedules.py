"""Schedules of the operators that are TVM's: dlight's rules, and one of ours for what they leave.

TVM's operators come unscheduled, as loops of one thread. dlight has rules for CPUs for softmax and its like, and for
products with a vector. For all else there is a rule here: what computes each element by itself goes into its readers, the
outer loops run in parallel, the innermost by vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight
from tvm.s_tir.dlight.analysis import SBlockInfo, normalize_prim_func

# Elements in a vector: the first of these that divides a row is taken. Shorter rows are unrolled.
_LANES = (16, 8, 4)
# A parallel loop costs half a microsecond when its threads are awake, and four on a machine that was slow at waking them; so
# many elements take one thread about 10.
_LEAST_PARALLEL = 65536
# Iterations of the parallel loop: enough for many threads, and few divisions for its index.
_TASKS = 64


def schedule_others() -> tvm.transform.Pass:
    """Return the pass that schedules every function of a module that has no schedule."""
    return dlight.ApplyDefaultSchedule(_RowByRow(across=True), _Gemv(), dlight.cpu.Reduction(), _RowByRow(across=False))


class _Gemv(dlight.cpu.GEMV):  # type: ignore[misc]
    """dlight's rule for products with a vector, which takes the sum of ``exp(a - b)`` for one, and asserts that it is."""

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> Any:
        """Return the schedule of a function; None if another rule should take it."""
        try:
            return super().apply(func, target, tunable)
        except AssertionError:
            return None


class _RowByRow(dlight.ScheduleRule):  # type: ignore[misc]
    """Run the outer loops of each stage in parallel, and the innermost by vectors.

    Parameters
    ----------
    across
        Whether to leave functions that sum along rows, whose vectors would not lie side by side, to another rule.
    """

    def __init__(self, across: bool) -> None:
        self._across = across

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, _: bool) -> s_tir.Schedule | None:
        """Return the schedule of a function; None if another rule should take it."""
        sch = s_tir.Schedule(func)
        stages = normalize_prim_func(sch)
        if stages is None or any("O" in stage.dom_kind() for stage in stages):
            return None
        along = [_sums_along_rows(sch, stage) for stage in stages]
        if self._across and any(along):
            return None
        for stage, sums_along in zip(stages, along, strict=True):
            if not (stage.is_injective() and stage is not stages[-1] and _inlined(sch, stage)):
                _schedule(sch, stage, vectors=not sums_along)
        return sch


def _sums_along_rows(sch: s_tir.Schedule, stage: SBlockInfo) -> bool:
    """Whether a stage sums over the last axis of what it reads."""
    summed = [each.var for each in stage.iters if each.kind == "R"]
    lasts = [region.region[-1].min for region in sch.get(stage.block_rv).reads if len(region.region)]
    return any(var.same_as(used) for last in lasts for used in tirx.analysis.undefined_vars(last, []) for var in summed)


def _inlined(sch: s_tir.Schedule, stage: SBlockInfo) -> bool:
    try:
        sch.compute_inline(stage.block_rv)
    except s_tir.ScheduleError:
        return False  # an output
    return True


def _schedule(sch: s_tir.Schedule, stage: SBlockInfo, vectors: bool) -> None:
    extents = [each.dom for each in stage.iters]
    if not extents or not all(isinstance(extent, int) for extent in extents):
        return
    spatial = [(each.loop_rv, each.dom) for each in stage.iters if each.kind == "S"]
    summed = [each.loop_rv for each in stage.iters if each.kind == "R"]
    if not spatial:
        return
    loops, inner = _cut(sch, spatial) if vectors else (spatial, [])
    sch.reorder(*(loop for loop, _ in loops), *summed, *inner)
    if prod(extents) >= _LEAST_PARALLEL:
        outer = _fuse(sch, loops)
        sch.parallel(outer)
    if summed:
        sch.decompose_reduction(stage.block_rv, summed[0])


def _cut(sch: s_tir.Schedule, spatial: Sequence[tuple[Any, int]]) -> tuple[list[tuple[Any, int]], list[Any]]:
    """Cut the last loop to vectors; return the outer loops with their extents, and the vector's."""
    *outer, (row, extent) = spatial
    lanes = next((each for each in _LANES if extent % each == 0), None)
    if lanes is None:
        if 1 < extent < _LANES[-1]:
            sch.unroll(row)
            return list(outer), [row]
        return list(spatial), []
    across, vector = sch.split(row, [None, lanes])
    sch.vectorize(vector)
    return [*outer, (across, extent // lanes)], [vector]


def _fuse(sch: s_tir.Schedule, loops: Sequence[tuple[Any, int]]) -> Any:
    """Fuse as many outer loops as give the parallel loop its iterations."""
    count = 1
    while count < len(loops) and prod(extent for _, extent in loops[:count]) < _TASKS:
        count += 1
    return sch.fuse(*(loop for loop, _ in loops[:count])) if count > 1 else loops[0][0]
