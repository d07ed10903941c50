"""Places of a network's arrays in its arena."""

from __future__ import annotations

import numpy as np

from tvmconv.runtime.networks.placing import Lifetime, largest_gap, place

RNG = np.random.default_rng(0)


def test_no_two_arrays_of_the_arena_meet() -> None:
    for _ in range(50):
        lifetimes = []
        for _ in range(30):
            first = int(RNG.integers(0, 40))
            size = int(RNG.integers(1, 5000))
            lifetimes.append(Lifetime(size, first, first + int(RNG.integers(0, 9))))
        offsets, size = place(lifetimes, {int(RNG.integers(0, 40)): int(RNG.integers(0, 20000)) for _ in range(9)})
        for number, (one, start) in enumerate(zip(lifetimes, offsets, strict=True)):
            assert start % 64 == 0 and start + one.size <= size
            for other, begin in zip(lifetimes[:number], offsets, strict=False):
                if one.first <= other.last and other.first <= one.last:
                    assert start + one.size <= begin or begin + other.size <= start
        for step in range(50):
            begin, free = largest_gap(lifetimes, offsets, size, step)
            assert begin % 64 == 0 and free % 64 == 0 and begin + free <= size
            alive = [
                (at, at + one.size) for one, at in zip(lifetimes, offsets, strict=True) if one.first <= step <= one.last
            ]
            assert all(begin + free <= start or end <= begin for start, end in alive)
            assert free == size or alive


def test_arrays_make_room_for_a_workspace() -> None:
    lifetimes = [
        Lifetime(4096, 0, 1),
        Lifetime(4096, 1, 2),
        Lifetime(1024, 2, 3),
        Lifetime(1024, 3, 4),
        Lifetime(512, 4, 5),
    ]
    offsets, size = place(lifetimes, {})
    assert (offsets, size) == ([0, 4096, 1536, 5632, 1792], 8192)
    assert [largest_gap(lifetimes, offsets, size, step)[1] for step in (3, 4)] == [3072, 3328]
    for need in (3072, 8192):  # there is as much, or there is no way
        assert place(lifetimes, {3: need}) == (offsets, size)
    offsets, size = place(lifetimes, {3: 6144, 4: 3328})
    assert (offsets, size) == ([0, 4096, 0, 7168, 1792], 8192)
    assert largest_gap(lifetimes, offsets, size, 3) == (1024, 6144)
