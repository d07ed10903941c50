"""Implicit matrix multiplications on FMA units: the expressions of `cuda_gemm.py` with other tiles."""

from __future__ import annotations

from ..cuda_target import CudaTarget
from ..problem import Problem
from .cuda_fma_tiles import best_fma_tile
from .cuda_gemm import Gemm, express, extents
from .cuda_window import cuda_windows, define_cuda
from .definition import Definition


def define_fma(problem: Problem, target: CudaTarget) -> Definition:
    """Define a problem by matrix multiplications with the tile that the model finds best for the largest of them."""
    largest = max((extents(window) for window in cuda_windows(problem)), key=lambda each: each.products)
    tile = best_fma_tile(largest, problem.dtype, target)
    return define_cuda(problem, express, lambda flat, index, axes: Gemm(flat, index, axes, tile))
