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

from ..targets.target import CpuTarget
from .row_sums import RowSums
from .segments import Segments
from .transposes import Transposes

# Marks functions whose stages have rows in common, to be computed row by row.
ROWS = "tvmconv.rows"
# Marks the stage of products in tiles, with the rows of a tile. Its function is another once it is fused.
TILES = "tvmconv.tiles"
# Marks a stage that is computed before its readers, not for each of their elements.
KEPT = "tvmconv.kept"
# Elements in a vector: the first of these that divides a row is taken. Shorter rows are unrolled.
_LANES = (16, 8, 4)
# A parallel loop costs half a microsecond when its threads are awake, and four on a machine that was slow at waking them; so
# many elements take one thread about 10.
_LEAST_PARALLEL = 65536
# A stage with so much less to compute than the largest does not decide how a function is scheduled.
_MINOR = 16
# Iterations of the parallel loop: enough for many threads, and few divisions for its index.
_TASKS = 64


def schedule_others(target: CpuTarget) -> tvm.transform.Pass:
    """Return the pass that schedules every function of a module that has no schedule, for a target's vectors."""
    return dlight.ApplyDefaultSchedule(
        _Rows(),
        _Tiles(),
        Segments(_LEAST_PARALLEL),
        Transposes(target.vector_bits // 32, _LEAST_PARALLEL),
        _RowByRow(across=True),
        _Gemv(),
        RowSums(_LEAST_PARALLEL),
        dlight.cpu.Reduction(),
        _RowByRow(across=False),
    )


class _Rows(dlight.ScheduleRule):  # type: ignore[misc]
    """Compute one row after the other, all stages of it; for functions marked ROWS, whose stages have the rows in common.

    The last axis of a stage is a row's, or the parts of its sum; what has none is one number of a row.
    """

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> s_tir.Schedule | None:
        """Return the schedule of a function; None if it is not marked."""
        if ROWS not in (func.attrs or {}):
            return None
        sch = s_tir.Schedule(func)
        stages = normalize_prim_func(sch)
        if stages is None:
            return None
        *before, last = stages
        *outer, row = [each.loop_rv for each in last.iters]
        extents = [int(each.dom) for each in last.iters]
        rows = sch.fuse(*outer) if len(outer) > 1 else outer[0] if outer else sch.add_unit_loop(row)
        _cut(sch, [(row, extents[-1])])
        if prod(extents) >= _LEAST_PARALLEL:
            sch.parallel(rows)
        for stage in reversed(before):
            sch.compute_at(stage.block_rv, rows, preserve_unit_loops=True)
            kinds, loops = stage.dom_kind()[len(outer) :], sch.get_loops(stage.block_rv)
            if kinds == "SR":
                part, step = loops[-2:]
                sch.reorder(step, part)
                sch.vectorize(part)
                sch.decompose_reduction(stage.block_rv, step)
            elif kinds == "S":
                _cut(sch, [(loops[-1], int(stage.iters[-1].dom))])
        return sch


class _Tiles(dlight.ScheduleRule):  # type: ignore[misc]
    """Compute products in tiles of sums in registers; for functions with a stage that is marked TILES."""

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> s_tir.Schedule | None:
        """Return the schedule of a function; None if no stage is marked."""
        sch = s_tir.Schedule(func)
        stages = normalize_prim_func(sch) or []
        annotations = [sch.get(stage.block_rv).annotations for stage in stages]
        number = next((at for at, each in enumerate(annotations) if TILES in each), None)
        if number is None:
            return None
        tiles, height = stages[number], int(annotations[number][TILES])
        before, (*between, last) = stages[:number], stages[number + 1 :]
        for stage in between:
            sch.compute_inline(stage.block_rv)
        for stage in before:
            _schedule(sch, stage, vectors=True)
        *batches, row, column = (each.loop_rv for each in last.iters)
        across, _ = sch.split(row, [None, height])
        outer = sch.fuse(*batches, across)
        if prod(tiles.dom()) >= _LEAST_PARALLEL:
            sch.parallel(outer)
        sch.compute_at(tiles.block_rv, outer, preserve_unit_loops=True)
        _cut(sch, [(column, last.dom()[-1])])
        *_, above, row, vector, depth = sch.get_loops(tiles.block_rv)
        many = last.dom()[-1] > tiles.dom()[-2]  # else the axis of tiles was one of extent 1, and is gone
        if many:
            row, step = above, row
            sch.reorder(step, depth, row, vector)
        else:
            sch.reorder(depth, row, vector)
        sch.unroll(row)
        sch.vectorize(vector)
        sums = sch.cache_write(tiles.block_rv, 0, "local")
        if many:
            sch.reverse_compute_at(sums, step)
        *loops, vector = sch.get_loops(sums)[-3:]
        for loop in loops if not many else loops[1:]:
            sch.unroll(loop)
        sch.vectorize(vector)
        sch.decompose_reduction(tiles.block_rv, depth)
        return sch


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

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> s_tir.Schedule | None:
        """Return the schedule of a function; None if another rule should take it."""
        sch = s_tir.Schedule(func)
        stages = normalize_prim_func(sch)
        if stages is None or any("O" in stage.dom_kind() for stage in stages):
            return None
        along = [_sums_along_rows(sch, stage) for stage in stages]
        work = [prod(stage.dom()) for stage in stages] if all(map(_is_fixed, stages)) else [1] * len(stages)
        if self._across and any(each and part * _MINOR > max(work) for each, part in zip(along, work, strict=True)):
            return None
        for stage, sums_along in zip(stages, along, strict=True):
            kept = stage is stages[-1] or KEPT in sch.get(stage.block_rv).annotations
            if kept or not (stage.is_injective() and _inlined(sch, stage)):
                _schedule(sch, stage, vectors=not sums_along)
        return sch


def _is_fixed(stage: SBlockInfo) -> bool:
    return all(isinstance(extent, int) for extent in stage.dom())


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
    extents = stage.dom()
    if not extents or not _is_fixed(stage):
        return
    spatial = [(each.loop_rv, each.dom) for each in stage.iters if each.kind == "S"]
    summed = [each.loop_rv for each in stage.iters if each.kind == "R"]
    if not spatial:
        return
    loops, inner = _cut(sch, _joined(sch, stage, spatial)) if vectors else (spatial, [])
    sch.reorder(*(loop for loop, _ in loops), *summed, *inner)
    if prod(extents) >= _LEAST_PARALLEL:
        outer = _fuse(sch, loops)
        sch.parallel(outer)
    if summed:
        sch.decompose_reduction(stage.block_rv, summed[0])


def _joined(sch: s_tir.Schedule, stage: SBlockInfo, spatial: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Fuse the last loops to one that vectors divide, if all that they go through lies side by side: rows of 21 channels, say."""
    block, own = sch.get(stage.block_rv), [(each.var, each.dom) for each in stage.iters if each.kind == "S"]
    if any(own[-1][1] % lanes == 0 for lanes in _LANES):
        return spatial
    for count in range(2, len(own) + 1):
        extent = prod(size for _, size in own[-count:])
        if extent % _LANES[-1] == 0:
            together = all(_lies_together(region, own[-count:]) for region in (*block.reads, *block.writes))
            fused = [(sch.fuse(*(loop for loop, _ in spatial[-count:])), extent)] if together else spatial[-count:]
            return [*spatial[:-count], *fused]
    return spatial


def _lies_together(region: Any, last: list[tuple[Any, int]]) -> bool:
    """Whether what a block reads or writes does not depend on some variables, or lies side by side along them."""
    used = {var for each in region.region for var in tirx.analysis.undefined_vars(each.min, [])}
    if not any(var in used for var, _ in last):
        return True
    ends = list(zip(region.source.shape, region.region, strict=True))[-len(last) :]
    return len(ends) == len(last) and all(
        part.min.same_as(var) and part.extent == 1 and size == extent
        for (size, part), (var, extent) in zip(ends, last, strict=True)
    )


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
