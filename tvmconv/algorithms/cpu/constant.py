"""Problems whose output is the bias alone, or empty."""

from __future__ import annotations

from math import prod

from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_constant as covers
from ..definition import Definition, assemble
from .model.cost import Counts
from .windows.express import express

__all__ = ["covers", "define", "estimate"]


def define(problem: Problem, target: CpuTarget) -> Definition:
    """Define a problem whose output is the bias alone, or empty."""
    return assemble(problem, problem, [], express, asks=())


def estimate(problem: Problem, target: CpuTarget) -> Counts:
    """Count the events of storing the output: vectors that are written."""
    return {"elements.store": float(prod(problem.output_shape)) / (target.vector_bits // 32)}
