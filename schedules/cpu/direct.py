"""Search space of the direct windows on CPUs.

A task is some rows of one part of the output channels; threads share the rows, or the parts. A plan has their sizes and the
tiles' (tvmconv/algorithms/cpu/direct_plan.py). A task copies its rows of data, padded, then walks over vectors of channels and
tiles of a row; a tile's accumulators are all the vector registers but a few, and each step of the reduction multiplies every pixel
of the tile, broadcast, with every filter vector.
"""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvmconv.algorithms.annotations import APART, PREFETCH, PREFETCH_NEXT
from tvmconv.algorithms.cpu.windows.plan import DirectPlan
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import ACC, OUT, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.direct_parts import reduce_by_parts
from tvmconv.schedules.cpu.dots import import_dot
from tvmconv.targets.target import CpuTarget


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each plan of the windows, the default first."""
    return steps.schedule_plans(sch, definition, target, _schedule)


def _schedule(sch: Schedule, window: Window, plan: DirectPlan, target: CpuTarget) -> None:
    if window.by_parts:
        reduce_by_parts(sch, window, plan, target)
    elif plan.tap_by_tap:
        _reduce_tap_by_tap(sch, window, plan, target)
    else:
        _reduce_in_registers(sch, window, plan, target)


def _reduce_tap_by_tap(sch: Schedule, window: Window, plan: DirectPlan, target: CpuTarget) -> None:
    """Schedule tasks of some rows of some output channels: for a few channels at a time, all rows of one tap, then of the next."""
    i, lanes, rank, vectors = window.index, window.lanes, len(window.axes), plan.vectors

    acc = sch.get_sblock(stage_name(ACC, i))
    tap = sch.fuse(*sch.get_loops(acc)[3 + 2 * rank : -1])
    part = sch.rfactor(tap, 0)
    sch.set_scope(part, 0, "local")
    n, g, *loops, o, tap = sch.get_loops(acc)
    phases, spatial = loops[:rank], loops[rank:]
    chunk, block, vector, lane = sch.split(o, [steps.choose(sch, *plan.chunks), None, vectors, lanes])
    tile, x = sch.split(spatial[-1], [None, steps.choose(sch, *plan.tiles)])
    band, row = sch.split(spatial[-2], [None, plan.rows[1]])
    sch.reorder(n, g, chunk, *spatial[:-2], band, *phases, block, tap, row, tile, x, vector, lane)
    task = sch.fuse(n, g, chunk, *spatial[:-2], band)
    sch.parallel(task)

    sch.compute_at(part, tile, preserve_unit_loops=True)
    single = sum(
        axis.taps == 1 for axis in window.axes
    )  # fused, they left no trace; the sum of a tap has loops over them
    sx, so, *_, c = sch.get_loops(part)[-3 - single :]
    step, unrolled = sch.split(c, [None, steps.choose(sch, *plan.unrolls)])
    part_vector, part_lane = sch.split(so, [vectors, lanes])
    sch.reorder(step, unrolled, *steps.held_first(window, sx, part_vector, plan.tiles[1] < vectors, target), part_lane)
    steps.stage_filter(sch, window, tap)
    steps.stage_data(sch, window, None, target)
    steps.store(sch, window, block, vectors)
    for loop in (unrolled, sx, part_vector, x, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.vectorize(part_lane)
    sch.decompose_reduction(part, step)
    sch.decompose_reduction(acc, tap)
    steps.skip_padding(sch, window, sx, part_lane)
    if window.vnni_factor > 1:
        import_dot(sch, task, window, lanes, target)
    steps.offer_each(sch, [*phases, block])
    if window.stores_vectors:
        steps.offer_axis(sch, "rows", row, sch.get_loops(sch.get_sblock(stage_name(OUT, i)))[-4])


def _reduce_in_registers(sch: Schedule, window: Window, plan: DirectPlan, target: CpuTarget) -> None:
    """A task is some rows of some output channels, or a part of the only row: a tile's sums stay in registers until they are whole."""
    lanes, rank, vectors = window.lanes, len(window.axes), plan.vectors

    acc, (n, g), (phases, spatial, o), (*taps, c) = steps.sum_in_registers(sch, window)

    chunk, block, vector, lane = sch.split(o, [steps.choose(sch, *plan.chunks), None, vectors, lanes])
    tile, x = sch.split(spatial[-1], [None, steps.choose(sch, *plan.tiles)])
    step, unrolled = sch.split(c, [None, steps.choose(sch, *plan.unrolls)])
    tile_rows = []
    if window.whole_image:
        outer, inner, tile_rows = [n, g, chunk, *spatial[:-2]], [*phases, block, tile], [spatial[-2]]
        sch.unroll(taps[-2])
    elif rank > 1:
        band, row = sch.split(spatial[-2], [None, steps.choose(sch, *plan.rows)])
        task_phases, phases = (phases[:-1], phases[-1:]) if plan.by_phase else ([], phases)
        rows = [*task_phases, *spatial[:-2], band]
        outer, inner = [n, g, *steps.task_loops(rows, chunk, plan.rows_first)], [*phases, block, row, tile]
    else:
        # Plain and prepacked filters have the same choices, whether both are taken by blocks or one.
        parts = steps.choose(sch, *plan.parts) if window.large else plan.parts[1]
        inner = [*phases, block]
        if plan.by_blocks:
            n, image = sch.split(n, [None, plan.images])
            part, tile = sch.split(tile, [parts, None])
            shared = [part, chunk] if plan.pixel_parts > 1 else [chunk, part]
            outer, inner = [n, g, *shared], [*inner, image, tile]
        elif plan.groups_together:
            outer = [n, tile, g, chunk]
        elif plan.pixel_parts > 1:
            part, tile = sch.split(tile, [plan.pixel_parts, None])
            outer = [n, g, part, chunk, tile]
        else:
            outer = [n, g, *steps.task_loops([tile], chunk, plan.rows_first)]
    axis = window.axes[-1]
    if window.ordered:
        taps = window.in_order(taps)
    elif window.channels <= plan.unrolls[1] and axis.stride < axis.span:
        # LLVM unrolls the innermost tap loop: over a row's taps, it would hold the data that neighbouring outputs share,
        # which leaves no registers for the sums. Patches share none.
        taps.reverse()
    sch.reorder(
        *outer,
        *inner,
        *taps,
        step,
        unrolled,
        *tile_rows,
        *steps.held_first(window, x, vector, plan.tiles[1] < vectors, target),
        lane,
    )
    task = sch.fuse(*outer)
    sch.parallel(task)

    steps.stage_filter(sch, window, task if plan.filter_at_once else block)
    steps.stage_data(sch, window, None if plan.data_at_once else task, target, plan.pixel_parts > 1)
    steps.store(sch, window, inner[-1], vectors)
    if window.whole_image and not window.packs_parts:
        sch.annotate(unrolled, PREFETCH, steps.packed_filter(window))
    if window.streams_filter:
        sch.annotate(block, PREFETCH_NEXT, steps.packed_filter(window))
    for loop in (unrolled, *tile_rows, x, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.decompose_reduction(acc, taps[0])
    steps.skip_padding(sch, window, x, lane)
    sch.annotate(unrolled, APART, 1)
    if window.vnni_factor > 1:
        import_dot(sch, task, window, lanes, target)
    steps.offer_each(sch, inner)
