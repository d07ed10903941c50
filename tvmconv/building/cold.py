"""Layers whose filters are evicted from the caches between calls, by the other layers of their network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ..algorithms.algorithm import Algorithm
from ..algorithms.cpu.cost import lines
from ..algorithms.table import applicable
from ..problem import DTYPE_BYTES, Problem
from ..targets.target import CpuTarget, Target


def maths_of(problems: Iterable[Problem], target: Target, math: str, network: Sequence[Problem]) -> dict[Problem, str]:
    """Return for each problem of a network which algorithms it may have: `math`, or where filters are cold ``"strict"``."""
    cold = math == "default" and is_cold(network, target)
    return {each: "strict" if cold and is_better_exact(each, target) else math for each in problems}


def is_cold(network: Sequence[Problem], target: Target) -> bool:
    """Whether no cache keeps the filters of a network's layers, each listed as often as it is called."""
    size = sum(map(_plain_bytes, network))
    return isinstance(target, CpuTarget) and size > target.l3_share


def is_better_exact(problem: Problem, target: Target) -> bool:
    """Whether the best of the exact algorithms takes less than the best of all, when each reads its filter from memory."""
    assert isinstance(target, CpuTarget)
    best, exact = applicable(problem, target)[0], applicable(problem, target, "strict")[0]
    return best is not exact and _cycles(exact, problem, target) < _cycles(best, problem, target)


def _cycles(algorithm: Algorithm, problem: Problem, target: CpuTarget) -> float:
    size = _plain_bytes(problem)
    if algorithm.module == "winograd":
        from ..algorithms.cpu.winograd_tiles import tiles_of

        size = sum(tiles.filter_bytes for tiles in tiles_of(problem, target, algorithm.options["points"]))
    return algorithm.cycles(problem, target) + lines(size) * target.costs.lines.cold


def _plain_bytes(problem: Problem) -> int:
    return DTYPE_BYTES[problem.dtype] * prod(problem.filter_shape)
