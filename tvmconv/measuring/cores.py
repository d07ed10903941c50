"""Observe whether each thread has a core of its own that shares a cache with the others.

The host of a virtual machine moves its processors about: for seconds, two of them are the hyperthreads of one core, or
cores that share no cache. Nothing that the system counts shows it, and kernels take up to five times as long
(``python -m benchmarks.cores`` measures both). A comparison waits until that is over.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from ..runtime.processors import allowed_processors
from .peak import load_library, run_steps

# A tenth of a millisecond of multiply-adds on a 3 GHz core, and some microseconds of round trips.
STEPS, TIMES = 2**14, 20
# Share of the highest speed seen below which, and factor of the shortest trip above which, threads
# were moved. Hyperthreads have 0.5, and other caches are 5 times as far; clocks change by 0.2, distances by 0.5.
SHARE, FARTHER = 0.75, 2.5
# Seconds between two looks, and of patience by default.
PAUSE, PATIENCE = 0.02, 5.0

# Places of threads: as good as ever seen; farther from each other; with less than a core each.
Where = Literal["same cache", "cross cache", "shared core"]


@dataclass(frozen=True)
class ThreadPlace:
    """Observed placement of threads.

    Attributes
    ----------
    share
        Least speed of a thread while all compute, as a share of one thread's while the others wait; at most 1.
    trip
        Seconds that a cache line takes to the farthest thread and back.
    """

    share: float
    trip: float


class Cores:
    """Observer of threads' processors.

    Parameters
    ----------
    threads
        Number of threads. One alone is not observed, nor are more than there are processors, or any without a C compiler.
    patience
        Seconds after which a better placement seen before is not expected to return.
    """

    def __init__(self, threads: int, patience: float = PATIENCE) -> None:
        self._threads = threads if threads <= len(allowed_processors()) else 1
        self._patience = patience
        self._best: ThreadPlace | None = None

    def where(self) -> Where:
        """Return the threads' place now, compared with the best one seen; ``"same cache"`` if they are not observed."""
        place = self._look()
        if place is None:
            return "same cache"
        best = self._best or place
        if place.share * SHARE > best.share:
            best = place  # the best until now was a shared core
        elif place.share >= SHARE * best.share:
            best = ThreadPlace(max(best.share, place.share), min(best.trip, place.trip))
        self._best = best
        if place.share < SHARE * best.share:
            return "shared core"
        return "cross cache" if place.trip > FARTHER * best.trip else "same cache"

    def settled(self) -> bool:
        """Return whether the threads run as well as ever observed."""
        return self.where() == "same cache"

    def settle(self) -> None:
        """Wait until they do, or until patience ends: then the present place becomes the best."""
        end = time.monotonic() + self._patience
        while not self.settled():
            if time.monotonic() > end:
                self._best = None
                return
            time.sleep(PAUSE)

    def _look(self) -> ThreadPlace | None:
        library = load_library("native") if self._threads > 1 else None
        if library is None:
            return None
        trip = library.tvmconv_round_trip(self._threads, TIMES)
        # More than 1: the thread alone was disturbed.
        return ThreadPlace(min(1.0, run_steps(library.tvmconv_share, self._threads, STEPS)), trip)
