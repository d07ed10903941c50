"""Which kernels are slow by estimate: far from what a CPU's multiply-adds and its memory allow."""

from __future__ import annotations

from ..algorithms import table
from ..algorithms.cpu.cost import lines
from ..algorithms.definition import is_tiny
from ..algorithms.shapes import F32_BITS
from ..problem import Problem
from ..targets.target import CpuTarget, Target

SHARE = 0.1  # of the roofline: less is reported


def slow(problem: Problem, target: Target, algorithm: str) -> str | None:
    """Return why a kernel is slow by estimate, in words; None: it is not, or its target has no such estimate.

    Parameters
    ----------
    algorithm
        The kernel's.
    """
    if not isinstance(target, CpuTarget) or problem.is_constant or problem.is_empty or is_tiny(problem):
        return None
    if algorithm == "plain":
        return "plain is without what makes the others fast"
    share = roofline_cycles(problem, target) / table.get(algorithm).cycles(problem, target)
    if share >= SHARE:
        return None
    return f"{algorithm} is estimated at {share:.1%} of what this CPU's multiply-adds and caches allow"


def roofline_cycles(problem: Problem, target: CpuTarget) -> float:
    """Return the cycles of one core that a problem takes at the least: its multiply-adds of full vectors, or its bytes."""
    products = problem.flops / 2 / (target.vector_bits // F32_BITS) / target.multiply_adds
    return max(products, lines(problem.nbytes) * target.costs.lines.l3)
