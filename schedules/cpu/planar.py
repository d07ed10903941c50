"""Search space of windows whose lanes run along a row, on CPUs: planar layouts, and few output channels.

A tile is some channels by some vectors of a row. Each step of the reduction loads the row's vectors, which
taps shift by one element, and broadcasts a filter element for each channel. A task is some rows of all
channels, or of one group; its channels share the rows' data. Phases of a transposed convolution that are neighbours in
the output are summed in one tile, and leave the registers shuffled into whole vectors.
"""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tvmconv.algorithms.annotations import INTERLEAVE, PACK, PART, STRIDED, TRANSPOSE
from tvmconv.algorithms.cpu.windows.plan import PlanarPlan
from tvmconv.algorithms.cpu.windows.row_window import PlanarWindow
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import ACC, DATA_PAD, DATA_PHASES, FILTER_PACK, OUT, TILE, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.targets.target import CpuTarget


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each plan of the windows, the default first."""
    return steps.schedule_plans(sch, definition, target, _schedule, by="channels")


def _schedule(sch: Schedule, window: PlanarWindow, plan: PlanarPlan, target: CpuTarget) -> None:
    i, lanes, rank = window.index, window.lanes, len(window.axes)

    acc = sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    n, g, *loops = sch.get_loops(acc)
    phases, spatial, (o, x, c, *taps) = loops[:rank], loops[rank : 2 * rank - 1], loops[2 * rank - 1 :]

    block, channel = sch.split(o, [None, plan.channels])
    tile, vector, lane = sch.split(x, [None, steps.choose(sch, *plan.vectors), lanes])
    step, unrolled = sch.split(taps[-1], [None, plan.taps_unrolled])
    tile_loops = [phases.pop()] if window.interleaves else []
    if rank > 1:
        band, row, tile_row = sch.split(spatial[-1], [None, steps.choose(sch, *plan.rows), plan.tile_rows])
        order = [row, block, tile] if plan.planes_by_rows else [row, tile, block]
        if plan.blocks_first:
            order = [block, row, tile]
        g, plane = sch.split(g, [None, plan.planes])
        outer, inner = [n, g, *spatial[:-1], band], [plane, *phases, *order]
        tile_loops.insert(0, tile_row)
    else:
        chunk, block = sch.split(block, [steps.choose(sch, *plan.chunks), None])
        outer, inner = [n, g, tile, chunk], [*phases, block]
        if plan.tiles:
            outer[2], tile = sch.split(tile, [None, steps.choose(sch, *plan.tiles)])
            inner.insert(-1, tile)
    # With shared rows, one tap along the row at a time, whose data stays in registers for all taps across rows.
    reduction = [*taps[:-2], step, unrolled, taps[-2]] if plan.tile_rows > 1 else [*taps[:-1], step, unrolled]
    sch.reorder(*outer, *inner, c, *reduction, *tile_loops, channel, vector, lane)
    task = sch.fuse(*outer)
    sch.parallel(task)

    if steps.has_block(sch, stage_name(FILTER_PACK, i)):
        *loops, last = sch.get_loops(sch.get_sblock(stage_name(FILTER_PACK, i)))
        sch.parallel(sch.fuse(*loops))
        sch.annotate(last, PACK, 1)
    if window.panels:
        _copy_panel(sch, window, task)
    elif window.stages_data:
        _stage(sch, window, None if plan.data_at_once else task)
    _store(sch, window, inner[-1], lanes)
    sch.vectorize(lane)
    for loop in (*(taps[-2:-1] if plan.tile_rows > 1 else []), unrolled, *tile_loops, channel, vector):
        sch.unroll(loop)
    sch.decompose_reduction(acc, c)
    steps.offer_outermost(sch, inner)


def _copy_panel(sch: Schedule, window: PlanarWindow, task: LoopRV) -> None:
    """Copy a task's tile of data, by whole vectors."""
    block = sch.get_sblock(stage_name(DATA_PAD, window.index))
    sch.compute_at(block, task, preserve_unit_loops=True)
    sch.vectorize(sch.split(sch.get_loops(block)[-1], [None, window.lanes])[1])


def _stage(sch: Schedule, window: PlanarWindow, task: LoopRV | None) -> None:
    """Copy padded data: each task its own rows, or all of it first if several would copy the same (`task` None).

    LLVM vectorizes the scalar loop, by masked loads; TVM would not, for the conditions are on lanes.
    """
    stages = [
        name
        for name in (stage_name(DATA_PHASES, window.index), stage_name(DATA_PAD, window.index))
        if steps.has_block(sch, name)
    ]
    block = sch.get_sblock(stages[0])
    if task is not None:
        sch.compute_at(block, task, preserve_unit_loops=True)
        # An odd number of cache lines from channel to channel spreads them over all sets of the caches.
        sch.storage_align(block, 0, axis=1, factor=2 * steps.LINE_FLOATS, offset=steps.LINE_FLOATS)
    else:
        n, c, *_ = sch.get_loops(block)
        sch.parallel(sch.fuse(n, c))
    for name in stages[1:]:
        row = sch.get_loops(block)[-3]
        sch.compute_at(sch.get_sblock(name), row, preserve_unit_loops=True)
    # The columns that a task copies are known only at run time where tasks cut a row whose last vector overlaps.
    axis = window.axes[-1]
    known = len(window.axes) > 1 or not window.overlaps
    if stages[0].startswith(DATA_PHASES) and window.problem.data_format == "NCX" and known:
        *_, phase, column = sch.get_loops(block)
        # Nor is it known at compile time which of a part's columns are padding.
        whole = int(sch.get(column).extent) * axis.stride >= axis.extent
        if (whole or not axis.padded) and _wide_phases(window, int(sch.get(phase).extent), int(sch.get(column).extent)):
            sch.annotate(phase, STRIDED, 1)


def _wide_phases(window: PlanarWindow, phases: int, columns: int) -> bool:
    """Return whether each phase of a copied row has enough columns of data for shuffles: other columns are copied one by one."""
    axis = window.axes[-1]

    def inside(phase: int) -> int:
        start = axis.lowest + phase
        first = max(0, -(start // axis.stride))
        return min(columns, (axis.inputs - 1 - start) // axis.stride + 1) - first

    return window.separates and all(inside(phase) >= PART for phase in range(phases))


def _store(sch: Schedule, window: PlanarWindow, tile: LoopRV, lanes: int) -> None:
    """Write a tile's outputs from the accumulators: rows by vectors, or element by element from a copy of the tile."""
    out = sch.get_sblock(stage_name(OUT, window.index))
    written = out
    if not window.stores_rows:
        written = sch.get_sblock(stage_name(TILE, window.index))
        sch.set_scope(written, 0, "local")
        sch.reverse_compute_at(written, tile, preserve_unit_loops=True)
    sch.reverse_compute_at(out, tile, preserve_unit_loops=True)
    if written is out and window.interleaves:
        *rows, channel, x, phase = sch.get_loops(out)
        vector, lane = sch.split(x, [None, lanes])
        lane = sch.fuse(lane, phase)
    else:
        *rows, channel, x = sch.get_loops(written)
        vector, lane = sch.split(x, [None, lanes])
    for loop in (*rows[-1:], channel, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    axis = window.axes[-1]
    if written is out and window.interleaves and axis.store_index(0, 1) == axis.store_index(0, 0) + axis.phases:
        # All phases of the row: together they fill it.
        sch.annotate(lane, TRANSPOSE, INTERLEAVE)
    if written is not out and window.problem.data_format == "NXC":
        *_, channel, x = sch.get_loops(out)
        sch.reorder(x, channel)
