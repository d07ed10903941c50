"""Find kernels that are slow by estimate: far from what a CPU's multiply-adds and its memory allow."""

from __future__ import annotations

from ...algorithms import table
from ...algorithms.definition import is_tiny
from ...problem import Problem
from ...targets.target import Target

SHARE = 0.1  # of the roofline; kernels below it are reported


def slow(problem: Problem, target: Target, algorithm: str) -> str | None:
    """Return why a kernel is slow by estimate, in words; None: it is not, or its target has no such estimate."""
    least = target.least_cycles(problem.flops, problem.nbytes)
    if least is None or problem.is_constant or problem.is_empty or is_tiny(problem):
        return None
    if algorithm == "plain":
        return "plain is without what makes the others fast"
    share = least / table.get(algorithm).cycles(problem, target)
    if share >= SHARE:
        return None
    return f"{algorithm} is estimated at {share:.1%} of what this CPU's multiply-adds and caches allow"
