"""Orders in which threads may take the tasks of a plan's steps, and how long they take; see `benchmarks.side_by_side`."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, zip_longest
from typing import Any

from .simulated_cores import LOOP, WAKES, Simulated

WAKE = WAKES[-1]
# How many threads at most, and the microseconds of tasks.
Part = tuple[int, Sequence[float]]


@dataclass(frozen=True)
class Step:
    """A step of a plan: what it does, and the numbers of earlier steps that it waits for."""

    does: Simulated
    needs: frozenset[int] = frozenset()

    def parts(self) -> list[Part]:
        """Return what it does, one part after the other: how many threads at most, and the microseconds of tasks."""
        return [*([(1, [self.does.between])] if self.does.between else []), *self.does.loops]


def longest_way(steps: Sequence[Step], times: Sequence[float]) -> list[float]:
    """Return of each step the microseconds from its begin to the end of all, if steps that take such times only wait for what they need."""
    found = list(times)
    for number in reversed(range(len(steps))):
        for needed in steps[number].needs:
            found[needed] = max(found[needed], times[needed] + found[number])
    return found


def in_turn(steps: Sequence[Step], threads: int, wake: float | None = None) -> float:
    """Return how long steps take one after another, as today; parameters are those of `side_by_side`."""
    return sum(each.does.makespan(wake) for each in steps)


def cut_evenly(does: Simulated, threads: int) -> Simulated:
    """Return a call with as many equal tasks in each loop as pay, where it has fewer."""
    loops: list[Part] = []
    for asked, times in does.loops:
        work = sum(times)
        pay = min(threads, round((work / WAKE) ** 0.5))
        loops.append((pay, [work / pay] * pay) if pay > len(times) else (asked, times))
    return replace(does, loops=loops)


def side_by_side(steps: Sequence[Step], threads: int, wake: float | None = None) -> float:
    """Return when the last step ends, if threads take tasks of all steps that wait for nothing; `wake` as of `Simulated.makespan`."""
    urgent = longest_way(steps, [each.does.makespan(wake) for each in steps])
    parts = [iter(each.parts()) for each in steps]
    waiting = [len(each.needs) for each in steps]
    # Of each step whose part has begun: its threads yet to come, its tasks that nobody took, and how many run.
    ready: dict[int, list[Any]] = {}
    # When, in which order, of which step; the part that begins, or None: a task ends.
    events: list[tuple[float, int, int, Part | None]] = []
    order, now, free = count(), 0.0, threads

    def go_on(step: int) -> None:
        """Begin the next part of a step, or those that wait for it."""
        part = next(parts[step], None)
        if part is not None:
            wakes = 0.0 if wake is None or part[0] == 1 else LOOP + wake * (min(part[0], len(part[1])) - 1)
            heapq.heappush(events, (now + wakes, next(order), step, part))
            return
        for number, other in enumerate(steps):
            if step in other.needs:
                waiting[number] -= 1
                if waiting[number] == 0:
                    go_on(number)

    for number, each in enumerate(steps):
        if not each.needs:
            go_on(number)
    while events:
        now, _, step, part = heapq.heappop(events)
        if part is not None:
            ready[step] = [part[0], list(reversed(part[1])), 0]
        else:
            free += 1
            ready[step][0] += 1
            ready[step][2] -= 1
        if not ready[step][1] and ready[step][2] == 0:
            del ready[step]
            go_on(step)
        if events and events[0][0] == now:
            continue
        for number in sorted(ready, key=lambda number: -urgent[number]):
            allowed, tasks, _ = ready[number]
            for _ in range(min(free, allowed, len(tasks))):
                heapq.heappush(events, (now + tasks.pop(), next(order), number, None))
                free -= 1
                ready[number][0] -= 1
                ready[number][2] += 1
    return now


def by_levels(steps: Sequence[Step], threads: int, wake: float | None = None) -> float:
    """Return how long all take if steps of as many steps before them have their first loops as one, then their second, and so on."""
    depths: list[int] = []
    for step in steps:
        depths.append(1 + max((depths[each] for each in step.needs), default=-1))
    found = 0.0
    for depth in range(max(depths, default=-1) + 1):
        level = [step.parts() for step, of in zip(steps, depths, strict=True) if of == depth]
        for together in zip_longest(*level, fillvalue=(0, ())):
            asked = min(threads, sum(each for each, _ in together))
            tasks = sorted((each for _, times in together for each in times), reverse=True)
            found += Simulated([(asked, tasks)]).makespan(wake if asked > 1 else None)
    return found
