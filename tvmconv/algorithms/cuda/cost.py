"""Estimates of the algorithms for GPUs, in cycles of one multiprocessor."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod

from ...dtypes import DTYPE_BYTES
from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..cpu.model.cost import Counts
from ..subconvolution import SubConvolution
from .annotations import LEAST_ASYNCHRONOUS
from .blocks import MULTIPROCESSORS, WARP, BlockTile, Extents
from .fma_tiles import best_fma_tile
from .gemm import Gemm, extents
from .tiles import best_tile
from .window import cuda_windows

# Name of the only event: GPUs have no coefficients.
CYCLES = "cycles"
# Loads that the threads of a multiprocessor start per cycle.
LOADS = 32
# Bytes of the sectors that memory transfers, and of a cache line.
SECTOR_BYTES, LINE_BYTES = 32, 128
# Latency of a product, whose thread waits for its loads, and of a launch's first loads and last stores; fitted as below.
PRODUCT_LATENCY = 100
LATENCY = 2000
# Cycles in which a multiprocessor moves one element to shared memory without an asynchronous copy: 1.2 to 3.0 for six stems in f16 on
# an H200.
_ALONE = 2
# Bytes from memory per cycle of a multiprocessor.
MEMORY_RATE = 22
# Factors of the model's time and of memory's time, fitted to 206, 108 and 52 times on an H200 (benchmarks/results/gpu), by which
# estimates err by 21, 11 and 13 % (standard deviation).
_TENSORCORE, _FMA, _DIRECT = (1.36, 2.1), (1.22, 1.9), (0.6, 1.3)


def estimate_tensorcore(problem: Problem, target: CudaTarget) -> Counts:
    """Return the cycles on tensor cores, with the best tile of each launch."""
    return _estimate_gemm(problem, best_tile, target, _TENSORCORE)


def estimate_fma(problem: Problem, target: CudaTarget) -> Counts:
    """Return the cycles on FMA units, with the best tile of each launch."""
    return _estimate_gemm(problem, best_fma_tile, target, _FMA)


def estimate_direct(problem: Problem, target: CudaTarget) -> Counts:
    """Return the cycles of threads that load both operands of each product."""
    products = prod(problem.output_shape) * problem.products / MULTIPROCESSORS[target.architectures[0]]
    # A warp with several pixels loads a sector for each, four of which cost as much as a line.
    pixels = WARP // min(WARP, problem.out_channels) if problem.data_format == "NXC" else 1
    loads = 1 + max(1.0, pixels / (LINE_BYTES // SECTOR_BYTES))
    busy = max(_DIRECT[0] * loads * products / LOADS, _DIRECT[1] * _memory(problem, target))
    return {CYCLES: busy + PRODUCT_LATENCY * problem.products + LATENCY}


def _estimate_gemm(
    problem: Problem,
    best: Callable[[Extents, str, CudaTarget], BlockTile],
    target: CudaTarget,
    times: tuple[float, float],
) -> Counts:
    multiprocessors = MULTIPROCESSORS[target.architectures[0]]
    cycles = alone = 0.0
    for window in cuda_windows(problem):
        each = extents(window)
        tile = best(each, problem.dtype, target)
        cycles += tile.cycles(each, target)
        alone += _ALONE * _alone(window, tile) / multiprocessors
    return {CYCLES: max(times[0] * cycles * _waste(problem) + alone, times[1] * _memory(problem, target))}


def _memory(problem: Problem, target: CudaTarget) -> float:
    """Return the cycles of reading and writing the arrays in memory."""
    return problem.nbytes / MULTIPROCESSORS[target.architectures[0]] / MEMORY_RATE


def _alone(window: SubConvolution, tile: BlockTile) -> int:
    """Return the number of elements that are moved to shared memory one by one."""
    gemm, size = Gemm(window.problem, window.index, window.axes, tile), DTYPE_BYTES[window.problem.dtype]
    moved = tile.rows if gemm.data_vector * size < LEAST_ASYNCHRONOUS else 0
    moved += tile.columns if gemm.filter_vector * size < LEAST_ASYNCHRONOUS else 0
    each = gemm.extents
    blocks = each.batch * ceil(each.rows / tile.rows) * ceil(each.columns / tile.columns)
    return moved * blocks * ceil(each.depth / tile.depth) * tile.depth


def _waste(problem: Problem) -> float:
    """Return the ratio of bytes in the sectors read for a group's channels of a pixel to the bytes of these channels."""
    together = problem.in_channels // problem.groups * DTYPE_BYTES[problem.dtype]
    return max(1.0, SECTOR_BYTES / together) if problem.groups > 1 and problem.data_format == "NXC" else 1.0
