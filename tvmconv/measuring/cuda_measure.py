"""Measuring candidates for GPUs, on the GPU alone; the twin of `tvmconv.measuring.measure`.

Runs in a `tvmconv.support.workers.Worker`. A kernel that the GPU does not survive ends that process, since CUDA is of no use in
it any more; the next candidate gets another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_void_p
from functools import lru_cache
from typing import Any

import numpy.typing as npt

from ..accuracy import difference
from ..errors import CudaError
from ..problem import Problem
from ..runtime.cuda.driver import driver
from ..runtime.cuda.memory import DeviceArray
from .cases import case_of
from .cuda_timing import LaunchGraph, array_sets, launches, new_stream
from .measure import Check, Measured
from .race import Race, Times

GPU = 0
# Samples of a candidate, the least of which counts; turns of each finalist.
SAMPLES, TURNS = 5, 9


def measure(task: Check | Race) -> Measured | Times:
    """Answer a Check with Measured, a Race with Times; turns take the place of a CPU's placements of arrays."""
    try:
        with new_stream(GPU) as stream:
            return _race(task, stream) if isinstance(task, Race) else _check(task, stream)
    except CudaError as error:
        raise RuntimeError(str(error)) from error  # no TvmconvError: it ends this process


def _check(task: Check, stream: int) -> Measured:
    sets, expected = _arrays(task.problem)
    output = sets[0][-1]
    output.fill(0xFF)  # elements that a kernel fails to write stay NaN
    calls = launches(task.library.path, sets, stream)
    calls[0]()
    driver().call("cuStreamSynchronize", c_void_p(stream))
    wrong = difference(output.numpy(), expected, task.numerical_class, task.problem)
    if wrong:
        return Measured(None, wrong)
    with _capture(calls, stream) as graph:
        return Measured(min(graph.sample() for _ in range(SAMPLES)))


def _race(task: Race, stream: int) -> Times:
    """Time the libraries in turns, the first once more."""
    sets, graphs = _arrays(task.problem)[0], []
    for library in (*task.libraries, task.libraries[0]):
        calls = launches(library.path, sets, stream)
        calls[0]()  # loads the code, which is not to be captured
        graphs.append(LaunchGraph(calls, stream))
    turns = [[graph.sample() for graph in graphs] for _ in range(TURNS)]
    for graph in graphs:
        graph.close()
    *seconds, again = zip(*turns, strict=True)
    return Times(tuple(seconds), again, (True,) * TURNS)  # a GPU works for one process at a time


@contextmanager
def _capture(calls: list[Callable[[], object]], stream: int) -> Iterator[LaunchGraph]:
    graph = LaunchGraph(calls, stream)
    yield graph
    graph.close()


@lru_cache(maxsize=1)
def _arrays(problem: Problem) -> tuple[list[list[DeviceArray]], npt.NDArray[Any]]:
    """Return sets of inputs and output, the same memory for every candidate, and the expected output."""
    arrays, expected = case_of(problem)
    return array_sets(problem, arrays, GPU), expected
