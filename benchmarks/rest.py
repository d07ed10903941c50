"""A library's turn in a comparison: timed, and over when its threads take no core from the next."""

from __future__ import annotations

import time
from collections.abc import Callable

from tvmconv.measuring.timing import sample_call

# Longer than the ticks by which the system counts the time of threads that run on, 10 ms at most.
LOOK = 0.02
# Seconds after which threads are taken to spin for ever.
PATIENCE = 1.0


def take_turn(
    call: Callable[[], object], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return samples of the seconds that `call` takes, as `sample_call` does, when this process rests again."""
    samples = sample_call(call, seconds, clock)
    rest()
    return samples


def rest() -> None:
    """Return when the threads of this process sleep, or patience ends.

    They wait for the next call awake: onnxruntime's for 40 ms on a Zen 5, in which what was timed next, on all cores, took
    twice as long.
    """
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        used = time.process_time()
        time.sleep(LOOK)
        if time.process_time() - used < LOOK / 10:
            return
