"""Search space of windows whose lanes run across groups, on CPUs: depthwise and small groups.

Every lane has its own data, so nothing is broadcast: a tap costs one filter vector for the tile and one
data vector for each pixel. All taps along the row are unrolled, so that neighbouring pixels, which share
data, load it once; half of the registers are left for that data. Depthwise data is read in place: padding
is skipped, not copied (tvmconv/lowering/cpu/padding.py).

Where whole groups of several channels fill a vector, lanes find those of their group by shuffles of the vector that
holds them (tvmconv/lowering/cpu/shuffles.py), one for each channel of a group but the first. Two multiply-adds start in a cycle,
beside two loads and a shuffle: with 3 taps in a row and 14 sums, 16 shuffled vectors and 3 of the filter serve 42
multiply-adds, so that these are the limit; with stride 2, 29 shuffled vectors.

Measured on one Zen 5 core, percent of its peak (275 GFLOP/s, in bf16 550), by

    tvmconv build SIGNATURE -o B && tvmconv bench B --threads 1

for depthwise 3x3 in f32, NXC and XIO: 35 at 28x28, 256 channels, and at 14x14, 512; 21 with stride 2 to 7x7, 512. Loads
take the time: a vector of data or filter is in 9 multiply-adds at the most. For 32 groups, 3x3, prepacked: f32 79 at
56x56, 128 channels, and 84 at 28x28, 256; bf16 79 and 82, and 55 with stride 2 from 56x56 to 28x28, 256 channels.
"""

from __future__ import annotations

from itertools import product
from math import prod

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tvmconv.algorithms.annotations import SHUFFLE, SKIP, TAPS
from tvmconv.algorithms.cpu.tasks import rows_first, task_cycles, vector_counts
from tvmconv.algorithms.cpu.tile import grouped_widths, reads_in_place
from tvmconv.algorithms.cpu.window import Window
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import ACC, DATA_PAD, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.bf16_dot import import_bf16
from tvmconv.targets.cpus import L1_WAY_BYTES
from tvmconv.targets.target import CpuTarget

MAX_UNROLLED = 128  # multiply-adds in a loop body: 3x3 taps of 14 vectors; more only grows the code
# Of a whole row, of which it is known which taps meet padding: 27 taps of 14 pixels are 196. On two cores of a Zen 4, 512 channels at
# 14x14, 27x27 taps, took 469 us in tiles of 2 by 4 that ask, and take 267 whole.
MAX_UNROLLED_ROW = 256

# Steps of the taps that are taken together: fewer leave more taps to be taken one by one. 31x31 taps of 128 channels at 56x56 took 3570 us
# on two cores of a Zen 4 in steps of 7, and take 2954 in steps of 3.
LEAST_STEPS = 8


LEAST_BANDS = 4  # of rows, where threads share them

LEAST_CHUNK = 64  # channels: four cache lines that lie together; fewer, and prefetching fetches what others use


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each number of vectors of channels in a tile, the default first."""
    return steps.sketches(sch, definition, target, lambda window: _vectors(window, target), _schedule)


def _vectors(window: Window, target: CpuTarget) -> list[int]:
    """Return how many vectors of channels a tile may have, the best first: those whose chunks L1 keeps.

    240 channels, 5x5 taps, are 3 chunks of single vectors, but one of 3 or 5: 34 and 82 us on one core of a Zen 5.
    """
    counts = vector_counts(window, target, grouped_widths)
    if _loads_bound(window, target):
        counts.sort(key=lambda v: _tile_bytes(window, v, target) > target.costs.l1)
    if _is_long(window, counts[0], target):
        counts.sort(key=lambda v: (not _whole_row(window, v, target), -v * max(_tiles(window, v, target)), abs(v - 2)))
    return counts[:3]


def _is_long(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Whether the taps of a row are too many to be unrolled in the tile that is best by the model, of so many vectors."""
    return not window.shuffles and not _unrolls(window, grouped_widths(window, vectors, target)[0], vectors)


def _tiles(window: Window, vectors: int, target: CpuTarget) -> list[int]:
    """Return how many pixels a tile of so many vectors may have, the best first."""
    tiles = grouped_widths(window, vectors, target)
    if not _is_long(window, vectors, target):
        return tiles[:4]
    if _whole_row(window, vectors, target):
        return [window.axes[-1].outputs]
    return sorted(tiles, reverse=True)[:4]


def _whole_row(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Whether a tile may have a row, with all its taps unrolled."""
    outputs = window.axes[-1].outputs
    return outputs in grouped_widths(window, vectors, target) and _unrolls(window, outputs, vectors)


def _unrolls(window: Window, width: int, vectors: int) -> bool:
    """Whether all taps of a row are unrolled in tiles of so many pixels and vectors."""
    axis = window.axes[-1]
    if axis.taps * width * vectors <= MAX_UNROLLED:
        return True
    whole = width == axis.outputs and axis.phases == 1 and (reads_in_place(window) or window.skips_columns)
    return whole and vectors * sum(len(axis.meets(0, tap)) for tap in range(axis.taps)) <= MAX_UNROLLED_ROW


def _schedule(sch: Schedule, window: Window, vectors: int, target: CpuTarget) -> None:
    i, lanes, rank = window.index, window.lanes, len(window.axes)
    tiles = _tiles(window, vectors, target)
    chunks = _chunks(window, vectors)
    height = window.axes[-2].outputs if rank > 1 else 1
    share_rows = rows_first(window, target)
    rows, bands = divisors(height, 64), LEAST_BANDS if share_rows else 1
    likely_rows = [count for count in rows if height // count >= bands] or rows[:1]
    likely = chunks[-1:] if _fewest_channels(window, target) else chunks
    best = min(product(likely, likely_rows), key=lambda cr: task_cycles(window, cr[0], cr[1], tiles[0], target))
    # The taps along the row, whole if they fit, else one by one: lowering takes some of them together.
    taps, unrolls = window.axes[-1].taps, _unrolls(window, tiles[0], vectors)
    together = 0 if unrolls or window.shuffles else _taps_together(window, tiles[0], vectors)
    most = 1 if together else max(1, MAX_UNROLLED // (tiles[0] * vectors))
    taps_unrolled = taps if unrolls else divisors(taps, most)[-1]

    acc = sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    n, g, *loops, o = sch.get_loops(acc)[: 3 + 2 * rank]
    phases, spatial = loops[:rank], loops[rank:]
    *taps, c = sch.get_loops(acc)[3 + 2 * rank :]

    chunk, block, vector, lane = sch.split(o, [steps.choose(sch, chunks, best[0]), None, vectors, lanes])
    tile, x = sch.split(spatial[-1], [None, steps.choose(sch, tiles, tiles[0])])
    step, unrolled = sch.split(taps[-1], [None, taps_unrolled])
    if rank > 1:
        band, row = sch.split(spatial[-2], [None, steps.choose(sch, rows, best[1])])
        shared, within = [*spatial[:-2], band], [row, tile]
    else:
        shared, within = [tile], []
    outer = [n, g, *steps.task_loops(shared, chunk, share_rows)]
    if window.shuffles:
        # A block's filter, of several channels, stays in L1 for all rows.
        inner, reduction = [*phases, block, *within], _shuffled(window, target, [*taps[:-1], step], c)
        sch.reorder(*outer, *inner, *reduction, x, unrolled, vector, lane)
        sch.unroll(c)
    else:
        inner, reduction = [*phases, *within, block], [*taps[:-1], step, c]
        sch.reorder(*outer, *inner, *reduction, unrolled, x, vector, lane)
    task = sch.fuse(*outer)
    sch.parallel(task)

    steps.stage_filter(sch, window)
    inlined = window.stages_data and reads_in_place(window)
    if inlined:
        sch.compute_inline(sch.get_sblock(stage_name(DATA_PAD, i)))
    else:
        steps.stage_data(sch, window, task if rank > 1 else None, target)
    steps.store(sch, window, inner[-1], vectors)
    sch.vectorize(lane)
    for loop in (unrolled, x, vector):
        sch.unroll(loop)
    sch.decompose_reduction(acc, reduction[0])
    if inlined or window.skips_rows or window.skips_columns:
        sch.annotate(lane, SKIP, 1)
    if together:
        sch.annotate(step, TAPS, together)
    if window.shuffles:
        sch.annotate(lane, SHUFFLE, 1)
    if window.rounds:
        import_bf16(sch, task, lanes, target)


def _taps_together(window: Window, width: int, vectors: int) -> int:
    """Return how many taps of a row are taken together: as many as are unrolled, but few beside all, for the rest is taken one by one."""
    return max(1, min(MAX_UNROLLED // (width * vectors), window.axes[-1].taps // LEAST_STEPS))


def _chunks(window: Window, vectors: int) -> list[int]:
    """Return into how many chunks tasks may cut the channels."""
    return divisors(window.padded_outputs // (window.lanes * vectors), max(1, window.padded_outputs // LEAST_CHUNK))


def _loads_bound(window: Window, target: CpuTarget) -> bool:
    """Whether a core that multiplies fast waits for data and filter, which it reads where they lie."""
    return "chunks_in_l1" in target.costs.pays and not window.shuffles and reads_in_place(window)


def _tile_bytes(window: Window, vectors: int, target: CpuTarget) -> int:
    """Bytes of data and filter that a tile reads, of all channels of the smallest chunk: a task takes them before the next tile."""
    axis, width = window.axes[-1], grouped_widths(window, vectors, target)[0]
    columns = (width - 1) * axis.stride + axis.span
    taps = prod(each.taps for each in window.axes)
    channels = window.padded_outputs // _chunks(window, vectors)[-1]
    return 4 * channels * (taps + taps // axis.taps * columns)


def _fewest_channels(window: Window, target: CpuTarget) -> bool:
    """Whether tasks have the fewest channels, whose rows stay in an L1 of 32 KiB from tap to tap.

    One core of a Zen 3, microseconds by the estimate's tasks and by the smallest: 480 channels at 14x14, 3x3 taps, 25 and 21; 240
    at 28x28, 5x5, 168 and 118; 1632 at 12x12, 5x5, 220 and 156. Not where pixels are 1 KiB or more apart by a power of two, so
    that few channels lie in few sets: 256 at 28x28, 3x3, 57 in one part, 66 in 4; nor of dilated rows: 960 at 33x33, 498 in 12, 532
    in 15. One core of a Zen 5, of 12 ways, whatever lies between pixels and rows, in one part, some, and the smallest: 512 at 14x14,
    3x3, 4 parts 10.2, 8 parts 7.7; 256 at 28x28 28.5, 26.1 and 21.2; 576 at 28x28, 5x5, 105, 113 and 80; 960 at 33x33, dilation 2,
    174, 166 and 126.
    """
    if _loads_bound(window, target):
        return len(window.axes) > 1
    adjacent = all(axis.dilation == 1 for axis in window.axes) and 4 * window.pixel % (L1_WAY_BYTES // 4) != 0
    return "small_chunks" in target.costs.pays and not window.shuffles and adjacent


def _shuffled(window: Window, target: CpuTarget, taps: list[LoopRV], c: LoopRV) -> list[LoopRV]:
    """Return the order of a shuffled sum's loops.

    Channels together, LLVM loads data once for all of them. With a stride that is more data than registers hold, and
    loops between the channels keep LLVM from it. Measured on one Zen 5 core, microseconds for 256 channels in 32 groups,
    f32, together and apart: with stride 1 to 28x28, 123 and 151; with stride 2, 214 and 179. Where one load starts in a cycle,
    loads are what such sums wait for, two each where data begins beside a cache line: one core of a Zen 4, stride 2, 329 and
    414, and 382 and 671 so. Of data that is copied, or pairs, neither order is faster.
    """
    loads_bound = "shuffled_taps_first" in target.costs.pays and window.problem.dtype == "f32"
    return [c, *taps] if window.axes[-1].stride > 1 and not loads_bound else [*taps, c]
