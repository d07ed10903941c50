"""Problems whose output is the bias alone, or empty."""

from __future__ import annotations

from math import prod

from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_constant
from ..definition import Definition, assemble
from .model.cost import Counts
from .windows.express import express

__all__ = ["covers", "define", "estimate"]


def covers(problem: Problem, target: CpuTarget, ordered: bool = False) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    return covers_constant(problem, target)


def define(problem: Problem, target: CpuTarget, ordered: bool = False) -> Definition:
    """Define a problem whose output is the bias alone, or empty."""
    return assemble(problem, problem, [], express, asks=(), ordered=ordered)


def estimate(problem: Problem, target: CpuTarget, ordered: bool = False) -> Counts:
    """Count the vectors of the output, which are stored."""
    return {"elements.store": float(prod(problem.output_shape)) / (target.vector_bits // 32)}
