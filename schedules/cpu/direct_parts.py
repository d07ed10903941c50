"""Steps of the direct windows that take a plain filter part after part, in the order of memory.

A task has all pixels of some output channels, whose sums wait in L1 or L2. It copies a part of the filter, some channels of a tap
(of all taps and phases, where these lie together), sums its products for all pixels, and goes on to the next part, which was prefetched
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tvmconv.algorithms.annotations import PREFETCH_PART, ROUND_STORES
from tvmconv.algorithms.cpu.model.tasks import vector_counts
from tvmconv.algorithms.cpu.windows.filter_parts import channels_of_part, taps_together
from tvmconv.algorithms.cpu.windows.plan import DirectPlan, Options
from tvmconv.algorithms.cpu.windows.tile import widths
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import ACC, FILTER, FILTER_PACK, OUT, TILE, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.direct_rows import inner_loops, sum_whole_rows
from tvmconv.schedules.cpu.dots import import_dot
from tvmconv.targets.target import CpuTarget


def reduce_by_parts(sch: Schedule, window: Window, plan: DirectPlan, target: CpuTarget) -> None:
    """Schedule a window by tasks of all pixels and a part of the output channels.

    Choices that only prepacked filters have are sampled too, so that both have the same: the pixels of a task, and all choices where rows
    are read whole.
    """
    chunks, vectors, tiles = plan.chunks, plan.vectors, plan.tiles
    if window.whole_image:
        chunks, vectors, widest = _tiles_of_rows(window, chunks, tiles[0], target)
        tiles = widest, widest[0]
    pixels: Options | None = plan.parts if window.large else None
    if len(window.axes) > 1:
        pixels = None if plan.tap_by_tap or window.whole_image else plan.rows
    choices = chunks, tiles, plan.unrolls, pixels
    if window.rows_in_place is not None:
        for options in choices:
            if options is not None:
                steps.choose(sch, *options)
        sum_whole_rows(sch, window, window.rows_in_place, target)
        return
    _store(sch, window, sum_by_parts(sch, window, vectors, choices, target))


def sum_by_parts(
    sch: Schedule,
    window: Window,
    vectors: int,
    choices: tuple[Options, Options, Options, Options | None],
    target: CpuTarget,
) -> LoopRV:
    """Schedule a window's sums, and return the loop within a task around all of its sums.

    `choices` are the chunks, tiles, unrolls and pixels of a task, as in DirectPlan.
    """
    i, lanes, rank = window.index, window.lanes, len(window.axes)
    chunks, (tiles, width), (unrolls, most), pixels = choices

    acc = sch.get_sblock(stage_name(ACC, i))
    *taps, c = sch.get_loops(acc)[3 + 2 * rank :]
    channels = channels_of_part(window, vectors, unrolls, chunks[1], target)
    few, c = sch.split(c, [None, channels])
    part = few if taps_together(window) else sch.fuse(*taps, few)
    sum_of_part = sch.rfactor(part, 0)
    sch.set_scope(sum_of_part, 0, "local")
    n, g, *loops, o, part = sch.get_loops(acc)
    phases, spatial = loops[:rank], loops[rank:]
    chunk, block, vector, lane = sch.split(o, [steps.choose(sch, *chunks), None, vectors, lanes])
    tile, x = sch.split(spatial[-1], [None, steps.choose(sch, tiles, width)])
    unroll = steps.choose(sch, unrolls, most)
    if pixels is not None:
        steps.choose(sch, *pixels)
    outer = [part, *phases] if taps_together(window) else [*phases, part]
    sch.reorder(n, g, chunk, *outer, block, *spatial[:-1], tile, x, vector, lane)
    task = sch.fuse(n, g, chunk)
    sch.parallel(task)

    sch.compute_at(sum_of_part, tile, preserve_unit_loops=True)
    sx, so, sc, *taps = inner_loops(sch, sum_of_part, window)
    step, unrolled = sch.split(sc, [None, unroll])
    part_vector, part_lane = sch.split(so, [vectors, lanes])
    sch.reorder(*taps, step, unrolled, *steps.held_first(window, sx, part_vector, width < vectors, target), part_lane)
    steps.stage_filter(sch, window, part)
    steps.stage_data(sch, window, None, target)
    sch.annotate(part, PREFETCH_PART, stage_name(FILTER_PACK, i) if window.stages_filter else FILTER)
    for loop in (unrolled, sx, part_vector, x, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.vectorize(part_lane)
    sch.decompose_reduction(sum_of_part, taps[0] if taps else step)
    sch.decompose_reduction(acc, part)
    steps.skip_padding(sch, window, sx, part_lane)
    if window.vnni_factor > 1:
        import_dot(sch, task, window, lanes, target)
    return task if taps_together(window) else phases[-1]


def _tiles_of_rows(
    window: Window, chunks: Options, tiles: Sequence[int], target: CpuTarget
) -> tuple[Options, int, list[int]]:
    """Return chunks, vectors and widths of tiles of a row, where prepacked filters have tiles of the whole image, of one vector.

    There are as many choices as there, each the largest that fits within the one there.
    """
    by_rows = replace(window, whole_image=False)
    vectors = vector_counts(by_rows, target)[0]
    parts = divisors(window.padded_outputs // window.lanes // vectors, chunks[0][-1])
    fitting = widths(by_rows, vectors, target)

    def most(options: Sequence[int], value: int) -> int:
        return max((each for each in options if each <= value), default=min(options))

    options = [most(parts, chunk) for chunk in chunks[0]]
    return (options, most(parts, chunks[1])), vectors, [most(fitting, tile) for tile in tiles]


def _store(sch: Schedule, window: Window, around: LoopRV) -> None:
    """Write a task's outputs when its sums are whole."""
    out = sch.get_sblock(stage_name(OUT, window.index))
    if not window.stores_vectors:
        sch.compute_inline(sch.get_sblock(stage_name(TILE, window.index)))
    sch.reverse_compute_at(out, around, preserve_unit_loops=True)
    *_, x, o = sch.get_loops(out)
    if window.stores_vectors:
        lane = sch.split(o, [None, window.lanes])[1]
        sch.vectorize(lane)
        if window.rounds:
            sch.annotate(lane, ROUND_STORES, 1)
    elif window.problem.data_format == "NCX":
        sch.reorder(o, x)
