"""Measuring candidates for GPUs, on the GPU alone; the twin of `tvmconv.measure`.

Runs in a `tvmconv.workers.Worker`. A kernel that the GPU does not survive ends that process, since CUDA is of no use in
it any more; the next candidate gets another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_void_p
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from .cuda import survey
from .cuda_driver import driver
from .cuda_memory import DeviceArray
from .cuda_timing import Graph, new_stream, sets_for
from .errors import CudaError
from .fills import exact_case
from .measure import Check, Measured, Race, difference
from .problem import Problem

GPU = 0
# Samples of a candidate, of which the least counts, and turns of each finalist, of which the median does.
SAMPLES, TURNS = 5, 9
# A process holds so many bytes of arrays at most, whatever the cache.
MAX_BYTES = 4 << 30


def measure(task: Check | Race) -> Measured | list[float]:
    """Answer a Check with Measured, a Race with the seconds of each library."""
    try:
        with new_stream(GPU) as stream:
            return _race(task, stream) if isinstance(task, Race) else _check(task, stream)
    except CudaError as error:
        raise RuntimeError(str(error)) from error  # no TvmconvError: it ends this process


def _check(task: Check, stream: int) -> Measured:
    sets, expected = _arrays(task.problem)
    output = sets[0][-1]
    output.fill(0xFF)  # what a kernel fails to write stays not a number
    calls = _calls(task.problem, task.path, stream)
    calls[0]()
    driver().call("cuStreamSynchronize", c_void_p(stream))
    wrong = difference(output.numpy(), expected, task.numerical_class, task.problem.dtype)
    if wrong:
        return Measured(None, wrong)
    with _captured(calls, stream) as graph:
        return Measured(min(graph.sample() for _ in range(SAMPLES)))


def _race(task: Race, stream: int) -> list[float]:
    """Return each library's median over its turns."""
    graphs = []
    for path in task.paths:
        calls = _calls(task.problem, path, stream)
        calls[0]()  # loads the code, which is not to be captured
        graphs.append(Graph(calls, stream))
    turns = [[graph.sample() for graph in graphs] for _ in range(TURNS)]
    for graph in graphs:
        graph.close()
    return [median(of_one) for of_one in zip(*turns, strict=True)]


@contextmanager
def _captured(calls: list[Callable[[], object]], stream: int) -> Iterator[Graph]:
    graph = Graph(calls, stream)
    yield graph
    graph.close()


@lru_cache(maxsize=1)
def _arrays(problem: Problem) -> tuple[list[list[DeviceArray]], npt.NDArray[Any]]:
    """Return sets of inputs and output, the same memory for every candidate, and the expected output."""
    arrays, expected = exact_case(problem)
    count = min(sets_for(problem.nbytes, survey().gpus[GPU].l2_bytes), max(1, MAX_BYTES // max(problem.nbytes, 1)))
    sets = []
    for _ in range(count):
        inputs = [DeviceArray.of(array, GPU) for array in arrays if array is not None]
        sets.append([*inputs, DeviceArray(expected.shape, expected.dtype, GPU)])
    return sets, expected


def _calls(problem: Problem, path: str, stream: int) -> list[Callable[[], object]]:
    """Return calls that launch a library on `stream`, one for each set of arrays."""
    module = tvm_ffi.load_module(path)
    kernel, nbytes = module["tvmconv_kernel"], int(module["tvmconv_workspace_bytes"]())
    workspace = DeviceArray((nbytes,), np.dtype(np.uint8), GPU)

    def on(tensors: list[Any]) -> Callable[[], object]:
        return lambda: kernel(stream, workspace.address, *tensors)

    return [on([tvm_ffi.from_dlpack(array) for array in one]) for one in _arrays(problem)[0]]
