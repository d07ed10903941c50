"""Scheduling steps that the CPU spaces share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import Any, TypeVar

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Var

from tvmconv.algorithms.annotations import (
    CUT,
    OVERLAP,
    PACK,
    PART,
    ROUND_STORES,
    SKIP,
    SOME_INSIDE,
    TAP_COLUMNS,
    TO_PIXELS,
    TO_PIXELS_IF_WHOLE,
    TO_PLANES_IF_WIDE,
    TRANSPOSE,
    TRANSPOSED_LANES,
    UNREAD,
    copy_of_filter,
)
from tvmconv.algorithms.cpu.model.cost import imbalance
from tvmconv.algorithms.cpu.windows.data import copies_groups
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.pairs import adds_products, filter_in_pairs
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import ACC, DATA_PAD, FILL, FILTER_PACK, FILTER_SUMS, OUT, TILE, stage_name
from tvmconv.targets.cpus import L1_WAY_BYTES
from tvmconv.targets.target import CpuTarget

# Windows of one algorithm, and their plans.
W = TypeVar("W")
P = TypeVar("P")
LINE_FLOATS = 16  # a cache line
# Rows of a filter that is read by whole rows, or pairs of them: lines of 8 that lie a multiple of 4 KiB apart fit an L1.
ROWS = 4


def choose(sch: Schedule, values: Sequence[int], default: int) -> Var:
    """Sample one of `values`, with equal probabilities; `default` with zero trials."""
    even = 1.0 / len(values)
    return sch.sample_categorical(list(values), [even] * len(values), decision=list(values).index(default))


def sum_in_registers(sch: Schedule, window: Window, stage: str = ACC) -> tuple[SBlockRV, Any, Any, Any]:
    """Keep a stage's sums in registers; return its block and its loops: images and groups; phases, space and outputs; the sum's."""
    block, rank = sch.get_sblock(stage_name(stage, window.index)), len(window.axes)
    sch.set_scope(block, 0, "local")
    n, g, *loops = sch.get_loops(block)
    phases, spatial, (o, *summed) = loops[:rank], loops[rank : 2 * rank], loops[2 * rank :]
    return block, (n, g), (phases, spatial, o), summed


def sketches(
    sch: Schedule,
    definition: Definition,
    target: CpuTarget,
    counts: Callable[[W], Sequence[int]],
    schedule: Callable[[Schedule, W, int, CpuTarget], None],
) -> list[Schedule]:
    """Return `schedule`'s schedules of all windows, one for each of the first window's `counts`, the default first."""
    made = []
    for count in counts(definition.windows[0]):
        sketch = sch.copy()
        choose(sketch, [count], count)  # no choice, but it identifies the sketch in records
        fill(sketch)
        for window in definition.windows:
            schedule(sketch, window, count, target)
        made.append(sketch)
    return made


def schedule_plans(
    sch: Schedule,
    definition: Definition,
    target: CpuTarget,
    schedule: Callable[[Schedule, W, P, CpuTarget], None],
    by: str = "vectors",
) -> list[Schedule]:
    """Return `schedule`'s schedules of all windows, one for each of their plans, the default first; the number `by` identifies a plan in records."""

    def by_plan(sketch: Schedule, window: Any, count: int, target: CpuTarget) -> None:
        schedule(sketch, window, next(plan for plan in window.plans if getattr(plan, by) == count), target)

    return sketches(sch, definition, target, lambda first: [getattr(plan, by) for plan in first.plans], by_plan)


def has_block(sch: Schedule, name: str) -> bool:
    """Return whether the function has a block of this name."""
    return any(str(sch.get(block).name_hint) == name for block in sch.get_child_blocks(sch.get_sblock("root")))


def vectorize_last(sch: Schedule, loop: LoopRV, lanes: int) -> None:
    """Vectorize the innermost loop by the largest power of two up to `lanes` that divides it."""
    extent = int(sch.get(loop).extent)
    width = min(lanes, extent & -extent) if extent else 1
    if width > 1:
        sch.vectorize(sch.split(loop, [None, width])[1])


def task_loops(rows: Sequence[LoopRV], chunk: LoopRV, rows_first: bool) -> list[LoopRV]:
    """Return the loops of tasks, those over `rows` and over the chunks of channels, the ones that threads share first."""
    return [*rows, chunk] if rows_first else [chunk, *rows]


def offer_axis(sch: Schedule, axis: str, *loops: LoopRV, again: int = 0) -> None:
    """Let calls of many threads cut tasks along the loops of an axis, each of which has a piece of it in an iteration, or in several.

    A piece costs as many more as `again` says, beside what it stores again.
    """
    extents = [int(sch.get(loop).extent) for loop in loops]
    pieces = min(extents)
    if pieces > 1 and all(extent % pieces == 0 for extent in extents):
        for number, loop in enumerate(loops):
            sch.annotate(loop, CUT, f"{axis} {again}" if again and number == 0 else axis)


def offer_each(sch: Schedule, loops: Sequence[LoopRV]) -> None:
    """Let calls of many threads cut tasks along each of some loops, one within the other, around all of a task's work."""
    for number, loop in enumerate(loops):
        offer_axis(sch, f"loop{number}", loop)


def offer_outermost(sch: Schedule, loops: Sequence[LoopRV]) -> None:
    """Let calls of many threads cut tasks along the outermost of some loops: a condition in the inner ones would take their registers."""
    offer_each(sch, [loop for loop in loops if int(sch.get(loop).extent) > 1][:1])


def fill(sch: Schedule) -> None:
    """Fill the output with the bias, in parallel, where the definition does."""
    if not has_block(sch, FILL):
        return
    block = sch.get_sblock(FILL)
    loops = sch.get_loops(block)
    vectorize_last(sch, loops[-1], 16)
    sch.parallel(sch.fuse(*sch.get_loops(block)[: len(loops) - 1]))


def stage_filter(sch: Schedule, window: Window, part: LoopRV | None = None) -> None:
    """Pack the filter once, in parallel over groups and blocks of channels, or the part that each iteration of `part` uses."""
    if window.sums_filter:
        sum_filter(sch, window)
    if not window.stages_filter:
        return
    if window.packs_parts and part is not None:
        _pack_part(sch, window, part)
        return
    block = sch.get_sblock(stage_name(FILTER_PACK, window.index))
    group, channels, *taps, c, vector, lane = sch.get_loops(block)
    if window.problem.filter_format == "OIX":
        # Taps are contiguous in the filter: one pass over c then reads each of its cache lines once.
        vector = _by_taps(sch, window, vector, c, taps, lane)
        sch.parallel(sch.fuse(group, channels, vector))
    elif window.sums_lie_together:
        sch.parallel(sch.fuse(group, channels, *taps))
        sch.reorder(vector, c, lane)
    elif window.large or window.vnni_factor > 1:
        # Some rows at a time, each read whole.
        rows, row = sch.split(c, [None, divisors(window.channels, ROWS)[-1]])
        sch.reorder(*taps, rows, group, channels, row)
        sch.parallel(sch.fuse(*taps, rows))
    else:
        sch.parallel(sch.fuse(group, channels, *taps))
    sch.vectorize(lane)
    sch.annotate(lane, PACK, 1)
    transpose_filter(sch, window, c)


def held_first(window: Window, x: LoopRV, vector: LoopRV, few: bool, target: CpuTarget) -> list[LoopRV]:
    """Return the loops of a tile's pixels and vectors: of `few` pixels, data stays in registers, and the filter passes through one.

    Not where products take a register, too: LLVM then reorders sums, and spills them.
    """
    return [vector, x] if few and not adds_products(window.problem, window.vnni_factor, target) else [x, vector]


def packed_filter(window: Window) -> str:
    """Return how PREFETCH and PREFETCH_NEXT name the packed filter."""
    return copy_of_filter(stage_name(FILTER_PACK, window.index), 3)


def _pack_part(sch: Schedule, window: Window, block: LoopRV) -> None:
    """Copy the part of the filter that an iteration of `block` uses, in the filter's order."""
    part = sch.get_sblock(stage_name(FILTER_PACK, window.index))
    sch.compute_at(part, block, preserve_unit_loops=True)
    channels, *taps, c, vector, lane = sch.get_loops(part)[-(2 * len(window.axes) + 4) :]
    rows = prod(int(sch.get(loop).extent) for loop in (*taps, c))
    if 4 * rows * window.lanes % L1_WAY_BYTES == 0:
        # A row would be copied to one set of L1 alone.
        sch.storage_align(part, 0, axis=1, factor=L1_WAY_BYTES // 4, offset=LINE_FLOATS)
    if window.problem.filter_format == "OIX":
        sch.reorder(channels, vector)
        _by_taps(sch, window, vector, c, taps, lane)
    elif window.sums_lie_together:
        sch.reorder(channels, *taps, vector, c, lane)
    else:
        # A line of each vector at a time, as the lines that are written are in few sets of L1.
        together = gcd(LINE_FLOATS // window.lanes, window.channels)
        c, *row = sch.split(c, [None, together]) if together > 1 else (c,)
        sch.reorder(*taps, c, channels, *row, vector, lane)
    sch.vectorize(lane)
    transpose_filter(sch, window, c)


def sum_filter(sch: Schedule, window: Window) -> None:
    """Sum the filter once, by vectors of output channels."""
    block = sch.get_sblock(stage_name(FILTER_SUMS, window.index))
    rank = len(window.axes)
    *outer, o = sch.get_loops(block)[: 2 + rank]
    taps = sch.get_loops(block)[2 + rank :]
    vector, lane = sch.split(o, [None, window.lanes])
    sch.reorder(*outer, vector, *taps, lane)
    sch.parallel(sch.fuse(*outer, vector))
    sch.vectorize(lane)
    clear = sch.decompose_reduction(block, taps[0])
    # With a single vector, both are stages of their own.
    for loop in (sch.get_loops(clear)[-1], lane):
        sch.annotate(loop, PACK, 1)


def transpose_filter(sch: Schedule, window: Window, c: LoopRV) -> None:
    """Copy by squares if the channels of the loop `c`, around the lanes, are contiguous in the filter."""
    whole = window.channels >= PART and window.stored == window.padded_outputs
    # Squares are of elements of 32 bits.
    paired = window.vnni_factor == 1 or (window.vnni_factor == 2 and filter_in_pairs(window.problem))
    if window.sums_lie_together and paired and whole and not window.problem.is_quantized:
        sch.annotate(c, TRANSPOSE, TO_PIXELS)


def _by_taps(sch: Schedule, window: Window, vector: LoopRV, c: LoopRV, taps: Sequence[LoopRV], lane: LoopRV) -> LoopRV:
    """Copy a vector of output channels whose taps are contiguous in the filter; return the loop around parts of them."""
    if not window.taps_are_columns:
        sch.reorder(vector, c, *taps, lane)
        if window.taps_lie_together:
            sch.annotate(sch.fuse(*taps), TAP_COLUMNS, 1)
        return vector
    few, c = sch.split(c, [None, divisors(int(sch.get(c).extent), LINE_FLOATS)[-1]])
    sch.reorder(vector, few, c, *taps, lane)
    if columns := taps_as_columns(sch, window, c, taps):
        sch.annotate(columns, TRANSPOSE, TO_PIXELS)
    return sch.fuse(vector, few)


def taps_as_columns(sch: Schedule, window: Window, c: LoopRV, taps: Sequence[LoopRV]) -> LoopRV | None:
    """Fuse the contiguous axes of the filter: channels and all taps, or one channel's last ones, if they fill a square."""
    kernel = window.problem.kernel
    extents = [int(sch.get(loop).extent) for loop in taps][-len(kernel) :]
    if extents == list(kernel):
        return sch.fuse(c, *taps) if int(sch.get(c).extent) * prod(kernel) >= PART else None
    first = next((axis for axis, extent in enumerate(extents) if extent > 1), len(extents))
    together = extents[first:] == list(kernel[first:]) and prod(extents) >= PART
    return sch.fuse(*taps) if together else None


def stage_data(sch: Schedule, window: Window, task: LoopRV | None, target: CpuTarget, parts: bool = False) -> None:
    """Copy padded data: each task its own rows, or all of it first (`task` None: one spatial axis, whose tiles overlap).

    With `parts`, threads share the only row's pixels as they share those of its tiles, where it is long enough for that.
    """
    if not window.stages_data:
        return
    block = sch.get_sblock(stage_name(DATA_PAD, window.index))
    if task is not None:
        sch.compute_at(block, task, preserve_unit_loops=True)
    spread_pixels(sch, block, window)
    column = sch.get_loops(block)[-2]
    count = _parts_of_copy(int(sch.get(column).extent)) if parts else 1
    if count > 1:
        sch.split(column, [count, None])
    column = by_pixels(sch, block, window, target)
    if window.skips_rows:
        sch.annotate(column, UNREAD, 1)
    if task is None:
        sch.parallel(sch.fuse(*sch.get_loops(block)[: 2 + copies_groups(window)]))


def _parts_of_copy(pixels: int) -> int:
    """Return into how many parts of a line or more a row is cut for its copy, which threads share best."""
    return min(
        (count for count in divisors(pixels, pixels) if pixels // count >= LINE_FLOATS), key=imbalance, default=1
    )


def by_pixels(sch: Schedule, block: SBlockRV, window: Window, target: CpuTarget) -> LoopRV:
    """Copy data by vectors of a pixel's channels; return the loop over columns."""
    *_, column, channel = sch.get_loops(block)
    full, columns = min(target.vector_bits // 32, window.most_lanes), int(sch.get(column).extent)
    if window.problem.data_format == "NCX" and not window.expands and columns > 1:
        # Channels are planes of data: copy a row's columns of a few of them.
        channels = int(sch.get(channel).extent)
        lanes = next((lanes for lanes in TRANSPOSED_LANES if lanes <= full and channels % lanes == 0), 0)
        gaps = window.column_gap > 1
        transposes = lanes and window.whole_elements and not gaps
        few, channel = sch.split(channel, [None, lanes if transposes else divisors(channels, LINE_FLOATS)[-1]])
        sch.reorder(few, column, channel)
        if transposes:
            # Columns of a row that a task copies may be a decision.
            sch.annotate(column, TRANSPOSE, TO_PIXELS_IF_WHOLE)
    if lanes := _overlapping(window, int(sch.get(channel).extent), full):
        sch.annotate(channel, OVERLAP, lanes)
    else:
        vectorize_last(sch, channel, full)
    return column


def _overlapping(window: Window, channels: int, most: int) -> int:
    """Return the lanes of vectors of a pixel's channels, the last of which overlaps another; 0 if they divide, or are not contiguous.

    A group's channels are not contiguous with its next pixel's, so LLVM makes no longer vectors of them.
    """
    together = window.problem.data_format == "NXC" and window.channels_in_filter and window.most_lanes >= channels
    alike = window.whole_elements and not window.expands and channels in (window.channels, window.pixel)
    lanes = min(most, 1 << channels.bit_length() - 1)
    return lanes if together and alike and channels % lanes else 0


def skip_padding(sch: Schedule, window: Window, x: LoopRV, lane: LoopRV) -> None:
    """Skip products with padding, in sums whose innermost loop is `lane` and that have the pixels `x`."""
    if window.skips_rows or window.skips_columns:
        sch.annotate(lane, SKIP, 1)
    if window.skips_columns:
        sch.annotate(x, SOME_INSIDE, 1)


def spread_pixels(sch: Schedule, block: SBlockRV, window: Window) -> None:
    """Put a cache line between the pixels of a copy of data where they would share one or two sets of L1.

    Of two sets, a tile's pixels leave no lines for the filter.
    """
    if window.spread:
        sch.storage_align(block, 0, axis=-2, factor=2 * LINE_FLOATS, offset=LINE_FLOATS)
    elif not window.expands:
        pixel = int(sch.get(sch.get_loops(block)[-1]).extent)  # of a task's copy: of its group alone
        if 4 * pixel * window.axes[-1].stride % (L1_WAY_BYTES // 2) == 0:
            sch.storage_align(block, 0, axis=-2, factor=pixel, offset=LINE_FLOATS)


def store(sch: Schedule, window: Window, tile: LoopRV, vectors: int) -> None:
    """Write a tile's outputs from the accumulators, by vectors where the layout has channels contiguous."""
    out = sch.get_sblock(stage_name(OUT, window.index))
    if window.stores_vectors:
        sch.reverse_compute_at(out, tile, preserve_unit_loops=True)
        _by_vectors(sch, window, out, vectors)
        return
    # Left-over lanes or strided channels: the accumulators leave the registers by vectors.
    copy = sch.get_sblock(stage_name(TILE, window.index))
    # Element by element from an array of its own: TVM would give a local one the memory of the sums, and LLVM keeps no sums in
    # registers that are read at indices known only at run time.
    if window.stores_planes:
        sch.set_scope(copy, 0, "local")
    sch.reverse_compute_at(copy, tile, preserve_unit_loops=True)
    _by_vectors(sch, window, copy, vectors)
    sch.reverse_compute_at(out, tile, preserve_unit_loops=True)
    if window.problem.data_format == "NCX":
        *_, x, o = sch.get_loops(out)
        sch.reorder(o, x)
        if window.stores_planes:
            sch.annotate(o, TRANSPOSE, TO_PLANES_IF_WIDE)


def _by_vectors(sch: Schedule, window: Window, block: object, vectors: int) -> None:
    *_, row, x, o = sch.get_loops(block)
    vector, lane = sch.split(o, [vectors, window.lanes])
    if window.whole_image:
        sch.unroll(row)
    sch.unroll(x)
    sch.unroll(vector)
    sch.vectorize(lane)
    if window.rounds and window.stores_vectors:
        sch.annotate(lane, ROUND_STORES, 1)
