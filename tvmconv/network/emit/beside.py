"""Groups of consecutive independent steps of a plan, which may run at once.

Where a call has many threads, the loops of a group become one (`lowering/native/launcher.c`): threads are woken once, and those that find
no task in one step take another step's. A step that reads what the group writes begins the next group; so does one with which the group
would need more memory at once than any single step does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from .network_plan import IF, PlanStep, Region, Storage


def firsts_beside(steps: Sequence[PlanStep], prepared: int) -> list[int]:
    """Return for each step the number of its group's first step.

    The first `prepared` steps, and all steps of a plan with an If, are groups of their own.
    """
    alone = list(range(len(steps)))
    if any(step.function == IF for step in steps):
        return alone
    begins, ends = _uses(steps)
    needed, begun = _count_bytes(begins, ends, len(steps))
    most = max(needed, default=0)
    firsts: list[int] = []
    for number, step in enumerate(steps):
        first = firsts[-1] if number > prepared else number
        waits = any(first <= begins[each.storage] < number for each in step.arguments if each.storage in begins)
        at_once = needed[first] + begun[number] - begun[first]
        firsts.append(number if waits or at_once > most else first)
    return firsts


def with_beside(steps: Sequence[PlanStep], firsts: Sequence[int]) -> list[PlanStep]:
    """Return steps with `beside` set in the first of each group."""
    members = Counter(firsts)
    return [replace(step, beside=members[number] - 1 if number in members else 0) for number, step in enumerate(steps)]


def _uses(steps: Sequence[PlanStep]) -> tuple[dict[Storage, int], dict[Storage, int]]:
    """Return the first step that uses each storage, which writes it, and the last one."""
    begins: dict[Storage, int] = {}
    ends: dict[Storage, int] = {}
    for number, step in enumerate(steps):
        for each in step.arguments:
            if each.storage.region in (Region.ARENA, Region.OUTPUT):
                begins.setdefault(each.storage, number)
                ends[each.storage] = number
    return begins, ends


def _count_bytes(begins: Mapping[Storage, int], ends: Mapping[Storage, int], steps: int) -> tuple[list[int], list[int]]:
    """Return for each step the live bytes of the arena, and the total bytes of all storages begun up to this step."""
    changes, begun = [0] * (steps + 1), [0] * steps
    for each, begin in begins.items():
        if each.region is Region.ARENA:
            changes[begin] += each.size
            changes[ends[each] + 1] -= each.size
            begun[begin] += each.size
    return [*accumulate(changes[:-1])], [*accumulate(begun)]
