"""Shares of threads in a kernel's tasks, by the elements that these store: nothing is compiled or timed."""

from __future__ import annotations

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
from .rewrites.cuts import axes_of, stores

COUNTS = (2, 4, 8, 16, 32, 64)
LEAST_GAIN = 1.1  # of twice as many threads


def find_tasks(problem: Problem, target: CpuTarget, choice: Choice) -> tuple[Any, ...]:
    """Return the parallel loops of a problem's kernel for prepacked filters, as a schedule has them."""
    definition, scheduled = schedule(problem, target, choice, EntryPoints.PACKED)
    functions = functions_of(lower(scheduled.mod, definition, EntryPoints.PACKED, last="apart").module)
    body = functions[PACKED_SYMBOL if PACKED_SYMBOL in functions else SYMBOL].body
    return tuple(loop for loop in find_all(body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL)


def divide_tasks(loop: Any, threads: int) -> tuple[int, float]:
    """Return the tasks of a parallel loop, as so many threads have them, and the elements that the largest stores."""
    tasks, shares = int(loop.extent), {}
    for name, axis in axes_of(loop).items():
        cuts = axis.cuts(tasks, threads)
        tasks, shares[name] = tasks * cuts, -(-axis.pieces // cuts) / axis.pieces
    return tasks, stores(loop.body, shares)


def speedup(loops: Sequence[Any], threads: int) -> float:
    """Return how much less the busiest of so many threads does than one alone, where loops follow each other."""
    work = sum(int(loop.extent) * stores(loop.body) for loop in loops)
    busiest = sum(-(-tasks // threads) * size for tasks, size in (divide_tasks(loop, threads) for loop in loops))
    return work / busiest if busiest else 1.0


def most_useful(loops: Sequence[Any]) -> int:
    """Return up to how many threads of COUNTS a kernel gains from twice as many."""
    useful = 1
    for threads in COUNTS:
        if speedup(loops, threads) < LEAST_GAIN * speedup(loops, useful):
            break
        useful = threads
    return useful
