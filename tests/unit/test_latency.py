"""Calls that are timed one by one, from several threads."""

import threading

from tvmconv.measuring.latency import LEAST_CALLS, time_callers


def test_each_caller_has_a_thread() -> None:
    threads: list[set[int]] = [set(), set(), set()]
    together = threading.Barrier(3)
    for_once = [True] * 3

    def caller(number: int) -> None:
        if for_once[number]:
            for_once[number] = False
            together.wait(timeout=60)  # all three call at once
        threads[number].add(threading.get_ident())

    found = time_callers([lambda number=number: caller(number) for number in range(3)], 1e-3)  # type: ignore[misc]
    assert [len(each) for each in threads] == [1, 1, 1] and len(set.union(*threads)) == 3
    assert found.calls >= 3 * LEAST_CALLS
    assert found.least <= found.median <= found.p90 <= found.p99
