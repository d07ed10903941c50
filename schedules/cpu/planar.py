"""Search space of windows whose lanes run along a row, on CPUs: planar layouts, and few output channels.

A tile is some channels by some vectors of a row. Each step of the reduction loads the row's vectors, which
taps shift by one element, and broadcasts a filter element for each channel. A task is some rows of all
channels, or of one group; its channels share the rows' data. Phases of a transposed convolution that are neighbours in
the output are summed in one tile, and leave the registers shuffled into whole vectors.

Measured on one Zen 5 core, percent of its peak (275 GFLOP/s), by

    tvmconv build SIGNATURE --math strict -o B && tvmconv bench B --threads 1

for f32, NCX and OIX: 94 for 1x1, 64 to 256 channels at 56x56; 94 for 1x1, 256 to 256 at 28x28; 79 for 3x3, 3 to 32 at
256x256 (87 prepacked); 77 for 3x3, 256 to 256 in 32 groups at 28x28.
"""

from __future__ import annotations

from math import prod

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tvmconv.algorithms.annotations import INTERLEAVE, PACK, PART, STRIDED, TRANSPOSE
from tvmconv.algorithms.cpu.cost import uneven
from tvmconv.algorithms.cpu.counts import TASK_ROWS
from tvmconv.algorithms.cpu.row_tile import MAX_UNROLLED, channel_counts, shared_rows, task_chunks, vector_counts
from tvmconv.algorithms.cpu.row_window import PlanarWindow
from tvmconv.algorithms.cpu.tasks import TASKS, task_rows
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import ACC, DATA_PAD, DATA_PHASES, FILTER_PACK, OUT, TILE, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.targets.target import CpuTarget


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each number of channels in a tile, the default first."""

    def counts(first: PlanarWindow) -> list[int]:
        """Return what the first window likes best, of what leaves every window registers for a vector."""
        every = definition.windows
        return [
            count
            for count in channel_counts(first, target)
            if all(vector_counts(each, count, target) for each in every)
        ][:3]

    return steps.sketches(sch, definition, target, counts, _schedule)


def _row_bytes(window: PlanarWindow) -> int:
    """Return the bytes of the copies of data that a row of outputs adds."""
    return 4 * window.channels * window.axes[-2].stride * window.axes[-1].extent


def _writes_rows(window: PlanarWindow, target: CpuTarget) -> bool:
    """Whether a block's tiles, which write a plane's row in one piece, follow each other, instead of a tile's blocks.

    Where outputs leave L2 and L1 keeps the row's data for the next block. One core of a Zen 3:
    3 to 32 channels at 640x640 with stride 2 took 3.8 ms, and take 3.0; 3 to 64 at 224x224 2.9, and 2.3; 16 to 32 at 112x112
    with stride 2, whose outputs stay, would take 0.44 instead of 0.42. Not measured with AVX-512.
    """
    axes, problem = window.axes, window.problem
    held = 4 * window.channels * prod(axis.span for axis in axes[:-1]) * axes[-1].extent
    image = 4 * prod(problem.output_shape) // max(problem.batch, 1)
    return "planes_by_rows" in target.costs.pays and held <= target.l1_share and image > 2 * target.l2_share


def _by_blocks(window: PlanarWindow, rows: int, target: CpuTarget) -> bool:
    """Whether a task of so many rows takes them all for a block of channels before the next, of few channels of data.

    Each plane of the output then gets all rows in one piece, and L1 keeps the data for the next block. One
    core of a Zen 4: 2 to 336 channels at 30x30, batch 8, took 2209 us, and take 1012, by AVX2 1735 and 908; 3 to 64 at 112x112 403
    and 396, by AVX2 402 and 407.
    """
    axis = window.axes[-2]
    planes = prod(each.span for each in window.axes[:-2])
    held = ((rows - 1) * axis.stride + axis.span) * planes * window.axes[-1].extent
    return 4 * window.channels * held <= target.l1_share


def _task_tiles(window: PlanarWindow, width: int, tiles: int, tasks: int, target: CpuTarget) -> tuple[list[int], int]:
    """Return how many of a row's `tiles` of `width` outputs a task may have, where each were a task; and the default.

    Their data fills half of L2 at most, and TASKS are left.
    """
    counts, tile_bytes = divisors(tiles, 64), 4 * window.channels * window.axes[-1].stride * width
    fitting = [n for n in counts if n == 1 or (n * tile_bytes <= target.l2_share // 2 and tasks // n >= TASKS)]
    return counts, min(fitting, key=lambda n: (round(uneven(tasks // n), 1), -n))


def _schedule(sch: Schedule, window: PlanarWindow, channels: int, target: CpuTarget) -> None:
    i, lanes, rank = window.index, window.lanes, len(window.axes)
    vectors = vector_counts(window, channels, target)[:4]
    shared = shared_rows(window, vectors[0], target)
    # More rows than usual a task where L1 holds their copies.
    rows, most = task_rows(
        window, shared, max(TASK_ROWS, target.l1_share // 2 // _row_bytes(window)) if rank > 1 else 1
    )
    body = channels * vectors[0] * window.tile_phases
    taps_unrolled = divisors(window.axes[-1].taps, max(1, MAX_UNROLLED // body))[-1]

    acc = sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    n, g, *loops = sch.get_loops(acc)
    phases, spatial, (o, x, c, *taps) = loops[:rank], loops[rank : 2 * rank - 1], loops[2 * rank - 1 :]

    block, channel = sch.split(o, [None, channels])
    tile, vector, lane = sch.split(x, [None, steps.choose(sch, vectors, vectors[0]), lanes])
    step, unrolled = sch.split(taps[-1], [None, taps_unrolled])
    tile_loops = [phases.pop()] if window.interleaves else []
    if rank > 1:
        band, row, tile_row = sch.split(spatial[-1], [None, steps.choose(sch, rows, most), shared])
        order = [row, block, tile] if _writes_rows(window, target) else [row, tile, block]
        if _by_blocks(window, most * shared, target):
            order = [block, row, tile]
        outer, inner = [n, g, *spatial[:-1], band], [*phases, *order]
        tile_loops.insert(0, tile_row)
    else:
        chunks, even = task_chunks(window, channels, vectors[0], target)
        tiles_in_row = window.row // lanes // vectors[0]
        chunk, block = sch.split(block, [steps.choose(sch, chunks, even), None])
        outer, inner = [n, g, tile, chunk], [*phases, block]
        if window.stages_data and not window.panels and even == 1:
            # A task has several tiles, whose overlapping data it copies once.
            tasks = window.problem.batch * window.groups * tiles_in_row
            counts, best = _task_tiles(window, lanes * vectors[0], tiles_in_row, tasks, target)
            outer[2], tile = sch.split(tile, [None, steps.choose(sch, counts, best)])
            inner.insert(-1, tile)
    sch.reorder(*outer, *inner, c, *taps[:-1], step, unrolled, *tile_loops, channel, vector, lane)
    task = sch.fuse(*outer)
    sch.parallel(task)

    if steps.has_block(sch, stage_name(FILTER_PACK, i)):
        *loops, last = sch.get_loops(sch.get_sblock(stage_name(FILTER_PACK, i)))
        sch.parallel(sch.fuse(*loops))
        sch.annotate(last, PACK, 1)
    if window.panels:
        _copy_panel(sch, window, task)
    elif window.stages_data:
        # A task copies what it reads, unless others with other channels read the same: cores then share no cache line.
        _stage(sch, window, task if rank > 1 or even == 1 else None)
    _store(sch, window, inner[-1], lanes)
    sch.vectorize(lane)
    for loop in (*(taps[:-1] if shared > 1 else []), unrolled, *tile_loops, channel, vector):
        sch.unroll(loop)
    sch.decompose_reduction(acc, c)


def _copy_panel(sch: Schedule, window: PlanarWindow, task: LoopRV) -> None:
    """Copy a task's tile of data, by whole vectors."""
    block = sch.get_sblock(stage_name(DATA_PAD, window.index))
    sch.compute_at(block, task, preserve_unit_loops=True)
    sch.vectorize(sch.split(sch.get_loops(block)[-1], [None, window.lanes])[1])


def _stage(sch: Schedule, window: PlanarWindow, task: LoopRV | None) -> None:
    """Copy data, padded: each task its own rows, or all of it first where several would copy the same (`task` None).

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
        # An odd number of cache lines from channel to channel: they lie in all sets of the caches.
        sch.storage_align(block, 0, axis=1, factor=2 * steps.LINE_FLOATS, offset=steps.LINE_FLOATS)
    else:
        n, c, *_ = sch.get_loops(block)
        sch.parallel(sch.fuse(n, c))
    for name in stages[1:]:
        row = sch.get_loops(block)[-3]
        sch.compute_at(sch.get_sblock(name), row, preserve_unit_loops=True)
    # Where tasks cut a row whose last vector overlaps, how many columns a task copies is known only when it runs.
    known = len(window.axes) > 1 or not window.overlaps
    if stages[0].startswith(DATA_PHASES) and window.problem.data_format == "NCX" and known:
        *_, phase, column = sch.get_loops(block)
        if _wide_phases(window, int(sch.get(phase).extent), int(sch.get(column).extent)):
            sch.annotate(phase, STRIDED, 1)


def _wide_phases(window: PlanarWindow, phases: int, columns: int) -> bool:
    """Whether each phase of a copied row has as many columns of data as shuffles take: those of others are copied one by one."""
    axis = window.axes[-1]

    def inside(phase: int) -> int:
        start = axis.lowest + phase
        first = max(0, -(start // axis.stride))
        return min(columns, (axis.inputs - 1 - start) // axis.stride + 1) - first

    return window.problem.dtype == "f32" and all(inside(phase) >= PART for phase in range(phases))


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
