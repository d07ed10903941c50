"""Time calls from one or several threads at once, one sample a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

LEAST_CALLS = 5


@dataclass(frozen=True)
class Latency:
    """Seconds that calls took.

    Parameters
    ----------
    median, p90, p99, least
        Seconds that half, 90 % and 99 % of all calls did not exceed; and the least.
    calls
        Number of calls.
    throughput
        Calls in a second, of all callers together.
    """

    median: float
    p90: float
    p99: float
    least: float
    calls: int
    throughput: float


def time_callers(callers: Sequence[Callable[[], object]], seconds: float) -> Latency:
    """Time calls for about `seconds` after a warm-up of a quarter of that.

    Parameters
    ----------
    callers
        Functions, one a thread, which the thread calls again and again.
    seconds
        Time to spend; each caller calls at least `LEAST_CALLS` times.
    """

    def sample(call: Callable[[], object], begin: float) -> list[float]:
        samples: list[float] = []
        now = time.perf_counter()
        while len(samples) < LEAST_CALLS or now < begin + seconds:
            start = now
            call()
            now = time.perf_counter()
            if start >= begin:
                samples.append(now - start)
        return samples

    begin = time.perf_counter() + seconds / 4
    with ThreadPoolExecutor(len(callers)) as pool:
        found = sorted(each for samples in pool.map(sample, callers, [begin] * len(callers)) for each in samples)
    taken = time.perf_counter() - begin

    def share(part: float) -> float:
        return found[min(len(found) - 1, int(part * len(found)))]

    return Latency(share(0.5), share(0.9), share(0.99), found[0], len(found), len(found) / taken)
