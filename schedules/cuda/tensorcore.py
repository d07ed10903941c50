"""Search space of convolutions on tensor cores.

A block of warps computes a tile of one matrix multiplication: all copy the next tiles of data and filter to shared
memory, several steps ahead of the one that is multiplied, and each warp multiplies its part of the tile by 16x16
fragments whose sums stay in registers. Sums leave through shared memory, so that stores take whole vectors.

Counts of the loop over depth in machine code (n32, 256 to 256 channels, 56x56, 3x3, f16, for sm_90; the source of
`cuda_lowering.to_source` through ``nvcc -arch=sm_90 -cubin``, then ``cuobjdump -sass``; nothing was measured on a GPU):
296 instructions for 128 HMMA of 16x8x16, 32 of them LDSM and 12 LDGSTS, one barrier. A quarter of a multiprocessor takes
6.4 cycles for an HMMA at 1280 multiply-adds a cycle and starts 2.3 instructions for it, a third of what it can. Shared
memory takes 8 warps * 32 * 512 + 384 * 64 * 2 bytes a step at 128 a cycle, 1408 cycles, beside 1638 of multiplying: so
multiplication is the limit, with 14 % to spare, and mma.sync's limit is 62 % of wgmma's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV

from tvmconv.algorithms.cuda.annotations import STAGES
from tvmconv.algorithms.cuda.blocks import WARP
from tvmconv.algorithms.cuda.gemm import Gemm
from tvmconv.algorithms.cuda.tiles import Tile, tiles
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import ACC, DATA_TILE, FILTER_TILE, OUT, PARTIAL, TILE, stage_name
from tvmconv.schedules.cpu.steps import choose
from tvmconv.schedules.cuda import mma
from tvmconv.schedules.cuda import steps as cuda_steps
from tvmconv.targets.cuda import CudaTarget

PAD = 8  # elements after a row in shared memory, so that eight rows' 16 bytes lie in different banks
ARRANGEMENTS = 3
PART_VECTOR = 4  # f32 in 16 bytes


def space(sch: Schedule, definition: Definition, target: CudaTarget) -> list[Schedule]:
    """Return one schedule for each of the best arrangements of warps, the default first."""
    arrangements = partial(_arrangements, target=target)
    return cuda_steps.sketches(sch, definition, arrangements, partial(_schedule, target=target))


def _arrangements(windows: Sequence[Gemm], target: CudaTarget) -> list[Tile]:
    """Return the definition's tile, and those of other arrangements of warps that the model finds next best."""
    own: Tile = windows[0].tile
    most = min(window.most_sums for window in windows)
    small = (tile for tile in tiles(own.dtype, target) if tile.sums <= most)
    best = {(own.warps_m, own.warps_n): own}
    for tile in cuda_steps.fitting(windows, small, target):
        best.setdefault((tile.warps_m, tile.warps_n), tile)
    return list(best.values())[:ARRANGEMENTS]


def _choices(tile: Tile, gemm: Gemm, target: CudaTarget) -> dict[str, list[int]]:
    """Return the choices for a tile, its own values first; any combination of them fits."""
    chosen = {name: [getattr(tile, name)] for name in ("fragments_m", "fragments_n", "depth", "stages")}
    offers = {"fragments_m": (1, 2, 4), "fragments_n": (1, 2, 4), "depth": (16, 32, 64), "stages": (2, 3, 4)}
    for name, values in offers.items():
        for value in values:
            grown = {**chosen, name: [*chosen[name], value]}
            every = [replace(tile, **dict(zip(grown, each, strict=True))) for each in product(*grown.values())]
            if value not in chosen[name] and all(_fits(each, gemm, target) for each in every):
                chosen = grown
    return chosen


def _fits(tile: Tile, gemm: Gemm, target: CudaTarget) -> bool:
    return tile.fits(target) and tile.sums <= gemm.most_sums and cuda_steps.divides(tile, [gemm])


def _schedule(sch: Schedule, gemm: Gemm, tile: Tile, target: CudaTarget) -> None:
    dtype, acc = gemm.problem.dtype, sch.get_sblock(stage_name(ACC, gemm.index))
    loops = _cut_to_fragments(sch, acc, gemm, tile, target)
    sch.set_scope(acc, 0, mma.C)
    data, weights = (sch.get_sblock(stage_name(name, gemm.index)) for name in (DATA_TILE, FILTER_TILE))
    data_fragment = sch.cache_read(acc, 0, mma.A)
    filter_fragment = sch.cache_read(acc, 1, mma.B)
    sch.compute_at(data_fragment, loops.step, preserve_unit_loops=True)
    sch.compute_at(filter_fragment, loops.step, preserve_unit_loops=True)
    for copy, vector in ((data, gemm.data_vector), (weights, gemm.filter_vector)):
        sch.set_scope(copy, 0, mma.SHARED)
        sch.compute_at(copy, loops.depth, preserve_unit_loops=True)
        sch.storage_align(copy, 0, axis=-2, factor=mma.SIZE, offset=PAD)
        _share(sch, copy, tile.warps, vector)
    sch.annotate(loops.depth, STAGES, loops.stages)
    stored = _store_tile(sch, loops, gemm, tile)
    zero = sch.decompose_reduction(acc, loops.depth)
    _tensorize(sch, zero, mma.zero())
    _tensorize(sch, data_fragment, mma.load(dtype, mma.A, not gemm.data_by_depth))
    _tensorize(sch, filter_fragment, mma.load(dtype, mma.B, gemm.filter_by_depth))
    sch.tensorize(loops.fragment, mma.multiply(dtype, not gemm.data_by_depth, gemm.filter_by_depth).name)
    _tensorize(sch, stored, mma.store(gemm.out_by_rows))
    sch.storage_align(sch.get_sblock(stage_name(TILE, gemm.index) + "_o"), 0, axis=-2, factor=mma.SIZE, offset=PAD)
    for loop in loops.unrolled:
        sch.unroll(loop)


@dataclass(frozen=True)
class _TileLoops:
    """Loops of a product's tile: a block's, a warp's, over depth in shared memory, over its steps, and a fragment's rows."""

    block: Any
    warp: Any
    depth: Any
    stages: Any
    step: Any
    fragment: Any
    unrolled: tuple[Any, ...]


def _cut_to_fragments(sch: Schedule, acc: SBlockRV, gemm: Gemm, tile: Tile, target: CudaTarget) -> _TileLoops:
    """Cut the sums to blocks, warps and fragments of tensor cores."""
    instruction = mma.depth(gemm.problem.dtype)
    b, m, n, k = sch.get_loops(acc)
    choices = _choices(tile, gemm, target)
    rows = choose(sch, choices["fragments_m"], tile.fragments_m)
    columns = choose(sch, choices["fragments_n"], tile.fragments_n)
    steps = choose(sch, [depth // instruction for depth in choices["depth"]], tile.depth // instruction)
    stages = choose(sch, choices["stages"], tile.stages)
    m, warp_m, rows, mi = sch.split(m, [None, tile.warps_m, rows, mma.SIZE])
    n, warp_n, columns, ni = sch.split(n, [None, tile.warps_n, columns, mma.SIZE])
    k, step, ki = sch.split(k, [None, steps, instruction])
    sch.reorder(b, m, n, warp_m, warp_n, k, step, rows, columns, mi, ni, ki)
    block = sch.fuse(m, n)
    warp = sch.fuse(warp_m, warp_n)
    sch.bind(block, "blockIdx.x")
    sch.bind(b, "blockIdx.y")
    sch.bind(warp, "threadIdx.y")
    return _TileLoops(block, warp, k, stages, step, mi, (step, rows, columns))


def _store_tile(sch: Schedule, loops: _TileLoops, gemm: Gemm, tile: Tile) -> SBlockRV:
    """Store a warp's sums to shared memory, and from there, or as parts of sums, to the output; return the first store."""
    stored = sch.get_sblock(stage_name(TILE, gemm.index))
    sch.set_scope(stored, 0, mma.SHARED)
    sch.reverse_compute_at(stored, loops.warp, preserve_unit_loops=True)
    out = sch.get_sblock(stage_name(OUT, gemm.index))
    if tile.splits > 1:
        part = sch.get_sblock(stage_name(PARTIAL, gemm.index))
        sch.reverse_compute_at(part, loops.block, preserve_unit_loops=True)
        _share(sch, part, tile.warps, PART_VECTOR)
    else:
        sch.reverse_compute_at(out, loops.block, preserve_unit_loops=True)
    if gemm.out_by_rows:
        *_, om, on = sch.get_loops(out)
        sch.reorder(on, om)
    if tile.splits > 1:
        cuda_steps.add_parts(sch, out, gemm.out_vector)
    else:
        _share(sch, out, tile.warps, gemm.out_vector)
    return stored


def _share(sch: Schedule, block: SBlockRV, warps: int, vector: int) -> None:
    """Share a tile's elements among all threads by vectors."""
    *_, outer, inner = sch.get_loops(block)
    inner, element = sch.split(inner, [None, vector])
    each, warp, lane = sch.split(sch.fuse(outer, inner), [None, warps, WARP])
    sch.bind(warp, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    sch.vectorize(element)
    sch.unroll(each)


def _tensorize(sch: Schedule, block: SBlockRV, intrinsic: mma.Intrinsic) -> None:
    """Compute a block over two loops by fragments."""
    *_, outer, inner = sch.get_loops(block)
    outer, i = sch.split(outer, [None, intrinsic.rows])
    inner, j = sch.split(inner, [None, intrinsic.columns])
    sch.reorder(outer, inner, i, j)
    sch.tensorize(i, intrinsic.name)
    sch.unroll(outer)
    sch.unroll(inner)
