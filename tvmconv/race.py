"""The final race: several right kernels of one problem, timed in turns in every placement of the arrays.

Runs where `tvmconv.measure` does, in a process of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy.typing as npt
import tvm_ffi

from .fills import exact_case
from .placements import PLACEMENTS
from .problem import Problem
from .quiet import Least, least
from .signature import format_signature

# How long a kernel's turn is, and how long it may wait for a busy neighbour.
TURN_SECONDS, TURN_PATIENCE = 0.005, 0.1
# Undisturbed turns that each kernel takes in each placement, and when to go on without them: long kernels take one.
TURNS = 3
PLACEMENT_SECONDS = 0.75


@dataclass(frozen=True)
class Race:
    """Time several checked libraries of one problem in turns.

    Attributes
    ----------
    problem, paths
        The problem and the libraries. The first is timed twice: how far the two differ is the noise.
    """

    problem: Problem
    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"comparing the fastest kernels of {format_signature(self.problem)}"


@dataclass(frozen=True)
class Times:
    """The answer to a Race.

    Attributes
    ----------
    seconds
        For each library, the least that a call took in each placement.
    again
        The same of the first library, timed once more in turn with all.
    """

    seconds: tuple[tuple[float, ...], ...]
    again: tuple[float, ...]


def race(task: Race) -> Times:
    """Time the libraries."""
    arrays, expected = exact_case(task.problem)
    given = [array for array in (*arrays, expected) if array is not None]
    kernels = [tvm_ffi.load_module(path)["tvmconv_kernel"] for path in (*task.paths, task.paths[0])]
    by_placement = [_turns(kernels, placement.copy(given)) for placement in PLACEMENTS]
    *seconds, again = zip(*by_placement, strict=True)
    return Times(tuple(seconds), again)


def _turns(kernels: list[Any], arrays: list[npt.NDArray[Any]]) -> list[float]:
    """Return the least seconds of each kernel on these arrays: undisturbed, if it ever was."""
    arguments = [tvm_ffi.from_dlpack(array) for array in arrays]
    calls = [partial(kernel, *arguments) for kernel in kernels]
    turns: list[list[Least]] = [[] for _ in calls]
    end = time.perf_counter() + PLACEMENT_SECONDS
    while not turns[0] or (min(map(_quiet, turns)) < TURNS and time.perf_counter() < end):
        order = list(zip(calls, turns, strict=True))
        # There and back: who follows whom, and what drifts, favours nobody.
        for call, of_call in order if len(turns[0]) % 2 == 0 else reversed(order):
            of_call.append(least(call, TURN_SECONDS, TURN_PATIENCE))
    return [
        min([turn.seconds for turn in of_call if turn.quiet] or [turn.seconds for turn in of_call]) for of_call in turns
    ]


def _quiet(turns: list[Least]) -> int:
    return sum(turn.quiet for turn in turns)
