"""Search space of the direct windows on CPUs.

A task is some rows of one part of the output channels; threads share the rows, or the parts (model.py). It copies its
rows of data, padded, then walks over vectors of channels and tiles of a row; a tile's accumulators are all the vector
registers but a few, and each step of the reduction multiplies every pixel of the tile, broadcast, with every filter vector.

Measured on one Zen 5 core, percent of its peak (275 GFLOP/s), by

    tvmconv build SIGNATURE --math strict -o B && tvmconv bench B --threads 1

for f32, NXC and XIO, 3x3 taps with padding, filters prepacked: 97 at 56x56, 64 to 64 channels; 99 at 28x28, 128 to
128; 99 at 14x14, 256 to 256 (one in 21 products is with rows of padding, and skipped); 94 at 56x56, 256 to 256.
"""

from __future__ import annotations

from math import prod

from tvm.s_tir import Schedule

from tvmconv.algorithms.annotations import PREFETCH, PREFETCH_NEXT, RELOAD
from tvmconv.algorithms.cpu.cost import uneven
from tvmconv.algorithms.cpu.tile import LEAST_GAIN, tile_cycles, widths
from tvmconv.algorithms.cpu.window import Window
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import ACC, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.bf16_dot import import_bf16
from tvmconv.schedules.cpu.direct_parts import reduce_by_parts
from tvmconv.schedules.cpu.direct_plan import MOST_CHUNKS, Plan, plan_of
from tvmconv.schedules.cpu.model import TASKS, shared_loops, vector_counts
from tvmconv.targets.target import CpuTarget


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each number of vectors of channels in a tile, the default first."""

    def shared(first: Window) -> list[int]:
        """Return the numbers of vectors that all windows' channels divide into."""
        parts = [window.padded_outputs // window.lanes for window in definition.windows]
        return [count for count in _vectors(first, target) if all(part % count == 0 for part in parts)] or [1]

    return steps.sketches(sch, definition, target, shared, _schedule)


def _vectors(window: Window, target: CpuTarget) -> list[int]:
    """Return how many vectors of channels a tile may have, the best first."""
    if window.whole_image:
        return [1]
    counts = vector_counts(window, target, widths)[:3]
    one_row = window.problem.batch * prod(axis.outputs * axis.phases for axis in window.axes[:-1]) == 1
    one_tile = one_row and all(window.row in widths(window, count, target) for count in counts)
    blocks = window.groups * window.padded_outputs // window.lanes
    if not one_tile or not counts or blocks // counts[0] >= TASKS:
        return counts
    # All pixels are one tile: threads share its vectors of channels alone, and of the best there are few.
    cycles = {count: _shared_cycles(window, count, target) for count in counts}
    least = min(cycles.values())
    best = next(count for count in counts if cycles[count] * (1 - LEAST_GAIN) <= least)
    return sorted(counts, key=lambda count: count != best)


def _shared_cycles(window: Window, vectors: int, target: CpuTarget) -> float:
    """Return the cycles of a tile of the whole row by so many vectors, times how much longer the busiest thread works.

    Two cores of a Zen 4, 50176 to 64 channels, one pixel: by 4 vectors, one task, 164 us, by 2 73, by 1 113.
    """
    chunks = divisors(window.padded_outputs // window.lanes // vectors, MOST_CHUNKS)
    return tile_cycles(window, window.row, vectors, target) * min(map(uneven, (c * window.groups for c in chunks)))


def _schedule(sch: Schedule, window: Window, vectors: int, target: CpuTarget) -> None:
    tap_by_tap = _is_deep(window, vectors, target) and not window.whole_image
    if window.by_parts:
        plan = plan_of(window, vectors, target)
        pixels = plan.rows if len(window.axes) > 1 else plan.parts
        has_all = tap_by_tap or window.whole_image  # a task of prepacked filters
        reduce_by_parts(sch, window, vectors, plan.chunks, None if has_all else pixels, target)
    elif tap_by_tap:
        _reduce_tap_by_tap(sch, window, vectors, target)
    else:
        _reduce_in_registers(sch, window, plan_of(window, vectors, target), target)


def _is_deep(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Whether the filter of a tile's channels leaves L2 before the next tile uses it.

    One tap's stays. Sums in memory are worth it where 8 rows or more use the filter.
    """
    one_tap = 4 * window.channels * vectors * window.lanes
    taps = prod(axis.taps for axis in window.axes)
    rows = prod(axis.outputs for axis in window.axes[:-1])
    simple = len(window.axes) > 1 and all(axis.phases == 1 for axis in window.axes)
    return simple and one_tap <= target.l2_share < one_tap * taps / 2 and rows >= 8


def _reduce_tap_by_tap(sch: Schedule, window: Window, vectors: int, target: CpuTarget) -> None:
    """A task is some of the output channels: for a few of them at a time, all rows of one tap, then of the next."""
    i, lanes, rank = window.index, window.lanes, len(window.axes)
    tiles = widths(window, vectors, target)[:4]
    parts = window.padded_outputs // (lanes * vectors)
    # As many to choose from as where the plain filter is taken part after part.
    chunks, most = divisors(parts, MOST_CHUNKS), divisors(parts, 16)[-1]
    unrolls = divisors(window.channels, 4)

    acc = sch.get_sblock(stage_name(ACC, i))
    tap = sch.fuse(*sch.get_loops(acc)[3 + 2 * rank : -1])
    part = sch.rfactor(tap, 0)
    sch.set_scope(part, 0, "local")
    n, g, *loops, o, tap = sch.get_loops(acc)
    phases, spatial = loops[:rank], loops[rank:]
    chunk, block, vector, lane = sch.split(o, [steps.choose(sch, chunks, most), None, vectors, lanes])
    tile, x = sch.split(spatial[-1], [None, steps.choose(sch, tiles, tiles[0])])
    sch.reorder(n, g, chunk, *phases, block, tap, *spatial[:-1], tile, x, vector, lane)
    task = sch.fuse(n, g, chunk)
    sch.parallel(task)

    sch.compute_at(part, tile, preserve_unit_loops=True)
    single = sum(
        axis.taps == 1 for axis in window.axes
    )  # fused, they left no trace; the sum of a tap has loops over them
    sx, so, *_, c = sch.get_loops(part)[-3 - single :]
    step, unrolled = sch.split(c, [None, steps.choose(sch, unrolls, unrolls[-1])])
    part_vector, part_lane = sch.split(so, [vectors, lanes])
    sch.reorder(step, unrolled, *steps.held_first(sx, part_vector, tiles[0] < vectors), part_lane)
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
    if window.vnni_factor == 2:
        import_bf16(sch, task, lanes, target)


def _reduce_in_registers(sch: Schedule, window: Window, plan: Plan, target: CpuTarget) -> None:
    """A task is some rows of some output channels, or a part of the only row: a tile's sums stay in registers until they are whole."""
    i, lanes, rank = window.index, window.lanes, len(window.axes)
    vectors, tiles, unrolls = plan.vectors, plan.tiles, plan.unrolls

    acc = sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    n, g, *loops, o = sch.get_loops(acc)[: 3 + 2 * rank]
    phases, spatial = loops[:rank], loops[rank:]
    *taps, c = sch.get_loops(acc)[3 + 2 * rank :]

    chunk, block, vector, lane = sch.split(o, [steps.choose(sch, *plan.chunks), None, vectors, lanes])
    tile, x = sch.split(spatial[-1], [None, steps.choose(sch, tiles, tiles[0])])
    step, unrolled = sch.split(c, [None, steps.choose(sch, unrolls, unrolls[-1])])
    tile_rows = []
    if window.whole_image:
        outer, inner, tile_rows = [n, g, chunk, *spatial[:-2]], [*phases, block, tile], [spatial[-2]]
        sch.unroll(taps[-2])
    elif rank > 1:
        band, row = sch.split(spatial[-2], [None, steps.choose(sch, *plan.rows)])
        task_phases, phases = (phases[:-1], phases[-1:]) if plan.by_phase else ([], phases)
        rows = [*task_phases, *spatial[:-2], band]
        bands = window.axes[-2].outputs // plan.rows[1]
        outer, inner = [n, g, *shared_loops(window, target, rows, chunk, bands)], [*phases, block, row, tile]
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
            outer = [n, g, *shared_loops(window, target, [tile], chunk)]
    if window.channels <= unrolls[-1]:
        # LLVM unrolls the innermost tap loop: over a row's taps, it would hold the data that neighbouring outputs share,
        # which leaves no registers for the sums.
        taps.reverse()
    sch.reorder(
        *outer, *inner, *taps, step, unrolled, *tile_rows, *steps.held_first(x, vector, tiles[0] < vectors), lane
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
    if plan.reloads:
        sch.annotate(taps[0], RELOAD, 1)
    if window.vnni_factor == 2:
        import_bf16(sch, task, lanes, target)
