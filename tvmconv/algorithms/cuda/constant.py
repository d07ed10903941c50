"""Problems whose output is the bias alone, or empty."""

from __future__ import annotations

from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..data_dependence import covers_constant as covers
from ..definition import Definition
from .cost import LATENCY
from .window import define_cuda_constant

__all__ = ["covers", "cycles", "define"]


def define(problem: Problem, target: CudaTarget) -> Definition:
    """Define a problem whose output is the bias alone, or empty."""
    return define_cuda_constant(problem)


def cycles(problem: Problem, target: CudaTarget) -> float:
    """Return the cycles of a launch."""
    return float(LATENCY)
