"""Estimate the speedup of a kernel by threads from the elements that its tasks store, without compiling or timing."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from tvm import tirx

from ...problem import Problem
from ...runtime.packed import PACKED_SYMBOL
from ...targets.target import CpuTarget
from ..common.entry_points import SYMBOL, EntryPoints
from ..common.rewrites import find_all
from ..compiler import Choice, schedule
from .functions import functions_of
from .lowering import lower
from .rewrites.tasks.cuts import FEW_THREADS, axes_of, stores
from .rewrites.tasks.together import steps_of, tasks_alike

COUNTS = (2, 4, 8, 16, 32, 64)
LEAST_GAIN = 1.1  # by doubling the threads


def find_tasks(problem: Problem, target: CpuTarget, choice: Choice) -> tuple[Any, ...]:
    """Return the parallel loops of a problem's kernel for prepacked filters."""
    definition, scheduled = schedule(problem, target, choice, EntryPoints.PACKED)
    functions = functions_of(lower(scheduled.mod, definition, EntryPoints.PACKED, last="apart").module)
    body = functions[PACKED_SYMBOL if PACKED_SYMBOL in functions else SYMBOL].body
    return tuple(loop for loop in find_all(body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL)


def divide_tasks(loop: Any, threads: int, together: Sequence[Any] = ()) -> tuple[int, float]:
    """Return the number of tasks of a parallel loop as cut for some threads, and the elements that the largest task stores.

    `together` are all loops that share the threads, this one included.
    """
    alike, cut, shares = tasks_alike(loop, together or [loop]), 1, {}
    for name, axis in axes_of(loop, sum(int(each.extent) * stores(each.body) for each in together)).items():
        cuts = axis.cuts(alike * cut, threads)
        cut, shares[name] = cut * cuts, -(-axis.pieces // cuts) / axis.pieces
    return int(loop.extent) * cut, stores(loop.body, shares)


def speedup(loops: Sequence[Any], threads: int) -> float:
    """Return the speedup of threads over one, by the busiest thread's work, with loops run in sequence or merged."""
    work = sum(int(loop.extent) * stores(loop.body) for loop in loops)
    steps = steps_of(loops) if threads > FEW_THREADS else [[loop] for loop in loops]
    busiest = sum(_busiest([divide_tasks(loop, threads, step) for loop in step], threads) for step in steps)
    return work / busiest if busiest else 1.0


def _busiest(loops: Sequence[tuple[int, float]], threads: int) -> float:
    """Return the stores of the busiest thread if each free thread takes the next task."""
    if len(loops) == 1:
        return -(-loops[0][0] // threads) * loops[0][1]
    free = [0.0] * threads
    for tasks, size in loops:
        for _ in range(tasks):
            heapq.heapreplace(free, free[0] + size)
    return max(free)


def most_useful(loops: Sequence[Any]) -> int:
    """Return the largest number of threads up to which each doubling in COUNTS gains."""
    useful = 1
    for threads in COUNTS:
        if speedup(loops, threads) < LEAST_GAIN * speedup(loops, useful):
            break
        useful = threads
    return useful
