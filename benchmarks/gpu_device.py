"""How calls are timed on a GPU, and what the GPU can do at most. In a dry run the CPU stands in for it, with a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tvmconv.problem import Problem

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
Calls = Sequence[Callable[[], Any]]
# Sets of arrays that calls take turns on move the L2 cache twice, so that nothing is left from the last time.
CACHES, MAX_SETS, MAX_BYTES = 2, 64, 8 << 30
# A call shorter than this is captured in a graph on both sides: launching it takes as long as running it.
GRAPH_SECONDS = 1e-4
# A sample is so long that the events' resolution (0.5 microseconds) does not count.
SAMPLE_SECONDS = 1e-3
# The sides of the matrices, and the bytes, that the limits are measured with.
MATRIX, COPY_BYTES, REPEATS = 8192, 1 << 30, 10


class GpuDevice:
    """The first GPU, through PyTorch."""

    name = "cuda"

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(0)
        self.label = str(properties.name)
        self.l2_bytes = int(properties.L2_cache_size)
        self.matrix, self.copy_bytes = MATRIX, COPY_BYTES

    def seconds(self, run: Callable[[], object], times: int) -> float:
        """Return the seconds that `times` runs take on the GPU."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def capture(self, calls: Calls) -> Callable[[], object] | None:
        """Return what replays all of `calls`."""
        graph = torch.cuda.CUDAGraph()
        kept = []  # outputs keep their memory apart from each other's, as those of separate calls
        with torch.cuda.graph(graph):
            for call in calls:
                kept.append(call())

        def replay(kept: list[Any] = kept) -> None:
            graph.replay()

        return replay


class DryDevice:
    """The CPU, which shows that everything runs to its end. Its times mean nothing for a GPU."""

    name = "cpu"
    label = "dry run on the CPU"
    l2_bytes = 0
    matrix, copy_bytes = 256, 1 << 20

    def seconds(self, run: Callable[[], object], times: int) -> float:
        """Return the seconds that `times` runs take."""
        start = time.perf_counter()
        for _ in range(times):
            run()
        return time.perf_counter() - start

    def capture(self, calls: Calls) -> Callable[[], object] | None:
        """Return None: there are no graphs."""
        return None


Device = GpuDevice | DryDevice


class Contender:
    """One side of a comparison: calls on several sets of arrays, in turn.

    Parameters
    ----------
    calls
        Each makes one launch or more on the current stream. They were called before.
    """

    def __init__(self, device: Device, calls: Calls) -> None:
        self._device, self._calls = device, calls
        self._run: Callable[[], object] = self._all
        once = device.seconds(self._all, 1) / len(calls)
        self.is_graph = False
        if once < GRAPH_SECONDS:
            replay = device.capture(calls)
            if replay is not None:
                self._run, self.is_graph = replay, True
        self._times = max(1, round(SAMPLE_SECONDS / max(device.seconds(self._run, 1), 1e-7)))

    def _all(self) -> None:
        for call in self._calls:
            call()

    def sample(self) -> float:
        """Return the seconds of one call."""
        return self._device.seconds(self._run, self._times) / self._times / len(self._calls)


def sets_for(problem: Problem, device: Device) -> int:
    """Return how many sets of arrays to take turns on."""
    nbytes = max(problem.nbytes, 1)
    return max(1, min(1 + CACHES * device.l2_bytes // nbytes, MAX_SETS, MAX_BYTES // nbytes))


def matrix_rate(device: Device, dtype: str) -> float:
    """Return operations a second of a large product of random matrices by PyTorch: what the GPU gives this type."""
    shape = (device.matrix, device.matrix)
    left, right = (torch.randn(shape, device=device.name).to(DTYPES[dtype]) for _ in range(2))
    out = torch.empty(shape, dtype=DTYPES[dtype], device=device.name)
    return 2 * device.matrix**3 / _least(device, lambda: torch.mm(left, right, out=out))


def bandwidth(device: Device) -> float:
    """Return bytes a second, read and written, of a large copy by PyTorch."""
    source, target = (torch.zeros(device.copy_bytes, dtype=torch.uint8, device=device.name) for _ in range(2))
    return 2 * device.copy_bytes / _least(device, lambda: target.copy_(source))


def _least(device: Device, run: Callable[[], object]) -> float:
    device.seconds(run, 3)
    return min(device.seconds(run, 1) for _ in range(REPEATS))
