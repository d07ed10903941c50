"""Measuring candidates, in a process that has only what a user of a bundle has loaded: tvm-ffi and NumPy.

Runs in a `tvmconv.workers.Worker`, so that a candidate that crashes or hangs ends that process alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from .cores import Cores
from .cpu import kernel_threads
from .problem import Problem
from .quiet import least
from .race import Built, Race, Times, arrays_of, race
from .signature import format_signature

# Long enough for the least of some dozens of calls of most kernels, short beside building the candidate; and how long
# to wait for a busy neighbour.
TRIAL_SECONDS, TRIAL_PATIENCE = 0.02, 0.5
# How often to time a call, if threads are moved meanwhile.
MOVES = 3
# Relative L2 errors that are allowed to transforms (Winograd), as oneDNN's own tests do.
# Factors are rounded to 11 bits, each by at most 2^-11 of itself: a product errs by 2^-10, sums of many by less.
TF32_ERROR = 2.0**-10
TRANSFORM_ERROR = {"f32": 2e-5, "f16": 7e-3, "bf16": 6e-2}


@dataclass(frozen=True)
class Check:
    """Check the answer of a library and time it.

    Attributes
    ----------
    problem, numerical_class
        What it computes, and how its answer may differ.
    library
        The library.
    hopeless
        Seconds of a call for which nobody wants to know more exactly how long it takes.
    """

    problem: Problem
    numerical_class: str
    library: Built
    hopeless: float = inf

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
    call = task.library.call([*inputs, output])
    # What a kernel fails to write stays NaN.
    output.fill(0xFFFF if output.dtype == np.uint16 else np.nan)
    call()
    wrong = difference(output.view(expected.dtype), expected, task.numerical_class, task.problem.dtype)
    if wrong:
        return Measured(None, wrong)
    for _ in range(MOVES):
        cores().settle()
        seconds = least(call, TRIAL_SECONDS, TRIAL_PATIENCE, task.hopeless).seconds
        if cores().settled():
            break
    return Measured(seconds)


def difference(got: npt.NDArray[Any], expected: npt.NDArray[Any], numerical_class: str, dtype: str) -> str:
    """Return how `got` differs from the reference on an exact fill; empty if no more than its class may.

    The fill's integers are TF32 numbers, so TF32 is exact too.
    """
    if numerical_class in ("exact", "tf32"):
        wrong = got != expected
        if not wrong.any():
            return ""
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        return (
            f"{np.count_nonzero(wrong)} of {wrong.size} outputs differ; the first, at {list(first)}, "
            f"is {float(got[first])} and should be {float(expected[first])}"
        )
    return inaccuracy(got, expected, numerical_class, dtype)


def inaccuracy(got: npt.NDArray[Any], expected: npt.NDArray[Any], numerical_class: str, dtype: str) -> str:
    """Return how far `got` is from the reference on normal data; empty if no more than its class may."""
    error, most = relative_error(got, expected), TF32_ERROR if numerical_class == "tf32" else TRANSFORM_ERROR[dtype]
    # A NaN compares false with everything.
    if error <= most:
        return ""
    what = "TF32" if numerical_class == "tf32" else f"a {dtype} transform"
    return f"the relative L2 error is {error:.2g}; {what} may have {most:.2g}"


def relative_error(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the relative L2 error."""
    exact = expected.astype(np.float64)
    return float(np.linalg.norm(got.astype(np.float64) - exact) / max(float(np.linalg.norm(exact)), 1e-30))
