"""Decide which kernels of a network are compiled so that they can prefetch the next layer's filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from ...algorithms.table import get
from ...family import ProblemFamily
from ...problem import Problem
from ...targets.cpus import LINE_BYTES
from ...targets.target import CpuTarget, Target
from .decide import Decision

# Smaller filters are not prefetched: that costs about as much as it saves.
LEAST_BYTES = 100_000
# Part of L3 that a prefetched filter may have: the best of an eighth, a quarter and all for wide_resnet50_2 (`python -m benchmarks.zoo`).
SHARE_OF_L3 = 4


def next_lines(
    network: Sequence[Problem], decisions: Iterable[Decision], target: Target
) -> dict[Problem | ProblemFamily, int]:
    """Return the most lines of the next layer's filter that each kernel prefetches; none where L3 keeps all filters."""
    algorithms = {each.problem: get(each.ways[0].algorithm) for each in decisions}
    sizes = [algorithms[each].filter_bytes(each, target) for each in network]
    if target.keeps(sum(sizes)):
        return {}
    most: dict[Problem | ProblemFamily, int] = {}
    coming = 0
    for problem, size in zip(reversed(network), reversed(sizes), strict=True):
        if coming:
            most[problem] = max(most.get(problem, 0), lines_of(coming, cast(CpuTarget, target)))  # others keep all
        coming = size if size >= LEAST_BYTES else 0
    return most


def lines_of(size: int, target: CpuTarget) -> int:
    """Return how many lines of a filter of so many bytes are prefetched."""
    return min(size, target.l3 // SHARE_OF_L3) // LINE_BYTES
