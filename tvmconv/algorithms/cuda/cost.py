"""What the algorithms for GPUs cost, in cycles of one multiprocessor, to compare them without measuring."""

from __future__ import annotations

from math import prod

from ...problem import DTYPE_BYTES, Problem
from ...targets.cuda import CudaTarget
from ..cpu.cost import Counts
from .blocks import MULTIPROCESSORS, Extents
from .fma_tiles import best_fma_tile
from .tiles import best_tile

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
    extents = problem_extents(problem)
    return {CYCLES: best_tile(extents, problem.dtype, target).cycles(extents, target) * _wasted(problem)}


def estimate_fma(problem: Problem, target: CudaTarget) -> Counts:
    """Cycles of matrix multiplications on FMA units, with the best tile."""
    extents = problem_extents(problem)
    return {CYCLES: best_fma_tile(extents, problem.dtype, target).cycles(extents, target) * _wasted(problem)}


def estimate_direct(problem: Problem, target: CudaTarget) -> Counts:
    """Cycles of threads that load the data and the filter element of each of their products."""
    products = prod(problem.output_shape) * problem.products / MULTIPROCESSORS[target.architectures[0]]
    return {CYCLES: max(2 * products / LOADS, PRODUCT_LATENCY * problem.products) + LATENCY}


def _wasted(problem: Problem) -> float:
    """How many more sectors a group's channels of a pixel lie in than they fill, where other groups' lie between."""
    together = problem.in_channels // problem.groups * DTYPE_BYTES[problem.dtype]
    return max(1.0, SECTOR_BYTES / together) if problem.groups > 1 and problem.data_format == "NXC" else 1.0
