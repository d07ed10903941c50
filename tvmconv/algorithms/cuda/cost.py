"""What the algorithms for GPUs cost, in cycles of one multiprocessor, to compare them without measuring."""

from __future__ import annotations

from math import ceil, prod

from ...problem import DTYPE_BYTES, Problem
from ...targets.cuda import CudaTarget
from ..cpu.cost import Counts
from .annotations import LEAST_ASYNCHRONOUS
from .blocks import MULTIPROCESSORS, BlockTile, Extents
from .fma_tiles import best_fma_tile
from .gemm import Gemm
from .tiles import best_tile
from .window import cuda_windows

# What is counted: no coefficients of GPUs are known.
CYCLES = "cycles"
# Loads that threads of a multiprocessor start in a cycle.
LOADS = 32
# Memory comes by sectors of so many bytes.
SECTOR_BYTES = 32
# A thread has loads of some 32 products under way, which take some 600 cycles.
PRODUCT_LATENCY = 20
# A launch's first loads and last stores.
LATENCY = 1600
# Cycles in which a multiprocessor moves an element to shared memory that is no part of an asynchronous copy. Six stems in f16
# took 1.2 to 3.0 on an H200.
_ALONE = 2


def problem_extents(problem: Problem) -> Extents:
    """Return the matrix multiplications that a problem is: for backprop one for each combination of stride phases."""
    phases = prod(problem.strides) if problem.op == "convolution_backprop_data" else 1
    return Extents(
        batch=problem.groups * phases,
        rows=-(-problem.batch * prod(problem.out_spatial) // phases),
        columns=problem.out_channels // problem.groups,
        depth=max(1, problem.products),
    )


def estimate_tensorcore(problem: Problem, target: CudaTarget) -> Counts:
    """Cycles on tensor cores, with the best tile."""
    return _estimate_gemm(problem, best_tile(problem_extents(problem), problem.dtype, target), target)


def estimate_fma(problem: Problem, target: CudaTarget) -> Counts:
    """Cycles of matrix multiplications on FMA units, with the best tile."""
    return _estimate_gemm(problem, best_fma_tile(problem_extents(problem), problem.dtype, target), target)


def estimate_direct(problem: Problem, target: CudaTarget) -> Counts:
    """Cycles of threads that load the data and the filter element of each of their products."""
    products = prod(problem.output_shape) * problem.products / MULTIPROCESSORS[target.architectures[0]]
    return {CYCLES: max(2 * products / LOADS, PRODUCT_LATENCY * problem.products) + LATENCY}


def _estimate_gemm(problem: Problem, tile: BlockTile, target: CudaTarget) -> Counts:
    extents = problem_extents(problem)
    alone = _ALONE * _alone(problem, tile, extents) / MULTIPROCESSORS[target.architectures[0]]
    return {CYCLES: tile.cycles(extents, target) * _wasted(problem) + alone}


def _alone(problem: Problem, tile: BlockTile, extents: Extents) -> int:
    """How many elements are moved to shared memory one by one."""
    window = cuda_windows(problem)[0]
    gemm, size = Gemm(window.problem, window.index, window.axes, tile), DTYPE_BYTES[problem.dtype]
    moved = tile.rows if gemm.data_vector * size < LEAST_ASYNCHRONOUS else 0
    moved += tile.columns if gemm.filter_vector * size < LEAST_ASYNCHRONOUS else 0
    blocks = extents.batch * ceil(extents.rows / tile.rows) * ceil(extents.columns / tile.columns)
    return moved * blocks * ceil(extents.depth / tile.depth) * tile.depth


def _wasted(problem: Problem) -> float:
    """How many more sectors a group's channels of a pixel lie in than they fill, where other groups' lie between."""
    together = problem.in_channels // problem.groups * DTYPE_BYTES[problem.dtype]
    return max(1.0, SECTOR_BYTES / together) if problem.groups > 1 and problem.data_format == "NXC" else 1.0
