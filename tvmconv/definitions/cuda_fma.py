"""Implicit matrix multiplications on FMA units: the expressions of `cuda_gemm.py` with other tiles."""

from __future__ import annotations

from ..cuda_target import CudaTarget
from ..problem import Problem
from .cuda_fma_tiles import best_fma_tile
from .cuda_gemm import define_tiled
from .definition import Definition


def define_fma(problem: Problem, target: CudaTarget) -> Definition:
    """Define a problem by matrix multiplications with the tile that the model finds best for the largest of them."""
    return define_tiled(problem, lambda windows, largest: best_fma_tile(largest, problem.dtype, target))
