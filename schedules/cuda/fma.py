"""Search space of convolutions by matrix multiplication on FMA units.

A block of threads computes a tile of one matrix multiplication: all copy the next tiles of data and filter to shared
memory, several steps ahead of the one that is multiplied. A thread sums a tile of its own in registers, which it stores
itself. Along the faster index of an operand in shared memory a thread has vectors of 4, which are as far apart as all
threads' vectors together span, so that neighbouring threads read neighbouring vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import gcd

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV

from tvmconv.algorithms.cuda.annotations import STAGES
from tvmconv.algorithms.cuda.fma_tiles import VECTOR, FmaTile, fma_tiles
from tvmconv.algorithms.cuda.gemm import Gemm
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import ACC, DATA_TILE, FILTER_TILE, OUT, PARTIAL, TILE, stage_name
from tvmconv.schedules.cpu.steps import choose
from tvmconv.schedules.cuda import steps as cuda_steps
from tvmconv.targets.cuda import CudaTarget

SHARED = "shared.dyn"
ARRANGEMENTS = 4


def space(sch: Schedule, definition: Definition, target: CudaTarget) -> list[Schedule]:
    """Return one schedule for each of the best tiles, the default first."""
    return cuda_steps.sketches(sch, definition, partial(_arrangements, target=target), _schedule)


def _arrangements(windows: Sequence[Gemm], target: CudaTarget) -> list[FmaTile]:
    """Return the definition's tile, and those that divide the same extents and the model finds next best."""
    own: FmaTile = windows[0].tile
    fitting = cuda_steps.fitting(windows, fma_tiles(own.dtype, target), target)
    return [own, *(tile for tile in fitting if tile != own)][:ARRANGEMENTS]


def _schedule(sch: Schedule, gemm: Gemm, tile: FmaTile) -> None:
    i = gemm.index
    acc, out, tiled = (sch.get_sblock(stage_name(stage, i)) for stage in (ACC, OUT, TILE))
    stages = [tile.stages, *(s for s in (2, 3, 4) if s < tile.stages)]
    vector_m = 1 if gemm.data_by_depth else gcd(VECTOR, tile.sums_m)
    vector_n = 1 if gemm.filter_by_depth else gcd(VECTOR, tile.sums_n)

    sch.set_scope(acc, 0, "local")
    b, m, n, k = sch.get_loops(acc)
    m, part_m, thread_m, m_ = sch.split(m, [None, tile.sums_m // vector_m, tile.threads_m, vector_m])
    n, part_n, thread_n, n_ = sch.split(n, [None, tile.sums_n // vector_n, tile.threads_n, vector_n])
    k, step, k_ = sch.split(k, [None, tile.depth // VECTOR, VECTOR])
    # Threads of a warp write neighbours.
    threads = [thread_n, thread_m] if gemm.out_by_rows else [thread_m, thread_n]
    sch.reorder(b, m, n, part_m, part_n, *threads, k, step, k_, m_, n_)
    block, thread = sch.fuse(b, m, n), sch.fuse(*threads)
    sch.bind(block, "blockIdx.x")
    sch.bind(part_m, "vthread.x")
    sch.bind(part_n, "vthread.y")
    sch.bind(thread, "threadIdx.x")

    for operand, (stage, vector) in enumerate(((DATA_TILE, gemm.data_vector), (FILTER_TILE, gemm.filter_vector))):
        shared = sch.get_sblock(stage_name(stage, i))
        sch.set_scope(shared, 0, SHARED)
        sch.compute_at(shared, k, preserve_unit_loops=True)
        sch.storage_align(shared, 0, axis=-2, factor=2 * tile.pad, offset=tile.pad)
        _share(sch, shared, tile.threads, vector)
        registers = sch.cache_read(acc, operand, "local")
        sch.compute_at(registers, step, preserve_unit_loops=True)
        *_, outer, inner = sch.get_loops(registers)
        sch.unroll(outer)
        sch.vectorize(inner)
    sch.annotate(k, STAGES, choose(sch, stages, tile.stages))

    sch.compute_inline(tiled)
    together = vector_m if gemm.out_by_rows else vector_n
    if tile.splits > 1:
        part = sch.get_sblock(stage_name(PARTIAL, i))
        sch.reverse_compute_at(part, thread, preserve_unit_loops=True)
        _store(sch, part, together)
    else:
        sch.reverse_compute_at(out, thread, preserve_unit_loops=True)
    *_, om, on = sch.get_loops(out)
    if gemm.out_by_rows:
        sch.reorder(on, om)
    if tile.splits > 1:
        cuda_steps.add_parts(sch, out, gemm.out_vector)
    else:
        _store(sch, out, gcd(together, gemm.out_vector))
    for loop in (step, k_, m_, n_):
        sch.unroll(loop)
    sch.decompose_reduction(acc, k)


def _store(sch: Schedule, block: SBlockRV, vector: int) -> None:
    """Store a thread's sums by vectors."""
    _, last = sch.split(sch.get_loops(block)[-1], [None, vector])
    for loop in sch.get_loops(block)[4:-1]:
        sch.unroll(loop)
    sch.vectorize(last)


def _share(sch: Schedule, block: SBlockRV, threads: int, vector: int) -> None:
    """Share a tile's elements among all threads by vectors, or smaller ones if there are too few."""
    *_, outer, inner = sch.get_loops(block)
    elements = int(sch.get(outer).extent) * int(sch.get(inner).extent)
    fused = sch.fuse(outer, inner)
    each, thread, vector = sch.split(fused, [None, threads, min(vector, elements // threads)])
    sch.bind(thread, "threadIdx.x")
    sch.vectorize(vector)
    sch.unroll(each)
