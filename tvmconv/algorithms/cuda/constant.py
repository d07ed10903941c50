"""Problems whose output is the bias alone, or empty."""

from __future__ import annotations

from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..cpu.model.cost import Counts
from ..data_dependence import covers_constant as covers
from ..definition import Definition
from .cost import CYCLES, LATENCY
from .window import define_cuda_constant

__all__ = ["covers", "define", "estimate"]


def define(problem: Problem, target: CudaTarget) -> Definition:
    """Define a problem whose output is the bias alone, or empty."""
    return define_cuda_constant(problem)


def estimate(problem: Problem, target: CudaTarget) -> Counts:
    """Return the latency of a launch."""
    return {CYCLES: float(LATENCY)}
