"""Measuring candidates, in a process that has only what a user of a bundle has loaded: tvm-ffi and NumPy.

Runs in a `tvmconv.workers.Worker`, so that a candidate that crashes or hangs ends that process alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from .fills import Arrays, exact_case
from .problem import Problem
from .quiet import Least, least
from .signature import format_signature

# Long enough for the least of some dozens of calls of most kernels, short beside building the candidate; and how long
# to wait for a busy neighbour.
TRIAL_SECONDS, TRIAL_PATIENCE = 0.02, 0.5
# A race: how long one finalist's turn is, how many turns each takes, and when to stop in any case.
TURN_SECONDS, TURN_PATIENCE = 0.01, 0.1
TURNS, LEAST_TURNS = 15, 3
RACE_SECONDS = 6.0
# Relative L2 errors that are allowed to transforms (Winograd), as oneDNN's own tests do.
TRANSFORM_ERROR = {"f32": 2e-5, "f16": 7e-3, "bf16": 6e-2}
_ALIGNMENT = 64


@dataclass(frozen=True)
class Check:
    """Check the answer of a library and time it.

    Attributes
    ----------
    problem, numerical_class
        What it computes, and how its answer may differ.
    path
        The library.
    """

    problem: Problem
    numerical_class: str
    path: str

    def __str__(self) -> str:
        return f"measuring {format_signature(self.problem)}"


@dataclass(frozen=True)
class Race:
    """Time several checked libraries of one problem in turns.

    Attributes
    ----------
    problem, paths
        The problem and the libraries.
    """

    problem: Problem
    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"comparing the fastest kernels of {format_signature(self.problem)}"


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


def measure(task: Check | Race) -> Measured | list[float]:
    """Answer a Check with Measured, a Race with the seconds of each library: the median of its turns' least."""
    if isinstance(task, Race):
        return _race(task)
    output, expected, call = _ready(task.problem, task.path)
    # What a kernel fails to write stays NaN.
    output.fill(0xFFFF if output.dtype == np.uint16 else np.nan)
    call()
    wrong = difference(output.view(expected.dtype), expected, task.numerical_class, task.problem.dtype)
    if wrong:
        return Measured(None, wrong)
    return Measured(least(call, TRIAL_SECONDS, TRIAL_PATIENCE).seconds)


def difference(got: npt.NDArray[Any], expected: npt.NDArray[Any], numerical_class: str, dtype: str) -> str:
    """Return how `got` differs from the reference on an exact fill; empty if no more than its class may."""
    if numerical_class == "exact":
        wrong = got != expected
        if not wrong.any():
            return ""
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        return (
            f"{np.count_nonzero(wrong)} of {wrong.size} outputs differ; the first, at {list(first)}, "
            f"is {float(got[first])} and should be {float(expected[first])}"
        )
    error = relative_error(got, expected)
    # A NaN compares false with everything.
    if error <= TRANSFORM_ERROR[dtype]:
        return ""
    return f"the relative L2 error is {error:.2g}; a {dtype} transform may have {TRANSFORM_ERROR[dtype]:.2g}"


def relative_error(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the relative L2 error."""
    exact = expected.astype(np.float64)
    return float(np.linalg.norm(got.astype(np.float64) - exact) / max(float(np.linalg.norm(exact)), 1e-30))


def _race(task: Race) -> list[float]:
    """Return each library's median of its turns' least, of the undisturbed turns if there are any."""
    calls = [_ready(task.problem, path)[2] for path in task.paths]
    turns: list[list[Least]] = [[] for _ in calls]
    end = time.perf_counter() + RACE_SECONDS
    while len(turns[0]) < LEAST_TURNS or (min(map(_quiet, turns)) < TURNS and time.perf_counter() < end):
        for call, of_call in zip(calls, turns, strict=True):
            of_call.append(least(call, TURN_SECONDS, TURN_PATIENCE))
    return [
        median([turn.seconds for turn in of_call if turn.quiet] or [turn.seconds for turn in of_call])
        for of_call in turns
    ]


def _quiet(turns: list[Least]) -> int:
    return sum(turn.quiet for turn in turns)


def _ready(problem: Problem, path: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Callable[[], object]]:
    """Return the output array, the expected output, and a call of the library that fills the first."""
    inputs, output, expected = _arrays(problem)
    arguments = [tvm_ffi.from_dlpack(array) for array in (*inputs, output)]
    kernel = tvm_ffi.load_module(path)["tvmconv_kernel"]
    return output, expected, lambda: kernel(*arguments)


@lru_cache(maxsize=1)
def _arrays(problem: Problem) -> tuple[list[npt.NDArray[Any]], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return inputs and output for the kernel, the same memory for every candidate, and the expected output."""
    arrays: Arrays
    arrays, expected = exact_case(problem)
    inputs = [_aligned(array) for array in arrays if array is not None]
    return inputs, _aligned(np.zeros_like(expected)), expected


def _aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy that starts at a cache line, with the bits of bfloat16 as uint16."""
    bits = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    memory = np.empty(bits.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start : start + bits.nbytes].view(bits.dtype).reshape(bits.shape)
    copy[...] = bits
    return copy
