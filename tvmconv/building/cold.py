"""Layers whose filters are evicted from the caches between calls, by the other layers of their network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..algorithms.algorithm import Algorithm
from ..algorithms.cpu.cost import cycles, lines
from ..algorithms.table import applicable
from ..problem import Problem
from ..targets.target import Target


def maths_of(problems: Iterable[Problem], target: Target, math: str, network: Sequence[Problem]) -> dict[Problem, str]:
    """Return for each problem of a network which algorithms it may have: `math`, or where filters are cold ``"strict"``."""
    cold = math == "default" and is_cold(network, target)
    return {each: "strict" if cold and is_better_exact(each, target) else math for each in problems}


def is_cold(network: Sequence[Problem], target: Target) -> bool:
    """Whether no cache keeps the filters of a network's layers, each listed as often as it is called."""
    return not target.keeps(sum(each.filter_bytes for each in network))


def is_better_exact(problem: Problem, target: Target) -> bool:
    """Whether the best of the exact algorithms takes less than the best of all, when each reads its filter from memory."""
    best, exact = applicable(problem, target)[0], applicable(problem, target, "strict")[0]
    return best is not exact and _cycles(exact, problem, target) < _cycles(best, problem, target)


def _cycles(algorithm: Algorithm, problem: Problem, target: Target) -> float:
    read = {"lines.cold": lines(algorithm.filter_bytes(problem, target))}
    return algorithm.cycles(problem, target) + cycles(read, target)
