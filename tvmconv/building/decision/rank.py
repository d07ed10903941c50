"""Choose algorithms for a network's layers under a limit of bytes for filters, counting the time to read them from memory.

A network reads each filter once for each answer, so no cache keeps those of a large one. Winograd's transformed filters are up to four
times as large as the model's at 3x3 taps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from ...algorithms.cpu.model.cold import cold_lines
from ...algorithms.cpu.model.cost import cycles
from ...problem import Problem
from ...targets.target import Target
from ...tuning.records import Records
from .estimated import Option, options_of, options_of_network


@dataclass(frozen=True)
class Room:
    """Limits of a network's filters in the layouts that kernels read.

    Attributes
    ----------
    most_bytes
        Bytes of all filters.
    most_loss
        Part of the kernels' estimated time that may be lost for that: where more would be, filters stay larger.
    filters
        Number of distinct filters of a problem's layers; absent: each layer has its own.
    """

    most_bytes: float
    most_loss: float = inf
    filters: Mapping[Problem, int] = field(default_factory=dict)


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
        Layers of the network that has the problems, each as often as it is called. Where no cache keeps their filters, in the kernels'
        layouts, algorithms are ordered by the time with filters from memory, and those whose filters are larger than the best one's
        are left out, unless a record measured with cold filters says that one is better.
    room
        Limits of the network's filters: those are made smaller first that lose the least time for each byte.
    """
    counts = Counter(network)
    if network:
        hot = options_of_network((*network, *problems), target, math)
    else:
        hot = {each: options_of(each, target, math) for each in dict.fromkeys(problems)}
    for cold in (False, True):
        options = {each: _order(each, listed, target, math, cold, records) for each, listed in hot.items()}
        taken = within({each: options[each] for each in counts}, counts, room)
        if _are_kept(taken, counts, target):
            break
    found = {}
    for problem, listed in options.items():
        most = taken[problem].size if problem in taken and (cold or room is not None) else None
        found[problem] = tuple(each.algorithm for each in listed if most is None or each.size <= most)
    return {each: found[each] for each in problems}


def is_cold(network: Sequence[Problem], target: Target, math: str) -> bool:
    """Return whether no cache keeps the filters of a network's layers, each listed as often as it is called."""
    counts = Counter(network)
    hot = {each: _order(each, options_of(each, target, math), target, math, False, None) for each in counts}
    return not _are_kept(within(hot, counts, None), counts, target)


def _are_kept(taken: Mapping[Problem, Option], counts: Mapping[Problem, int], target: Target) -> bool:
    """Return whether a cache keeps filters in the kernels' layouts: Winograd's alone may be too large."""
    return target.keeps(sum(each.size * counts[problem] for problem, each in taken.items()))


def within(
    options: Mapping[Problem, Sequence[Option]], counts: Mapping[Problem, int], room: Room | None
) -> dict[Problem, Option]:
    """Return each problem's fastest option such that all filters fit in the room, or the smallest options if none do.

    Options are given up first that lose the least time for each byte spared.
    """
    taken = {problem: listed[0] for problem, listed in options.items()}
    if room is None or not options:
        return taken
    filters = {problem: room.filters.get(problem, count) for problem, count in counts.items()}
    spent = sum(each.size * filters[problem] for problem, each in taken.items())
    left = room.most_loss * sum(each.cycles * counts[problem] for problem, each in taken.items())
    while spent > room.most_bytes:
        smaller = [
            (
                (other.cycles - each.cycles) * counts[problem],
                (each.size - other.size) * filters[problem],
                problem,
                other,
            )
            for problem, each in taken.items()
            for other in options[problem]
            if other.is_default and other.size < each.size and (other.cycles - each.cycles) * counts[problem] <= left
        ]
        if not smaller:
            break
        lost, spared, problem, other = min(smaller, key=lambda step: step[0] / step[1])
        spent, left, taken[problem] = spent - spared, left - lost, other
    return taken


def _order(
    problem: Problem, listed: Sequence[Option], target: Target, math: str, cold: bool, records: Records | None
) -> list[Option]:
    """Return options, the fastest first; `cold`: by their time with filters from memory."""
    if cold:
        listed = [replace(each, cycles=each.cycles + cycles(cold_lines(problem, each.size), target)) for each in listed]
    record = records.best(problem, target, math) if records is not None and cold else None
    if record is not None and record.cold:  # by measurement
        least = min(each.cycles for each in listed)
        listed = [replace(each, cycles=least) if each.algorithm == record.algorithm else each for each in listed]
        return sorted(listed, key=lambda each: (not each.is_default, each.cycles, each.algorithm != record.algorithm))
    return sorted(listed, key=lambda each: (not each.is_default, each.cycles))
