"""Search space of windows whose lanes run along the products of a sum, with the filter read in place, on CPUs.

A task is some output channels, of all pixels. Where L1 keeps the data and filter that a tile's sums read, these are
computed at once, in registers; else part after part, and the sums wait in L1 or L2. Within a part a tile's rows of the filter
come from memory for the first pixels, and from L1 for the others; the next part's are prefetched.
"""

from __future__ import annotations

from math import gcd, prod

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from tvmconv.algorithms.annotations import PREFETCH_PART, TO_PIXELS, TRANSPOSE, TRANSPOSED_LANES
from tvmconv.algorithms.cpu.inner import RowWindow, tile_outputs, tile_widths
from tvmconv.algorithms.cpu.model.cost import most_even
from tvmconv.algorithms.cpu.model.tasks import TASKS
from tvmconv.algorithms.cpu.windows.data import copies_groups
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors, part_counts
from tvmconv.algorithms.stage_names import ACC, DATA_PAD, FILTER, LANE_SUMS, OUT, TILE, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.dots import import_dot
from tvmconv.targets.cpus import L1_WAY_BYTES
from tvmconv.targets.target import CpuTarget

# Most chunks of output channels. A thread's part of the filter is so many runs of rows.
MOST_CHUNKS = 64


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each number of pixels in a tile, the default first."""
    return steps.sketches(sch, definition, target, lambda window: tile_widths(window, target)[:3], _schedule)


def _schedule(sch: Schedule, window: Window, width: int, target: CpuTarget) -> None:
    i, rank = window.index, len(window.axes)
    outputs = tile_outputs(window, width, target)
    steps_of_part = _part(window, width, outputs, target)
    parts = prod(axis.taps for axis in window.axes) * window.channels // window.lanes // steps_of_part
    # The next part is prefetched by the steps of one.
    prefetches = parts > 1 and steps_of_part > 1
    unrolls = [count for count in divisors(steps_of_part, 4) if count < steps_of_part or not prefetches]
    chunks = part_counts(window.outputs // outputs, MOST_CHUNKS, TASKS)
    most = max(_lanes_of(window.outputs // count) for count in chunks)
    chunks = [count for count in chunks if _lanes_of(window.outputs // count) == most]
    best = most_even(chunks, window.groups)

    acc = sch.get_sblock(stage_name(ACC, i))
    *taps, c = sch.get_loops(acc)[4 + 2 * rank :]
    few, c = sch.split(c, [None, steps_of_part])
    part = sch.fuse(*taps, few)
    sums = sch.rfactor(part, 0)
    sch.set_scope(sums, 0, "local")
    n, g, *loops, o, lane, part = sch.get_loops(acc)
    phases, spatial = loops[:rank], loops[rank:]
    chunk, block, q = sch.split(o, [steps.choose(sch, chunks, best), None, outputs])
    tile, x = sch.split(spatial[-1], [None, width])
    sch.reorder(n, g, chunk, *phases, part, block, *spatial[:-1], tile, x, q, lane)
    task = sch.fuse(n, g, chunk)
    sch.parallel(task)

    sch.compute_at(sums, tile, preserve_unit_loops=True)
    sx, so, sum_lane, sc = _inner(sch, sums, window)
    step, unrolled = sch.split(sc, [None, steps.choose(sch, unrolls, unrolls[-1])])
    sch.reorder(step, unrolled, sx, so, sum_lane)
    _stage_data(sch, window, target)
    _add_lanes(sch, window, phases[-1], window.outputs // best)
    if prefetches:
        sch.annotate(part, PREFETCH_PART, FILTER)
    for loop in (unrolled, sx, so, x, q):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.vectorize(sum_lane)
    sch.decompose_reduction(sums, step)
    sch.decompose_reduction(acc, part)
    steps.skip_padding(sch, window, sx, sum_lane)
    if window.vnni_factor == 2:
        import_dot(sch, task, window, window.lanes, target)


def _part(window: Window, width: int, outputs: int, target: CpuTarget) -> int:
    """Return how many vectors of a sum's products a part has: L1 keeps them of a tile's pixels and rows of the filter.

    All, where all pixels are one tile, which uses the filter once, and a cache keeps their data: L2 for half as many pixels as rows.
    """
    count = window.channels // window.lanes
    kept = target.l2_share if 2 * width <= outputs else target.l1_share
    if width == window.pixels and 4 * window.lanes * count * width <= kept * 3 // 4:
        return count
    fits = target.l1_share * 3 // 4 // (4 * window.lanes * (width + outputs))
    return max(each for each in divisors(count, count) if each <= max(fits, 1))


def _inner(sch: Schedule, sums: SBlockRV, window: Window) -> list[LoopRV]:
    """Return the loops of a part's sums within a tile: pixels, output channels, lanes, and steps.

    Between lanes and steps stand the taps of axes that have one: others were fused, and left no trace.
    """
    single = sum(axis.taps == 1 for axis in window.axes)
    x, o, lane, *_, c = sch.get_loops(sums)[-4 - single :]
    return [x, o, lane, c]


def _stage_data(sch: Schedule, window: Window, target: CpuTarget) -> None:
    """Copy all data first: each tap's channels together in data's order, whatever their order in the copy."""
    if not window.stages_data:
        return
    block = sch.get_sblock(stage_name(DATA_PAD, window.index))
    # Pixels, and rows of the filter, would share sets of L1.
    pixel = int(sch.get(sch.get_loops(block)[-1]).extent)
    if 4 * pixel % L1_WAY_BYTES == 0:
        sch.storage_align(block, 0, axis=-2, factor=pixel, offset=steps.LINE_FLOATS)
    if isinstance(window, RowWindow):
        _copy_rows(sch, block, window)
        return
    steps.by_pixels(sch, block, window, target)
    sch.parallel(sch.fuse(*sch.get_loops(block)[: 2 + copies_groups(window)]))


def _copy_rows(sch: Schedule, block: SBlockRV, window: RowWindow) -> None:
    """Copy pixel by pixel, tap by tap, where elements are not contiguous."""
    taps = prod(axis.taps for axis in window.data_axes)
    *images, pixel, channel = sch.get_loops(block)
    if window.vnni_factor == 1:
        c, tap = sch.split(channel, [None, taps])
        sch.reorder(tap, c)
        sch.parallel(sch.fuse(*images, pixel, tap))
        return
    # Of so many pairs as there are taps, or half of them, each has the same taps in all channels.
    c, pair = sch.split(channel, [None, taps // gcd(2, taps)])
    sch.reorder(pair, c)
    sch.parallel(sch.fuse(*images, pixel, pair))


def _add_lanes(sch: Schedule, window: Window, around: LoopRV, outputs: int) -> None:
    """Add the lanes of a task's sums when they are whole, by vectors of output channels, and write its outputs."""
    turned = sch.get_sblock(stage_name(LANE_SUMS, window.index))
    tile = sch.get_sblock(stage_name(TILE, window.index))
    out = sch.get_sblock(stage_name(OUT, window.index))
    sch.reverse_compute_at(turned, around, preserve_unit_loops=True)
    sch.reverse_compute_at(tile, around, preserve_unit_loops=True)
    sch.set_scope(tile, 0, "local")
    lanes = _lanes_of(outputs)
    *_, o, summed = sch.get_loops(tile)
    vector, o = sch.split(o, [None, lanes])
    sch.reorder(vector, summed, o)
    sch.compute_at(turned, vector, preserve_unit_loops=True)
    sch.reverse_compute_at(out, vector, preserve_unit_loops=True)
    *_, column, channel = sch.get_loops(turned)
    *_, stored = sch.get_loops(out)
    if lanes > 1:
        for loop in (o, channel, stored):
            sch.vectorize(loop)
        sch.annotate(column, TRANSPOSE, TO_PIXELS)
    sch.unroll(summed)
    sch.decompose_reduction(tile, summed)


def _lanes_of(outputs: int) -> int:
    """Return how many sums are added together of so many outputs of a task."""
    return next((lanes for lanes in TRANSPOSED_LANES if outputs % lanes == 0), 1)
