"""Steps of a plan that may run at once, in groups of those that follow each other.

Where a call has many threads, the loops of a group are one (`lowering/native/launcher.c`): threads come once for all, and those
that find no task of one step have another's. A step that waits for what one of the group writes begins the next group, and so does one
with which more memory would be needed at once than any step needs alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from .network_plan import IF, PlanStep, Region, Storage


def firsts_beside(steps: Sequence[PlanStep], prepared: int) -> list[int]:
    """Return of each step the number of the first of its group.

    Alone are the first `prepared` steps, and all of a plan that has an If.
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
    """Return steps of which the first of each group says how many follow."""
    members = Counter(firsts)
    return [replace(step, beside=members[number] - 1 if number in members else 0) for number, step in enumerate(steps)]


def _uses(steps: Sequence[PlanStep]) -> tuple[dict[Storage, int], dict[Storage, int]]:
    """Return which step writes each storage, the first that has it, and which is the last that has it."""
    begins: dict[Storage, int] = {}
    ends: dict[Storage, int] = {}
    for number, step in enumerate(steps):
        for each in step.arguments:
            if each.storage.region in (Region.ARENA, Region.OUTPUT):
                begins.setdefault(each.storage, number)
                ends[each.storage] = number
    return begins, ends


def _count_bytes(begins: Mapping[Storage, int], ends: Mapping[Storage, int], steps: int) -> tuple[list[int], list[int]]:
    """Return of each step how many bytes of the arena it needs, and how many are written first by it and those before it."""
    changes, begun = [0] * (steps + 1), [0] * steps
    for each, begin in begins.items():
        if each.region is Region.ARENA:
            changes[begin] += each.size
            changes[ends[each] + 1] -= each.size
            begun[begin] += each.size
    return [*accumulate(changes[:-1])], [*accumulate(begun)]
