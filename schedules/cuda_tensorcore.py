"""Search space of convolutions on tensor cores.

A block of warps computes a tile of one matrix multiplication: all copy the next tiles of data and filter to shared
memory, several steps ahead of the one that is multiplied, and each warp multiplies its part of the tile by 16x16
fragments whose sums stay in registers. Sums leave through shared memory, so that stores take whole vectors.
"""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from tvmconv.cuda_pipeline import STAGES
from tvmconv.cuda_target import CudaTarget
from tvmconv.definitions.definition import Definition
from tvmconv.definitions.gemm import Gemm

from . import mma
from .cpu_steps import choose
from .cuda_model import WARP, Tile, tiles

PAD = 8  # elements after a row in shared memory, so that eight rows' 16 bytes lie in different banks


def space(sch: Schedule, definition: Definition, target: CudaTarget) -> list[Schedule]:
    """Return one schedule for each arrangement of warps and number of stages, the default first."""
    made = []
    for tile in tiles(definition.windows[0], target):
        sketch = sch.copy()
        for window in definition.windows:
            _schedule(sketch, window, tile, target)
        made.append(sketch)
    return made


def _schedule(sch: Schedule, gemm: Gemm, tile: Tile, target: CudaTarget) -> None:
    i, dtype = gemm.index, gemm.problem.dtype
    instruction = mma.depth(dtype)
    acc = sch.get_sblock(f"acc{i}")
    b, m, n, k = sch.get_loops(acc)
    rows = choose(sch, tile.row_fragments, tile.row_fragments[0])
    columns = choose(sch, tile.column_fragments, tile.column_fragments[0])
    steps = choose(sch, tile.steps, tile.steps[0])
    m, warp_m, rows, mi = sch.split(m, [None, tile.warps_m, rows, mma.SIZE])
    n, warp_n, columns, ni = sch.split(n, [None, tile.warps_n, columns, mma.SIZE])
    k, step, ki = sch.split(k, [None, steps, instruction])
    sch.reorder(b, m, n, warp_m, warp_n, k, step, rows, columns, mi, ni, ki)
    block = sch.fuse(m, n)
    warp = sch.fuse(warp_m, warp_n)
    sch.bind(block, "blockIdx.x")
    sch.bind(b, "blockIdx.y")
    sch.bind(warp, "threadIdx.y")
    sch.set_scope(acc, 0, mma.C)

    data = sch.get_sblock(f"data_tile{i}")
    weights = sch.get_sblock(f"filter_tile{i}")
    data_fragment = sch.cache_read(acc, 0, mma.A)
    filter_fragment = sch.cache_read(acc, 1, mma.B)
    sch.compute_at(data_fragment, step, preserve_unit_loops=True)
    sch.compute_at(filter_fragment, step, preserve_unit_loops=True)
    for copy, vector in ((data, gemm.data_vector), (weights, gemm.filter_vector)):
        sch.set_scope(copy, 0, mma.SHARED)
        sch.compute_at(copy, k, preserve_unit_loops=True)
        sch.storage_align(copy, 0, axis=-2, factor=mma.SIZE, offset=PAD)
        _share(sch, copy, tile.warps, vector)
    sch.annotate(k, STAGES, tile.stages)

    stored = sch.get_sblock(f"tile{i}")
    sch.set_scope(stored, 0, mma.SHARED)
    sch.reverse_compute_at(stored, warp, preserve_unit_loops=True)
    out = sch.get_sblock(f"out{i}")
    sch.reverse_compute_at(out, block, preserve_unit_loops=True)
    if gemm.out_by_rows:
        *_, om, on = sch.get_loops(out)
        sch.reorder(on, om)
    _share(sch, out, tile.warps, gemm.out_vector)

    zero = sch.decompose_reduction(acc, k)
    _tensorize(sch, zero, mma.zero())
    _tensorize(sch, data_fragment, mma.load(dtype, mma.A, not gemm.data_by_depth))
    _tensorize(sch, filter_fragment, mma.load(dtype, mma.B, gemm.filter_by_depth))
    sch.tensorize(mi, mma.multiply(dtype, not gemm.data_by_depth, gemm.filter_by_depth).name)
    _tensorize(sch, stored, mma.store(gemm.out_by_rows))
    sch.storage_align(sch.get_sblock(f"tile{i}_o"), 0, axis=-2, factor=mma.SIZE, offset=PAD)
    for loop in (step, rows, columns):
        sch.unroll(loop)


def _share(sch: Schedule, block: SBlockRV, warps: int, vector: int) -> None:
    """Share a tile's elements among all threads by vectors."""
    *_, outer, inner = sch.get_loops(block)
    fused = sch.fuse(outer, inner)
    each, warp, lane, vector = sch.split(fused, [None, warps, WARP, vector])
    sch.bind(warp, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    sch.vectorize(vector)
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
