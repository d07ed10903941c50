"""Search space of Winograd convolutions whose products AMX computes, in 16-bit types.

A task is a band of tiles of one part of the output channels. It transforms the band's data, as pairs of halves, and goes over blocks of
outputs: for each point the product of the two matrices, two by two tile registers of sums at a time as in amx.py; then the block is
transformed back. The filter is stored in the order in which a task reads it; the next point's is prefetched to L2 meanwhile.
"""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tvmconv.algorithms.annotations import CONFIGURE, LANES, PACK, PAIRS, PREFETCH_TILES, ROWS, TILES, VECTORS
from tvmconv.algorithms.cpu.amx_cost import chunk_counts
from tvmconv.algorithms.cpu.transforms.winograd_halves_cost import best_chunks
from tvmconv.algorithms.cpu.transforms.winograd_halves_window import WinogradHalvesWindow
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import (
    ACC,
    DATA_HALVES,
    DATA_ROWS,
    DATA_TILES,
    FILTER_HALVES,
    FILTER_TILES,
    OUT,
    PRODUCTS,
    stage_name,
)
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.amx import mark
from tvmconv.schedules.cpu.winograd import (
    LINE,
    TWO_LINES,
    filter_by_vectors,
    in_registers,
    own_loops,
    padded_data,
    spread_points,
    transformed_back,
)
from tvmconv.targets.target import CpuTarget


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return the one schedule, in which the number of parts of the output channels is a choice."""
    steps.fill(sch)
    for window in definition.windows:
        _schedule(sch, window, target)
    return [sch]


def _schedule(sch: Schedule, tiles: WinogradHalvesWindow, target: CpuTarget) -> None:
    i = tiles.index
    n, g, *phases, z, band, tile, y, x, o = sch.get_loops(sch.get_sblock(stage_name(OUT, i)))
    parts = steps.choose(sch, chunk_counts(tiles.output_blocks), best_chunks(tiles, target))
    chunk, block, vector, lane = sch.split(o, [parts, None, tiles.block[1], tiles.lanes])
    tile, *own = own_loops(sch, tiles, tile, y, x, lane, tiles.columns)
    sch.reorder(n, g, z, band, chunk, *phases, block, tile, vector, *own)
    task = sch.fuse(n, g, z, band, chunk)
    sch.parallel(task)
    transformed_back(sch, tiles, vector, own)

    products = sch.get_sblock(stage_name(PRODUCTS, i))
    sch.compute_at(products, block, preserve_unit_loops=True)
    point, *_, tile, o = sch.get_loops(products)[-9:]
    sch.annotate(point, PREFETCH_TILES, stage_name(FILTER_HALVES, i))
    tile_block, *tile = _registers(sch, tiles, tile, o)
    mark(sch, tile, (TILES, ROWS, VECTORS, LANES))
    spread_points(sch, products)

    acc = sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    sch.compute_at(acc, tile_block, preserve_unit_loops=True)
    *_, tile, o, kz, step, pair = sch.get_loops(acc)
    _, *tile = _registers(sch, tiles, tile, o)
    sch.reorder(kz, step, *tile, pair)
    mark(sch, [*tile, pair], (TILES, ROWS, VECTORS, LANES, PAIRS))
    init = sch.decompose_reduction(acc, kz)
    mark(sch, sch.get_loops(init)[-4:], (TILES, ROWS, VECTORS, LANES))

    _data(sch, tiles, task, target)
    _filter(sch, tiles)
    sch.annotate(task, CONFIGURE, 1)


def _registers(sch: Schedule, tiles: WinogradHalvesWindow, tile: LoopRV, o: LoopRV) -> list[LoopRV]:
    """Return the loops over blocks of tile registers, those of Winograd's tiles, their rows, those of outputs, and lanes."""
    registers, vectors = tiles.block
    return [*sch.split(tile, [None, registers, tiles.tile_rows]), *sch.split(o, [vectors, tiles.lanes])]


def _data(sch: Schedule, tiles: WinogradHalvesWindow, task: LoopRV, target: CpuTarget) -> None:
    """Transform a task's data: of one tile two vectors of channels at a time, as pairs of halves."""
    i = tiles.index
    block, transformed = (sch.get_sblock(stage_name(name, i)) for name in (DATA_HALVES, DATA_TILES))
    sch.compute_at(block, task, preserve_unit_loops=True)
    a, b, n, *phases, z, band, g, half, tile, pair = sch.get_loops(block)[-11:]
    vector, lane = sch.split(pair, [None, tiles.distance])
    sch.reorder(n, *phases, z, band, g, tile, vector, a, b, half, lane)
    in_registers(sch, [a, b, half, lane])
    sch.storage_align(block, 0, axis=-2, factor=TWO_LINES, offset=LINE)
    spread_points(sch, block)
    sch.compute_at(transformed, vector, preserve_unit_loops=True)
    sch.set_scope(transformed, 0, "local")
    a, b, *_, c = sch.get_loops(transformed)[-9:]
    c, lane = sch.split(c, [None, tiles.distance])
    sch.reorder(c, a, b, lane)
    in_registers(sch, [c, a, b, lane])
    rows = sch.get_sblock(stage_name(DATA_ROWS, i))
    sch.compute_at(rows, c, preserve_unit_loops=True)
    sch.set_scope(rows, 0, "local")
    a, x, *_, lane = sch.get_loops(rows)[-9:]
    in_registers(sch, [a, x, lane])
    padded_data(sch, tiles, task, target)


def _filter(sch: Schedule, tiles: WinogradHalvesWindow) -> None:
    """Transform all of the filter first, in parallel: the channels of a step at a time, which L1 keeps until they are halves."""
    i = tiles.index
    block, transformed = (sch.get_sblock(stage_name(name, i)) for name in (FILTER_HALVES, FILTER_TILES))
    g, blocks, *phases, a, b, kz, step, half, vector, pair, lane = sch.get_loops(block)
    sch.reorder(g, blocks, vector, step, *phases, kz, pair, a, b, half, lane)
    in_registers(sch, [half, lane])
    sch.compute_at(transformed, step, preserve_unit_loops=True)
    filter_by_vectors(sch, tiles, transformed)
    sch.parallel(sch.fuse(g, blocks, vector, step))
    sch.annotate(lane, PACK, 1)
