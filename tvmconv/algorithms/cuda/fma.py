"""Implicit matrix multiplications on FMA units: the expressions of `gemm.py` with tiles of `fma_tiles.py`."""

from __future__ import annotations

from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..data_dependence import covers_data as covers
from ..definition import Definition
from .cost import estimate_fma as estimate
from .fma_tiles import best_fma_tile
from .gemm import define_tiled

__all__ = ["covers", "define", "estimate"]


def define(problem: Problem, target: CudaTarget) -> Definition:
    """Define a problem by matrix multiplications with the best tile by the model for the largest of them."""
    return define_tiled(problem, lambda windows, largest: best_fma_tile(largest, problem.dtype, target))
