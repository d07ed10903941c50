"""Schedules of TVM's operators: dlight's rules, and ours for the rest.

TVM's operators come unscheduled, as serial loops. dlight has rules for CPUs for reductions and for matrix-vector products. The rules here
handle the rest: elementwise stages are inlined into their readers, outer loops run in parallel, the innermost is vectorized.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight
from tvm.s_tir.dlight.analysis import SBlockInfo, normalize_prim_func

from ...lowering.cpu.rewrites.padding import uses
from ...lowering.cpu.rewrites.transposing.copies import loads_of, runs
from ...targets.target import CpuTarget
from .concat import Segments
from .reduce import RowReductions
from .stages import LEAST_PARALLEL, cut_to_vectors, inline, is_fixed, schedule
from .transpose import Transposes

# Marks functions whose stages share rows, to be computed row by row.
ROWS = "tvmconv.rows"
# Marks the stage of products in tiles, with the rows of a tile; a stage, since fusion replaces its function.
TILES = "tvmconv.tiles"
# Stages smaller than the largest by this factor do not decide how a function is scheduled.
_MINOR = 16
# Largest factor by which a rule may repeat work, such as elements of a masked tail.
_REPEATED = 2


def schedule_others(target: CpuTarget) -> tvm.transform.Pass:
    """Return the pass that schedules a module's unscheduled functions for a target's vectors."""
    return dlight.ApplyDefaultSchedule(
        _Rows(),
        _Free(),
        _Tiles(),
        Transposes(target.vector_bits // 32),
        Segments(),
        _RowByRow(across=True),
        _Gemv(),
        RowReductions(),
        _Reduction(),
        _RowByRow(across=False),
    )


class _Free(dlight.ScheduleRule):  # type: ignore[misc]
    """Schedule of functions with free extents: outer loops in parallel, the innermost vectorized where its extent is fixed."""

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> s_tir.Schedule | None:
        """Return the schedule of a function; None if all extents are fixed."""
        sch = s_tir.Schedule(func)
        stages = normalize_prim_func(sch)
        if stages is None or all(map(is_fixed, stages)) or any("O" in stage.dom_kind() for stage in stages):
            return None
        for stage in stages:
            if stage is stages[-1] or not (stage.is_injective() and inline(sch, stage)):
                schedule(sch, stage, vectors=not _sums_along_rows(sch, stage))
        return sch


class _Rows(dlight.ScheduleRule):  # type: ignore[misc]
    """Schedule of functions marked ROWS: all stages of a row one after another.

    A stage's last axis is the row's, or the partial sums of a row; a stage without it has one number for each row.
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
        extents = [each.dom for each in last.iters]
        rows = sch.fuse(*outer) if len(outer) > 1 else outer[0] if outer else sch.add_unit_loop(row)
        cut_to_vectors(sch, [(row, extents[-1])])
        if not is_fixed(last) or prod(extents) >= LEAST_PARALLEL:
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
                cut_to_vectors(sch, [(loops[-1], int(stage.iters[-1].dom))])
        return sch


class _Tiles(dlight.ScheduleRule):  # type: ignore[misc]
    """Schedule of functions with a stage marked TILES: products with register tiles of sums."""

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
            schedule(sch, stage, vectors=True)
        *batches, row, column = (each.loop_rv for each in last.iters)
        across, _ = sch.split(row, [None, height])
        outer = sch.fuse(*batches, across)
        if prod(tiles.dom()) >= LEAST_PARALLEL:
            sch.parallel(outer)
        sch.compute_at(tiles.block_rv, outer, preserve_unit_loops=True)
        cut_to_vectors(sch, [(column, last.dom()[-1])])
        *_, above, row, vector, depth = sch.get_loops(tiles.block_rv)
        many = last.dom()[-1] > tiles.dom()[-2]  # otherwise the axis of tiles had extent 1, and was removed
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
    """dlight's rule for matrix-vector products, which fails on other sums of several tensors that it takes for such."""

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> Any:
        """Return the schedule of a function; None if another rule should take it."""
        try:
            return super().apply(func, target, tunable)
        except (AssertionError, ValueError):
            return None


class _RowByRow(dlight.ScheduleRule):  # type: ignore[misc]
    """Run the outer loops of each stage in parallel, and the innermost by vectors.

    Parameters
    ----------
    across
        Whether to leave functions that sum along rows, where vectors would not be contiguous, to other rules.
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
        work = [prod(stage.dom()) for stage in stages] if all(map(is_fixed, stages)) else [1] * len(stages)
        if self._across and any(each and part * _MINOR > max(work) for each, part in zip(along, work, strict=True)):
            return None
        for stage, sums_along in zip(stages, along, strict=True):
            if stage is stages[-1] or not (stage.is_injective() and inline(sch, stage)):
                schedule(sch, stage, vectors=not sums_along)
        return sch


class _Reduction(dlight.cpu.Reduction):  # type: ignore[misc]
    """dlight's rule for sums, except where it repeats work: it computes all earlier stages in each iteration of the last stage's first loop.

    For a normalization of one group of 96 channels of 4x64 that was 96 times the work: 54 us instead of 1.
    """

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> Any:
        """Return the schedule of a function; None if it repeats work."""
        sch = super().apply(func, target, tunable)
        if sch is None:
            return None
        before = _iterations(s_tir.Schedule(func))
        return None if _iterations(sch) > _REPEATED * before > 0 else sch


def _iterations(sch: s_tir.Schedule) -> int:
    """Return the iterations of all stages of a function; 0 if they depend on its arguments, or there are none."""
    blocks = [stage.block_rv for stage in normalize_prim_func(sch) or []]
    extents = [[sch.get(loop).extent for loop in sch.get_loops(block)] for block in blocks]
    fixed = all(isinstance(extent, tirx.IntImm) for each in extents for extent in each)
    return sum(prod(map(int, each)) for each in extents) if fixed else 0


def _sums_along_rows(sch: s_tir.Schedule, stage: SBlockInfo) -> bool:
    """Return whether a stage sums along the last axis of its data, except where contiguous vectors are possible."""
    summed = [each.var for each in stage.iters if each.kind == "R"]
    spatial = [each for each in stage.iters if each.kind == "S"]
    loads = [load for load in loads_of(sch.get(stage.block_rv).body) if len(load.indices)]
    along = [load for load in loads if uses(load.indices[-1], *summed)]
    if not along or not spatial or not isinstance(spatial[-1].dom, int) or spatial[-1].dom == 1:
        return bool(along)
    return not all(runs(load, spatial[-1].var, spatial[-1].dom) for load in along)
