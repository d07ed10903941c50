"""Search space of windows cut into tiles of AMX.

A task is a band of rows of one part of the output channels. It copies its rows of data, padded, and goes over blocks of
tiles: two by two tiles of sums stay in registers while all taps and channels are added, 16 pixels of 32 channels by 32
channels of 16 outputs in an instruction (tvmconv/lowering/cpu/rewrites/tiles.py). Then they are stored as f32, rounded, and written.

Its hot loop is four loads of tiles and four multiplications: 64 cycles of the multiplications, in which loads from L1
take 40, and from L2 up to 100. The work around it costs as much at 64 channels: a copy of data, and stores
of sums, each through memory.

For f32 and f16, split in two terms, it is ten loads and twelve multiplications: first by first, first by second, second by first,
each over all sums, because a multiplication waits for the one before that adds to its sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from tvmconv.algorithms.annotations import (
    COLUMNS,
    CONFIGURE,
    LANES,
    PACK,
    PAIRS,
    ROLE,
    ROUND_STORES,
    ROWS,
    TILES,
    TO_PLANES_IF_WIDE,
    TRANSPOSE,
    VECTORS,
)
from tvmconv.algorithms.cpu.amx_cost import best_cut, chunk_counts
from tvmconv.algorithms.cpu.amx_window import AmxWindow
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.pairs import line_rounding_text
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import ACC, DATA_PAD, FILTER_PACK, OUT, TILE, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.dots import import_round
from tvmconv.targets.target import CpuTarget

PIXELS_FIRST, OUTPUTS_FIRST = 0, 1


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return a schedule for each order of blocks: all of the pixels for some outputs, or all outputs for some pixels."""
    return steps.sketches(sch, definition, target, lambda window: _orders(window, target), _schedule)


def _orders(window: AmxWindow, target: CpuTarget) -> tuple[int, int]:
    """Return the orders, the better first."""
    return (PIXELS_FIRST, OUTPUTS_FIRST) if best_cut(window, target).pixels_first else (OUTPUTS_FIRST, PIXELS_FIRST)


def _schedule(sch: Schedule, window: AmxWindow, order: int, target: CpuTarget) -> None:
    i, rank, outer = window.index, len(window.axes), len(window.outer)
    chunks = chunk_counts(window.output_blocks)

    acc = sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    n, g, *loops = sch.get_loops(acc)
    phases, band, z, rest = loops[:rank], loops[rank], loops[rank + 1 : rank + 1 + outer], loops[rank + 1 + outer :]
    pixels, tile, row, outputs, vector, lane, *taps, step, pair = rest
    chunk, outputs = sch.split(outputs, [steps.choose(sch, chunks, best_cut(window, target).chunks), None])
    blocks = [outputs, *z, pixels] if order == PIXELS_FIRST else [*z, pixels, outputs]
    parts = [g, chunk, n, band] if window.chunks_first else [n, g, band, chunk]
    sch.reorder(*parts, *phases, *blocks, *taps, step, tile, row, vector, lane, pair)
    task = sch.fuse(*parts)
    sch.parallel(task)

    _stage_filter(sch, window)
    _stage_data(sch, window, task, target)
    copy, out = sch.get_sblock(stage_name(TILE, i)), sch.get_sblock(stage_name(OUT, i))
    sch.set_scope(copy, 0, "local")
    for block in (copy, out):
        sch.reverse_compute_at(block, blocks[-1], preserve_unit_loops=True)
    init = sch.decompose_reduction(acc, taps[0])
    mark(sch, [tile, row, vector, lane, pair], (TILES, ROWS, VECTORS, LANES, PAIRS))
    mark(sch, sch.get_loops(init)[-4:], (TILES, ROWS, VECTORS, LANES))
    mark(sch, _tile_loops(sch.get_loops(copy)), (TILES, ROWS, VECTORS, LANES))
    *_, out_vector, out_lane = sch.get_loops(out)
    lanes, rounds = window.lanes_stored, window.problem.dtype == "bf16"
    if window.problem.data_format == "NXC" and lanes > 1:
        if not window.shifted and window.block[1] % 2 == 0 and window.line_channels == 2 * lanes:  # whole lines
            lanes = window.line_channels
            out_vector, out_lane = sch.split(sch.fuse(out_vector, out_lane), [None, lanes])
        sch.unroll(out_vector)
        sch.vectorize(out_lane)
        if rounds:
            sch.annotate(out_lane, ROUND_STORES, 1)
    if window.stores_planes:
        _, row, vector, lane = _tile_loops(sch.get_loops(out))
        sch.reorder(vector, lane, row)
        sch.annotate(lane, TRANSPOSE, TO_PLANES_IF_WIDE)
    sch.annotate(task, CONFIGURE, 1)
    if rounds and lanes == window.line_channels:
        assert target.isa.tiles is not None
        sch.annotate(task, "pragma_import_llvm", line_rounding_text(target.isa.tiles.round_line))
    elif rounds:
        import_round(sch, task, lanes)


def _tile_loops(loops: Sequence[LoopRV]) -> list[LoopRV]:
    """Return the loops over a block's tiles, their rows, tiles of outputs and lanes, without that over blocks of outputs."""
    *_, tile, row, _, vector, lane = loops
    return [tile, row, vector, lane]


def mark(sch: Schedule, loops: Sequence[LoopRV], roles: Sequence[str]) -> None:
    """Annotate the loops of a block of tiles with their roles."""
    for loop, role in zip(loops, roles, strict=True):
        sch.annotate(loop, ROLE, role)


def _stage_filter(sch: Schedule, window: AmxWindow) -> None:
    """Pack the filter once, in parallel: in memory order, or some rows of it at a time."""
    if window.sums_filter:
        steps.sum_filter(sch, window)
    block = sch.get_sblock(stage_name(FILTER_PACK, window.index))
    *outer, vector, pair, lane = sch.get_loops(block)
    term = [outer.pop()] if window.terms > 1 else []
    group, channels, *taps, step = outer
    if window.problem.filter_format == "OIX":
        sch.reorder(vector, step, *term, pair, *taps, lane)
        sch.parallel(sch.fuse(group, channels, vector))
    elif window.problem.op != "convolution":
        sch.parallel(sch.fuse(group, channels, *taps))
    else:
        rows, row = sch.split(pair, [None, divisors(window.depth, steps.ROWS)[-1]])
        sch.reorder(*taps, step, rows, group, channels, row, vector, *term)
        sch.parallel(sch.fuse(*taps, step, rows))
    for each in term:
        sch.unroll(each)
    sch.vectorize(lane)
    sch.annotate(lane, PACK, 1)
    if window.pairs_lie_together:
        steps.transpose_filter(sch, window, pair)


def _stage_data(sch: Schedule, window: AmxWindow, task: LoopRV, target: CpuTarget) -> None:
    """Let each task copy its rows of data, by vectors of a pixel's pairs."""
    if window.in_place:
        return
    block = sch.get_sblock(stage_name(DATA_PAD, window.index))
    sch.compute_at(block, task, preserve_unit_loops=True)
    *outer, pixel, _ = sch.get_loops(block)
    if len(window.flat) == 2:
        sch.split(pixel, [None, window.copy_axes[-1].extent])
    column = steps.by_pixels(sch, block, window, target)
    if len(window.axes) > 1 and window.problem.data_format == "NXC" and window.copy_axes[-1].residues == 1:
        sch.annotate(column, COLUMNS, 1)
    if window.terms > 1:
        _split(sch, block, len(outer) - 1, column, window)


def _split(sch: Schedule, block: SBlockRV, number: int, column: LoopRV, window: AmxWindow) -> None:
    """Compute all terms of a vector together, or of a row where channels are planes; `number` is the terms' loop, from outside."""
    *_, term = (loops := sch.get_loops(block))[: number + 1]
    inner = loops[number + 1 :]
    variables = [sch.get(each).loop_var for each in inner]
    at = len(inner) - 1
    if window.problem.data_format == "NCX":
        at = next(i for i, each in enumerate(variables) if each.same_as(sch.get(column).loop_var))
    sch.reorder(*inner[:at], term, *inner[at:])
    sch.unroll(term)
