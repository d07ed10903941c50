"""Implicit matrix multiplications on tensor cores, by mma.sync: of f16 and bf16, and of f32 rounded to TF32."""

from __future__ import annotations

from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..cpu.model.cost import Counts
from ..data_dependence import covers_data
from ..definition import Definition
from .cost import estimate_tensorcore
from .gemm import define_gemm

# Half of a fragment's columns.
LEAST_COLUMNS = 8


def covers(problem: Problem, target: CudaTarget, tf32: bool = False) -> str | None:
    """Return None if the algorithm computes the problem, else the reason why not."""
    if tf32 and problem.dtype != "f32":
        return f"{problem.dtype} is not f32"
    if not tf32 and problem.dtype == "f32":
        return "tensor cores multiply f32 only as TF32"
    if problem.out_channels // problem.groups < LEAST_COLUMNS:
        return f"tiles of 16 output channels per group would be more than half empty; it takes {LEAST_COLUMNS} or more"
    return covers_data(problem, target)


def define(problem: Problem, target: CudaTarget, tf32: bool = False) -> Definition:
    """Define a problem by matrix multiplications."""
    return define_gemm(problem, target)


def estimate(problem: Problem, target: CudaTarget, tf32: bool = False) -> Counts:
    """Return the cycles with the best tile."""
    return estimate_tensorcore(problem, target)
