"""Estimate the algorithms for GPUs in cycles of one multiprocessor, to compare them without measuring."""

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

# Name of the one event that is counted: no coefficients of GPUs are known.
CYCLES = "cycles"
# Loads that threads of a multiprocessor start in a cycle.
LOADS = 32
# Memory comes by sectors of so many bytes.
SECTOR_BYTES, LINE_BYTES = 32, 128
# Latency of a thread that waits for its loads, and of a launch's first loads and last stores; fitted as below.
PRODUCT_LATENCY = 100
LATENCY = 2000
# Cycles in which a multiprocessor moves an element to shared memory that is no part of an asynchronous copy. Six stems in f16
# took 1.2 to 3.0 on an H200.
_ALONE = 2
# Bytes from memory in a cycle of a multiprocessor.
MEMORY_RATE = 22
# Measured times on an H200 relative to the model's time, and to that of memory (fitted to 206, 108 and 52 times of
# benchmarks/results/gpu; then the estimates err by 21, 11 and 13 %, standard deviation).
_TENSORCORE, _FMA, _DIRECT = (1.36, 2.1), (1.22, 1.9), (0.6, 1.3)


def estimate_tensorcore(problem: Problem, target: CudaTarget) -> Counts:
    """Cycles on tensor cores, with the best tile of each launch."""
    return _estimate_gemm(problem, best_tile, target, _TENSORCORE)


def estimate_fma(problem: Problem, target: CudaTarget) -> Counts:
    """Cycles of matrix multiplications on FMA units, with the best tile of each launch."""
    return _estimate_gemm(problem, best_fma_tile, target, _FMA)


def estimate_direct(problem: Problem, target: CudaTarget) -> Counts:
    """Cycles of threads that load the data and the filter element of each of their products."""
    products = prod(problem.output_shape) * problem.products / MULTIPROCESSORS[target.architectures[0]]
    # Threads of a warp with several pixels, whose channels lie apart, load as many sectors, four of a line.
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
    """Cycles in which memory gives and takes the arrays."""
    return problem.nbytes / MULTIPROCESSORS[target.architectures[0]] / MEMORY_RATE


def _alone(window: SubConvolution, tile: BlockTile) -> int:
    """Number of elements that are moved to shared memory one by one."""
    gemm, size = Gemm(window.problem, window.index, window.axes, tile), DTYPE_BYTES[window.problem.dtype]
    moved = tile.rows if gemm.data_vector * size < LEAST_ASYNCHRONOUS else 0
    moved += tile.columns if gemm.filter_vector * size < LEAST_ASYNCHRONOUS else 0
    each = gemm.extents
    blocks = each.batch * ceil(each.rows / tile.rows) * ceil(each.columns / tile.columns)
    return moved * blocks * ceil(each.depth / tile.depth) * tile.depth


def _waste(problem: Problem) -> float:
    """Ratio of the sectors read for a group's channels of a pixel, among other groups', to those that they fill."""
    together = problem.in_channels // problem.groups * DTYPE_BYTES[problem.dtype]
    return max(1.0, SECTOR_BYTES / together) if problem.groups > 1 and problem.data_format == "NXC" else 1.0
