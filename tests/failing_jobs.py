"""Stand-ins for `tvmconv.building.fallbacks.attempt` in which some algorithms fail; they run in worker processes."""

from __future__ import annotations

import errno
import os
import time

from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.algorithm import Algorithm
from tvmconv.algorithms.definition import Definition
from tvmconv.building import fallbacks
from tvmconv.building.fallbacks import Attempt, BuiltKernel
from tvmconv.errors import ToolchainError
from tvmconv.problem import Problem
from tvmconv.runtime.verify import Answer, KernelCheck, check_kernel
from tvmconv.targets.target import Target

FAILING = tuple(
    each.name for each in algorithms.ALGORITHMS if each.kind == "cpu" and each.name not in ("plain", "constant")
)


def crash(task: Attempt) -> BuiltKernel | None:
    """Crash in the first algorithm, as a compiler might."""
    if task.way == task.job.decision.ways[0]:
        os.abort()
    return fallbacks.attempt(task)


def fill_disk(task: Attempt) -> BuiltKernel | None:
    """Find no room to write to in the first algorithm."""
    if task.way == task.job.decision.ways[0]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return fallbacks.attempt(task)


def fill_disk_of_compiler(task: Attempt) -> BuiltKernel | None:
    """Fail in the first algorithm as the C compiler does that finds no room to write to."""
    if task.way == task.job.decision.ways[0]:
        raise ToolchainError(f"the C compiler failed: ld: final link failed: {os.strerror(errno.ENOSPC)}")
    return fallbacks.attempt(task)


def raise_in_definition(task: Attempt) -> BuiltKernel | None:
    """Raise what TVM might in the definition of all algorithms but `plain`."""
    algorithms.ALGORITHMS = tuple(
        Failing(**vars(each)) if each.name in FAILING else each for each in algorithms.ALGORITHMS
    )
    return fallbacks.attempt(task)


class Failing(Algorithm):
    """An algorithm whose definition TVM does not take."""

    def define(self, problem: Problem, target: Target) -> Definition:
        """Raise what TVM might."""
        raise RuntimeError("Traceback of many lines\nInternalError: Check failed: (a) is false: no such loop")


def wrong_two_dimensions(task: Attempt) -> BuiltKernel | None:
    """Compile kernels that turn out to be wrong: of two-dimensional problems all but `plain`."""
    fails = task.job.problem.rank == 2 and task.way.algorithm in FAILING
    fallbacks.check_kernel = _wrong_answer if fails else check_kernel
    return fallbacks.attempt(task)


def wrong_everywhere_in_two_dimensions(task: Attempt) -> BuiltKernel | None:
    """Compile kernels that turn out to be wrong: of two-dimensional problems all."""
    fallbacks.check_kernel = _wrong_answer if task.job.problem.rank == 2 else check_kernel
    return fallbacks.attempt(task)


def wrong(task: Attempt) -> BuiltKernel | None:
    """Compile kernels that all turn out to be wrong."""
    fallbacks.check_kernel = _wrong_answer
    return fallbacks.attempt(task)


def _wrong_answer(check: KernelCheck) -> Answer:
    return Answer("exact", 1.0, "1 of 2 outputs differ")


def hang(task: Attempt) -> BuiltKernel | None:
    """Write half a library and hang, until who started this process has ended."""
    parent = os.getppid()
    path = f"{task.job.folder}/{task.job.target.folder}"
    os.makedirs(path, exist_ok=True)
    with open(f"{path}/half.so", "w") as file:
        file.write("half")
    while os.getppid() == parent:
        time.sleep(0.1)
    return None
