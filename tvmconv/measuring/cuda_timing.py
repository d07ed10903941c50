"""Time work on a GPU: launches captured in a CUDA graph, between two events, so that no host time counts.

The launches of a graph take turns on several sets of arrays, together larger than the L2 cache: a kernel that finds its
input there would be timed too fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi

from ..fills import Arrays, random_fill
from ..problem import Problem
from ..runtime.cuda.driver import Driver, driver
from ..runtime.cuda.gpus import survey
from ..runtime.cuda.memory import DeviceArray
from .timing import LEAST_SAMPLES, Timing, summarize

# CU_STREAM_NON_BLOCKING; CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_NON_BLOCKING, _THREAD_LOCAL = 1, 1
# Sizes of the L2 cache that one pass through the sets of arrays moves, so that nothing is left from the pass before.
CACHES = 2
# More launches in a graph would only take longer to capture; a launch of 2 microseconds is then timed by half a millisecond.
MAX_SETS = 256
# Most bytes of arrays of a process, whatever the cache.
MAX_BYTES = 4 << 30
# Length of a sample, beside which the events' resolution (0.5 microseconds) does not count.
SAMPLE_SECONDS = 5e-4


def array_sets(problem: Problem, arrays: Arrays, gpu: int) -> list[list[DeviceArray]]:
    """Return sets of a kernel's arguments on a GPU, the output last: enough that the cache holds none for long."""
    nbytes = max(problem.nbytes, 1)
    wanted = 1 + CACHES * survey().gpus[gpu].l2_bytes // nbytes
    sets = []
    for _ in range(max(1, min(wanted, MAX_SETS, MAX_BYTES // nbytes))):
        inputs = [DeviceArray.of(array, gpu) for array in arrays if array is not None]
        sets.append([*inputs, DeviceArray(problem.output_shape, arrays.data.dtype, gpu)])
    return sets


def launches(path: str | Path, sets: Sequence[Sequence[DeviceArray]], stream: int) -> list[Callable[[], object]]:
    """Return calls that launch the library at `path` on `stream`, one for each set of arrays."""
    module = tvm_ffi.load_module(str(path))
    kernel, nbytes = module["tvmconv_kernel"], int(module["tvmconv_workspace_bytes"]())
    workspace = DeviceArray((nbytes,), np.dtype(np.uint8), sets[0][-1].device.index)

    def on(tensors: list[Any]) -> Callable[[], object]:
        return lambda: kernel(stream, workspace.address, *tensors)

    return [on([tvm_ffi.from_dlpack(array) for array in arrays]) for arrays in sets]


def time_kernel(path: str | Path, problem: Problem, gpu: int, seconds: float) -> Timing:
    """Time the library at `path` on normal data for about `seconds`, or `LEAST_SAMPLES` samples."""
    sets = array_sets(problem, random_fill(problem), gpu)
    with new_stream(gpu) as stream:
        calls = launches(path, sets, stream)
        calls[0]()  # loads the code, which is not to be captured
        graph = LaunchGraph(calls, stream)
        once = graph.sample_seconds
        samples = [graph.sample() for _ in range(max(LEAST_SAMPLES, round(seconds / once)))]
        graph.close()
    return summarize(samples)


@contextmanager
def new_stream(gpu: int) -> Iterator[int]:
    """Make a GPU current in this thread, and yield a stream of its own."""
    cuda = driver()
    with cuda.device(gpu):
        yield cuda.create("cuStreamCreate", _NON_BLOCKING).value or 0


class LaunchGraph:
    """Launches on `stream`, captured: each of `calls` enqueues some of them there and nothing else.

    Attributes
    ----------
    sample_seconds
        Seconds of a sample.
    """

    def __init__(self, calls: Sequence[Callable[[], object]], stream: int) -> None:
        self._driver: Driver = driver()
        # The graph has only the addresses of their workspaces, which live as long as they do.
        self._calls = calls
        self._stream = c_void_p(stream)
        self._driver.call("cuStreamBeginCapture_v2", self._stream, _THREAD_LOCAL)
        try:
            for call in calls:
                call()
        finally:
            graph = self._driver.create_from("cuStreamEndCapture", self._stream)
        self._program = self._driver.create("cuGraphInstantiateWithFlags", graph, c_uint64(0))
        self._driver.call("cuGraphDestroy", graph)
        self._start, self._end = self._driver.event(timing=True), self._driver.event(timing=True)
        self.run(1)
        once = max(self.run(1), 1e-7)
        self._times = max(1, round(SAMPLE_SECONDS / once))
        self.sample_seconds = self._times * once

    def run(self, times: int) -> float:
        """Replay `times` and wait; return the seconds that it took."""
        self._driver.call("cuEventRecord", self._start, self._stream)
        for _ in range(times):
            self._driver.call("cuGraphLaunch", self._program, self._stream)
        self._driver.call("cuEventRecord", self._end, self._stream)
        self._driver.call("cuEventSynchronize", self._end)
        return self._driver.elapsed(self._start, self._end)

    def sample(self) -> float:
        """Return the seconds of one call, measured over at least `SAMPLE_SECONDS`."""
        return self.run(self._times) / self._times / len(self._calls)

    def close(self) -> None:
        """Release the graph and its events."""
        self._driver.call("cuGraphExecDestroy", self._program)
        for event in (self._start, self._end):
            self._driver.call("cuEventDestroy_v2", event)
