"""Time calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# Length of a sample, beside which reading the clock (about 50 ns) does not count.
SAMPLE_SECONDS = 2e-4
LEAST_SAMPLES = 5


@dataclass(frozen=True)
class Timing:
    """Seconds of a call: the median and the least of some samples."""

    median: float
    least: float
    samples: int


def time_call(call: Callable[[], object], seconds: float) -> Timing:
    """Time `call` for about `seconds` after a warm-up of a quarter of that, in at least `LEAST_SAMPLES` samples."""
    return summarize(sample_call(call, seconds))


def sample_call(
    call: Callable[[], object], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return samples of the seconds that `call` takes by `clock`, measured as :func:`time_call` says."""
    calls, start = 0, clock()
    while calls == 0 or clock() - start < seconds / 4:
        call()
        calls += 1
    once = (clock() - start) / calls
    batch = max(1, round(SAMPLE_SECONDS / once))
    samples: list[float] = []
    end = clock() + seconds
    while len(samples) < LEAST_SAMPLES or clock() < end:
        start = clock()
        for _ in range(batch):
            call()
        samples.append((clock() - start) / batch)
    return samples


def summarize(samples: list[float]) -> Timing:
    """Return the median and the least of `samples`."""
    return Timing(statistics.median(samples), min(samples), len(samples))
