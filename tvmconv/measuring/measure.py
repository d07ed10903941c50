"""Measure candidates in a process that has loaded no more than a bundle's user: tvm-ffi and NumPy.

Runs in a `tvmconv.support.workers.Worker`, so that a candidate that crashes or hangs ends that process alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accuracy import difference
from ..problem import Problem
from ..runtime.processors import kernel_threads
from ..signature import format_signature
from .cores import Cores
from .quiet import least
from .race import Built, Race, Times, arrays_of, race

# Seconds of timing: some dozens of calls of most kernels, short beside building the candidate. And how long to wait for a
# busy neighbour.
TRIAL_SECONDS, TRIAL_PATIENCE = 0.02, 0.5
# Times to time a call again, if threads are moved meanwhile.
MOVES = 3


@dataclass(frozen=True)
class Check:
    """Check the answer of a library and time it.

    Attributes
    ----------
    problem, numerical_class
        What the library computes, and how its answer may differ.
    library
        The library.
    cut_off
        Seconds of a call beyond which it is not measured more exactly.
    cold_bytes
        As for `tvmconv.measuring.race.Race`.
    """

    problem: Problem
    numerical_class: str
    library: Built
    cut_off: float = inf
    cold_bytes: int = 0

    def __str__(self) -> str:
        return f"measuring {format_signature(self.problem)}"


@dataclass(frozen=True)
class Measured:
    """The answer to a Check.

    Attributes
    ----------
    seconds
        The least that a call took; None if the answer was wrong.
    wrong
        How the answer differs from the reference; empty if it does not.
    """

    seconds: float | None
    wrong: str = ""


@cache
def cores() -> Cores:
    """Return the watch over this process's threads."""
    return Cores(kernel_threads())


def measure(task: Check | Race) -> Measured | Times:
    """Answer a Check with Measured, a Race with Times."""
    if isinstance(task, Race):
        return race(task, cores())
    inputs, output, expected = arrays_of(task.problem)
    call = task.library.call([*inputs, output], task.cold_bytes)
    _make_wrong(output, expected)
    call()
    wrong = difference(output.view(expected.dtype), expected, task.numerical_class, task.problem)
    if wrong:
        return Measured(None, wrong)
    for _ in range(MOVES):
        cores().settle()
        seconds = least(call, TRIAL_SECONDS, TRIAL_PATIENCE, task.cut_off).seconds
        if cores().settled():
            break
    return Measured(seconds)


def _make_wrong(output: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Fill an output with NaN, or with integers other than `expected`, so that elements that a kernel fails to write are wrong."""
    if np.issubdtype(expected.dtype, np.integer):
        first_bit = 1 << 8 * expected.itemsize - 1
        unsigned = f"u{expected.itemsize}"
        output.view(unsigned)[...] = expected.view(unsigned) ^ first_bit
    else:
        output.fill(0xFFFF if output.dtype == np.uint16 else np.nan)
