"""Problems whose output is the bias alone, or empty."""

from __future__ import annotations

from math import prod

from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_constant as covers
from ..definition import Definition, assemble
from .express import express

__all__ = ["covers", "cycles", "define"]


def define(problem: Problem, target: CpuTarget) -> Definition:
    """Define a problem whose output is the bias alone, or empty."""
    return assemble(problem, problem, [], express, asks=())


def cycles(problem: Problem, target: CpuTarget) -> float:
    """Return the cycles of storing the output."""
    return float(prod(problem.output_shape)) / (target.vector_bits // 32)
