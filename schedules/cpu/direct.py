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

from dataclasses import dataclass
from itertools import product
from math import gcd, prod

from tvm.s_tir import Schedule

from tvmconv.algorithms.annotations import PREFETCH, PREFETCH_NEXT, RELOAD
from tvmconv.algorithms.cpu.cost import uneven
from tvmconv.algorithms.cpu.tile import LEAST_GAIN, tile_cycles, widths
from tvmconv.algorithms.cpu.window import FEW_PIXELS, Window
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import ACC, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.bf16_dot import import_bf16
from tvmconv.schedules.cpu.direct_parts import reduce_by_parts
from tvmconv.schedules.cpu.model import TASKS, rows_first, shared_loops, task_cycles, vector_counts
from tvmconv.targets.target import CpuTarget

# LLVM unrolls sums of so few products, and loads all data of a tile before it goes from one block of channels to the next:
# into memory, for there are no such registers. 1 to 512 channels with 10 taps took 94 loads of them for 120 multiply-adds,
# and 778 us on one core of a Zen 3; block by block, 505. With 3 products that is 1.5 times slower: all are stores.
SHORT_SUMS = range(4, 13)
# Longer ones of one channel it unrolls by two taps or more. 12 sums beside the data that these share do not fit 16 registers:
# 1 to 64 channels with 25, 64 and 101 taps took 265, 507 and 1170 us on one core of a Zen 3, and take 147, 347 and 619
# where data is read again. 10 sums fit: 16 taps took 89, and would take 102.
MOST_SHARED_SUMS = 10
# Products of an element of data up to which tasks copy their own parts. One core of a Zen 3, milliseconds with one copy and by
# parts: 384 to 24 channels, 3 taps with stride 2, 8000 pixels (36 products) 4.3 and 3.0, with plain filters 4.3 and 3.4; 192 to
# 96, 5 taps with stride 2, 4000 pixels (240) 4.8 and 4.7, and 4.4 and 4.6; 80 to 384, 3 taps, 3000 pixels (1152) 6.5 and 6.2, and
# 6.3 and 6.6.
MOST_COPIED_PRODUCTS = 128
# Of output channels. 25 blocks of 1000 classes in 5 chunks leave one of two threads three: 1024 to 1000 channels, 16 pixels, took
# two cores of a Zen 4 176 us, and take 153 in 25; four pixels 49.3 and 43.7.
MOST_CHUNKS = 32


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
        tasks = _tasks(window, vectors, widths(window, vectors, target)[:4], target)
        pixels = tasks.rows if len(window.axes) > 1 else tasks.parts
        has_all = tap_by_tap or window.whole_image  # a task of prepacked filters
        reduce_by_parts(sch, window, vectors, tasks.chunks, None if has_all else pixels, target)
    elif tap_by_tap:
        _reduce_tap_by_tap(sch, window, vectors, target)
    else:
        _reduce_in_registers(sch, window, vectors, target)


def _is_deep(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Whether the filter of a tile's channels leaves L2 before the next tile uses it.

    One tap's stays. Sums in memory are worth it where 8 rows or more use the filter.
    """
    one_tap = 4 * window.channels * vectors * window.lanes
    taps = prod(axis.taps for axis in window.axes)
    rows = prod(axis.outputs for axis in window.axes[:-1])
    simple = len(window.axes) > 1 and all(axis.phases == 1 for axis in window.axes)
    return simple and one_tap <= target.l2_share < one_tap * taps / 2 and rows >= 8


def _reloads(window: Window, sums: int, target: CpuTarget) -> bool:
    """Whether taps are to read their data again: LLVM would keep what they share of it beside too many sums.

    Where a sum is a long loop over taps alone, each of which reads for an output what another one read for its neighbour.
    """
    axis = window.axes[-1]
    alone = len(window.axes) == 1 and window.channels == 1 and axis.phases == 1
    shares = alone and axis.taps >= SHORT_SUMS.stop and axis.dilation % axis.stride == 0
    return shares and sums > MOST_SHARED_SUMS and "reread_data" in target.costs.pays


def _groups_together(window: Window, target: CpuTarget) -> bool:
    """Whether tasks take all groups of a few pixels before the next: their channels share cache lines, and pass by once.

    Where L2 keeps all groups' filters. One core of a Zen 3: 128 to 640 channels in 8 groups, three taps, 8000
    outputs 9763 us group after group and 6384 together, 256 to 256 in 4 at 112x112 7463 and 5746, in 8 at 56x56 647 and 607.
    """
    filters = 4 * prod(window.problem.filter_shape)
    return window.groups > 1 and window.problem.data_format == "NXC" and filters <= target.l2_share // 2


def _copied_at_once(target: CpuTarget) -> int:
    """Return up to how many bytes of the filter a task copies as one part, so that pieces of its rows are long.

    What L2 keeps; with 16 registers more, for which L3 is hardly slower (tile.FROM_L3). One core of a
    Zen 3, 49 pixels, 1024 to 4096 channels, microseconds by pieces of 64 bytes and of 1 KiB: 7246 and 6272; 4096 to 1024: 7560
    and 5493. With AVX-512 that is not measured.
    """
    return 2 * target.l2 if "large_filter_parts" in target.costs.pays else target.l2_share


def _images(window: Window) -> int:
    """Return of how many images a task has the row, until it has more than a few pixels."""
    counts = divisors(window.problem.batch, window.problem.batch)
    return next((count for count in counts if count * window.row >= FEW_PIXELS), max(counts, default=1))


def _row_parts(window: Window, tiles: list[int]) -> tuple[list[int], int]:
    """Return into how many parts of whole tiles, whatever their width, a row may be cut for tasks, and the default."""
    counts = divisors(gcd(*(window.row // tile for tile in tiles)), window.row)
    few = [count for count in counts if window.row // count >= FEW_PIXELS // 4] or [1]
    return few, max((count for count in few if window.row // count >= FEW_PIXELS), default=1)


def _pixel_parts(window: Window, tiles: list[int], target: CpuTarget) -> int:
    """Return into how many parts of whole tiles, whatever their width, threads share the only row of planes; 1: they share channels."""
    if len(window.axes) > 1 or window.problem.data_format == "NXC":
        return 1
    counts = divisors(gcd(*(window.row // tile for tile in tiles)), window.row)
    return max((count for count in counts if rows_first(window, target, count)), default=1)


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


@dataclass(frozen=True)
class _Tasks:
    """How a window is cut into tasks: what may be chosen, and the default, which costs least.

    Attributes
    ----------
    chunks, rows
        Parts of the output channels; rows of a task, 1 where there is one axis.
    by_phase
        Whether a task has one phase: the filter of all of them leaves L2 before the next rows use it.
    by_blocks
        Whether a task takes all its tiles of a block of channels before the next block. Of one axis it has then a part of
        the row, one of `parts`, of `images` images; else a tile.
    copies_parts
        Whether a task copies its part of data.
    pixel_parts
        Into how many parts threads share the only row, of planes, before channels; 1: they share channels.
    """

    chunks: tuple[list[int], int]
    rows: tuple[list[int], int]
    by_phase: bool
    by_blocks: bool
    parts: tuple[list[int], int]
    images: int
    copies_parts: bool
    pixel_parts: int


def _copied_parts(window: Window, parts: list[int], target: CpuTarget) -> int:
    """Return into which of the numbers of `parts` a row is cut where tasks copy their parts of data; 0: it is copied before.

    Where no L2 keeps the copy of all of it, and few products use an element: but half of a cache keeps a part,
    and threads find a share. Not of pixels copied together, which are read once, nor with AVX-512: four layers took 0.99 to 1.01 of
    the time on one core of a Zen 4. Of tiles that are shifted, TVM finds no part's extent.
    """
    axis, problem = window.axes[-1], window.problem
    measured = "data_parts" in target.costs.pays and problem.data_format == "NXC" and problem.groups == axis.phases == 1
    one_row = len(window.axes) == 1 and axis.taps > 1 and window.stages_data and not window.tile
    few = window.padded_outputs * axis.taps <= MOST_COPIED_PRODUCTS * axis.stride
    size = 4 * axis.extent * window.pixel
    if not (measured and one_row and few and size > target.l2):
        return 0
    return min((count for count in parts if count >= TASKS and size // count <= target.l2 // 2), key=uneven, default=0)


def _tasks(window: Window, vectors: int, tiles: list[int], target: CpuTarget) -> _Tasks:
    """Return the tasks of a window, of a tile of so many `vectors` of channels by one of `tiles` pixels."""
    rank, block = len(window.axes), vectors * window.lanes
    chunks = divisors(window.padded_outputs // block, MOST_CHUNKS)
    rows = divisors(window.axes[-2].outputs, 64) if rank > 1 else [1]
    if window.whole_image:
        rows = rows[-1:]
    short = rank == 1 and window.products in SHORT_SUMS and window.padded_outputs > block
    parts, default_parts = _row_parts(window, tiles)
    copied = _copied_parts(window, parts, target)
    by_blocks = window.by_blocks or window.packs_parts or short or copied > 0
    width, images = (window.row // default_parts, _images(window)) if by_blocks else (tiles[0], 1)
    best_chunks, best_rows, by_phase = min(
        product(chunks, rows, (False,) if window.whole_image else (False, True)),
        key=lambda way: task_cycles(window, way[0], way[1], width, target, way[2], images),
    )
    if copied:
        default_parts, best_chunks = copied, 1
    elif window.packs_parts and window.reads_rows and "filter_parts" in target.costs.pays:
        size = 4 * window.products * window.padded_outputs
        fitting = (count for count in chunks if count >= best_chunks and size // count <= _copied_at_once(target))
        best_chunks = next(fitting, best_chunks)
    # One where there is no choice, unless LLVM would unroll the sums.
    elif not (window.large or short):
        default_parts = 1
    pixel_parts = 1 if copied else _pixel_parts(window, tiles, target)
    if pixel_parts > 1 and by_blocks:
        default_parts = pixel_parts
        parts = [*parts, default_parts] if default_parts not in parts else parts
    return _Tasks(
        (chunks, best_chunks),
        (rows, best_rows),
        by_phase,
        by_blocks,
        (parts, default_parts),
        images,
        copied > 0,
        pixel_parts,
    )


def _reduce_in_registers(sch: Schedule, window: Window, vectors: int, target: CpuTarget) -> None:
    """A task is some rows of some output channels, or a part of the only row: a tile's sums stay in registers until they are whole."""
    i, lanes, rank = window.index, window.lanes, len(window.axes)
    tiles = widths(window, vectors, target)[:4]
    tasks = _tasks(window, vectors, tiles, target)
    # Up to 4 channels a step: 112 multiply-adds of a full tile, and four uses of a data cache line before the next.
    unrolls = divisors(window.channels, 4)

    acc = sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    n, g, *loops, o = sch.get_loops(acc)[: 3 + 2 * rank]
    phases, spatial = loops[:rank], loops[rank:]
    *taps, c = sch.get_loops(acc)[3 + 2 * rank :]

    chunk, block, vector, lane = sch.split(o, [steps.choose(sch, *tasks.chunks), None, vectors, lanes])
    tile, x = sch.split(spatial[-1], [None, steps.choose(sch, tiles, tiles[0])])
    step, unrolled = sch.split(c, [None, steps.choose(sch, unrolls, unrolls[-1])])
    tile_rows = []
    if window.whole_image:
        outer, inner, tile_rows = [n, g, chunk, *spatial[:-2]], [*phases, block, tile], [spatial[-2]]
        sch.unroll(taps[-2])
    elif rank > 1:
        band, row = sch.split(spatial[-2], [None, steps.choose(sch, *tasks.rows)])
        task_phases, phases = (phases[:-1], phases[-1:]) if tasks.by_phase else ([], phases)
        rows = [*task_phases, *spatial[:-2], band]
        bands = window.axes[-2].outputs // tasks.rows[1]
        outer, inner = [n, g, *shared_loops(window, target, rows, chunk, bands)], [*phases, block, row, tile]
    else:
        # Plain and prepacked filters have the same choices, whether both are taken by blocks or one.
        parts = steps.choose(sch, *tasks.parts) if window.large else tasks.parts[1]
        inner = [*phases, block]
        if tasks.by_blocks:
            n, image = sch.split(n, [None, tasks.images])
            part, tile = sch.split(tile, [parts, None])
            shared = [part, chunk] if tasks.pixel_parts > 1 else [chunk, part]
            outer, inner = [n, g, *shared], [*inner, image, tile]
        elif _groups_together(window, target):
            outer = [n, tile, g, chunk]
        elif tasks.pixel_parts > 1:
            part, tile = sch.split(tile, [tasks.pixel_parts, None])
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

    filter_bytes = 4 * window.products * window.padded_outputs // tasks.chunks[1]
    at_once = window.reads_rows and filter_bytes <= _copied_at_once(target)
    steps.stage_filter(sch, window, task if at_once else block)
    # A copy of planar data takes an element at a time: one for all tasks where several use the same.
    planar = window.problem.data_format == "NCX" and tasks.chunks[1] > 1
    once = (rank == 1 and not tasks.copies_parts) or window.whole_image or planar or window.copied_once
    steps.stage_data(sch, window, None if once else task, target, tasks.pixel_parts > 1)
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
    if _reloads(window, tiles[0] * vectors, target):
        sch.annotate(taps[0], RELOAD, 1)
    if window.vnni_factor == 2:
        import_bf16(sch, task, lanes, target)
