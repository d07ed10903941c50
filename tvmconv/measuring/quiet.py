"""Timing on a machine that others use too.

A kernel's threads wait for each other without sleeping. When another process takes the core of one of
them, all wait for the scheduler: a call of 0.1 ms takes 8 to 24 ms, and with a single busy neighbour so do
nearly all calls for as long as it is busy. Such calls raise the count of involuntary context switches, so
samples are taken until some were not disturbed, or patience ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from resource import RUSAGE_SELF, getrusage

# Length of a sample, beside which reading clock and counter (about 1 microsecond) does not count.
SAMPLE_SECONDS = 2e-4
# Samples of one timing, undisturbed if possible.
SAMPLES = 5


@dataclass(frozen=True)
class Least:
    """The fastest of some samples: seconds of a call, and whether enough samples were undisturbed to believe it."""

    seconds: float
    quiet: bool


def least(call: Callable[[], object], seconds: float, patience: float, cut_off: float = inf) -> Least:
    """Time `call` for `seconds`, longer if others disturb it, but no longer than `patience`.

    The first call only warms up. A call that takes longer than `patience` is timed once, and one that takes longer than
    `cut_off` only until enough samples are undisturbed.
    """
    first = _once(call, 1)
    once = min(first, _once(call, 1))
    batch = max(1, round(SAMPLE_SECONDS / once))
    start = time.perf_counter()
    undisturbed, elapsed = 0, 0.0
    while (undisturbed < SAMPLES or (elapsed < seconds and once < cut_off)) and elapsed < patience:
        switches = getrusage(RUSAGE_SELF).ru_nivcsw
        once = min(once, _once(call, batch))
        undisturbed += getrusage(RUSAGE_SELF).ru_nivcsw == switches
        elapsed = time.perf_counter() - start
    return Least(once, undisturbed >= SAMPLES)


def _once(call: Callable[[], object], batch: int) -> float:
    start = time.perf_counter()
    for _ in range(batch):
        call()
    return (time.perf_counter() - start) / batch
