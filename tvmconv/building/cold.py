"""Which algorithms the layers of a network may have, by what their filters take: time to come from memory, and bytes.

A network reads each filter once for each answer, so no cache keeps those of a large one. Winograd's transformed filters are up to four
times as large as the model's at 3x3 taps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from ..algorithms.algorithm import Algorithm
from ..algorithms.cpu.cold import cold_lines
from ..algorithms.cpu.cost import cycles
from ..algorithms.table import applicable
from ..problem import Problem
from ..targets.target import Target
from ..tuning.records import Records


@dataclass(frozen=True)
class Room:
    """What the filters of a network may take, as kernels read them.

    Attributes
    ----------
    most_bytes
        All of them.
    most_loss
        Of the kernels' time by estimate, the part that may be lost for that: with more, filters stay larger.
    """

    most_bytes: float
    most_loss: float = inf


@dataclass(frozen=True)
class Way:
    """An algorithm that may compute a problem, the cycles that it takes, and the bytes of its filter."""

    algorithm: str
    cycles: float
    size: int
    is_default: bool


def algorithms_of(
    problems: Iterable[Problem],
    target: Target,
    math: str,
    network: Sequence[Problem] = (),
    room: Room | None = None,
    records: Records | None = None,
) -> dict[Problem, tuple[str, ...]]:
    """Return for each problem the names of the algorithms that it may have, the best first.

    Parameters
    ----------
    network
        The layers of the network that has the problems, each as often as it is called. Where no cache keeps their filters, algorithms
        are ordered by the time with filters from memory, and one whose filter is larger than the best one's is left out; not if a
        record that was measured so says that it is better.
    room
        What the filters of the network may take: those are made smaller first that lose the least time for each byte.
    """
    cold = is_cold(network, target)
    counts = Counter(network)
    ways = {each: _ways(each, target, math, cold, records) for each in dict.fromkeys((*network, *problems))}
    taken = within({each: ways[each] for each in counts}, counts, room)
    found = {}
    for problem, listed in ways.items():
        most = taken[problem].size if problem in taken and (cold or room is not None) else None
        found[problem] = tuple(each.algorithm for each in listed if most is None or each.size <= most)
    return {each: found[each] for each in problems}


def is_cold(network: Sequence[Problem], target: Target) -> bool:
    """Whether no cache keeps the filters of a network's layers, each listed as often as it is called."""
    return not target.keeps(sum(each.filter_bytes for each in network))


def within(
    ways: Mapping[Problem, Sequence[Way]], counts: Mapping[Problem, int], room: Room | None
) -> dict[Problem, Way]:
    """Return the fastest way of each problem, whose filters find room together, or take as little as they can.

    What loses the least time for each byte that is spared is given up first.
    """
    taken = {problem: listed[0] for problem, listed in ways.items()}
    if room is None or not ways:
        return taken
    spent = sum(each.size * counts[problem] for problem, each in taken.items())
    left = room.most_loss * sum(each.cycles * counts[problem] for problem, each in taken.items())
    while spent > room.most_bytes:
        smaller = [
            ((other.cycles - each.cycles) / (each.size - other.size), problem, other)
            for problem, each in taken.items()
            for other in ways[problem]
            if other.is_default and other.size < each.size and (other.cycles - each.cycles) * counts[problem] <= left
        ]
        if not smaller:
            break
        lost, problem, other = min(smaller, key=lambda step: step[0])
        spared = (taken[problem].size - other.size) * counts[problem]
        spent, left, taken[problem] = spent - spared, left - lost * spared, other
    return taken


def _ways(problem: Problem, target: Target, math: str, cold: bool, records: Records | None) -> list[Way]:
    """Return the ways to compute a problem, the fastest first."""
    listed = [_way(each, problem, target, cold) for each in applicable(problem, target, math)]
    record = records.best(problem, target, math) if records is not None and cold else None
    if record is not None and record.cold:  # by measurement
        least = min(each.cycles for each in listed)
        listed = [replace(each, cycles=least) if each.algorithm == record.algorithm else each for each in listed]
        return sorted(listed, key=lambda each: (not each.is_default, each.cycles, each.algorithm != record.algorithm))
    return sorted(listed, key=lambda each: (not each.is_default, each.cycles))


def _way(algorithm: Algorithm, problem: Problem, target: Target, cold: bool) -> Way:
    size = algorithm.filter_bytes(problem, target)
    took = algorithm.cycles(problem, target) + (cycles(cold_lines(problem, size), target) if cold else 0.0)
    return Way(algorithm.name, took, size, algorithm.is_default)
