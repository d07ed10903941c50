"""Place arrays of a plan in an arena whose memory is reused after an array's last use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..arrays import LINE_BYTES


@dataclass(frozen=True)
class Lifetime:
    """An array of `size` bytes, live from step `first` to step `last`."""

    size: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime], needs: Mapping[int, int]) -> tuple[list[int], int]:
    """Return an offset for each array, so that none overlap while both are live; and the bytes of the arena.

    Each array, in the given order, gets the first slot that is free during its life: recently used memory, which is still in caches.
    Arrays are centred in their slots. Threads split most arrays by rows, so a thread's share of arrays of any size is at a similar
    place, in its own core's cache.

    Parameters
    ----------
    needs
        By step, contiguous bytes that it needs besides. If only the gaps between centred arrays are too small, arrays that live then
        are moved to an end of their slots.
    """
    taken = slots_of(lifetimes)
    sizes = [0] * (max(taken, default=-1) + 1)
    for number, each in zip(taken, lifetimes, strict=True):
        sizes[number] = max(sizes[number], whole_lines(each.size))
    *begins, end = accumulate(sizes, initial=0)
    rooms = [sizes[number] - whole_lines(each.size) for number, each in zip(taken, lifetimes, strict=True)]
    middle = [begins[number] + room // 2 // LINE_BYTES * LINE_BYTES for number, room in zip(taken, rooms, strict=True)]

    def served(offsets: Sequence[int]) -> set[int]:
        return {step for step, need in needs.items() if largest_gap(lifetimes, offsets, end, step)[1] >= need}

    lacking = needs.keys() - served(middle)
    best: tuple[set[int], list[int]] = (set(), middle)
    for cut in range(1, len(sizes)) if lacking else ():
        ends = [begins[number] + (room if number >= cut else 0) for number, room in zip(taken, rooms, strict=True)]
        if len(found := lacking & served(ends)) > len(best[0]):
            best = found, ends
    steps, ends = best
    moved = [any(each.first <= step <= each.last for step in steps) for each in lifetimes]
    return [there if is_moved else here for is_moved, there, here in zip(moved, ends, middle, strict=True)], end


def slots_of(lifetimes: Sequence[Lifetime]) -> list[int]:
    """Return the number of each array's slot: the first that is free during its life."""
    slots: list[list[Lifetime]] = []
    taken: list[int] = []
    for each in lifetimes:
        apart = (all(other.last < each.first or each.last < other.first for other in slot) for slot in slots)
        number = next((number for number, free in enumerate(apart) if free), len(slots))
        if number == len(slots):
            slots.append([])
        slots[number].append(each)
        taken.append(number)
    return taken


def largest_gap(lifetimes: Sequence[Lifetime], offsets: Sequence[int], end: int, step: int) -> tuple[int, int]:
    """Return offset and bytes of the largest gap between the arrays that are live in a step, in whole cache lines."""
    taken = sorted(
        (offset, whole_lines(offset + each.size))
        for each, offset in zip(lifetimes, offsets, strict=True)
        if each.first <= step <= each.last
    )
    best, at = (0, 0), 0
    for begin, after in (*taken, (end, end)):
        if begin - at > best[1]:
            best = at, begin - at
        at = max(at, after)
    return best


def whole_lines(size: int) -> int:
    """Return a number of bytes rounded up to whole cache lines, at which kernels read best."""
    return -(-size // LINE_BYTES) * LINE_BYTES
