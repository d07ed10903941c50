"""What a process that takes turns between PyTorch and our kernels does; see `benchmarks.company`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tvmconv import load
from tvmconv.errors import missing_extra
from tvmconv.fills import random_fill
from tvmconv.signature import parse_signature

# Both about 1 ms on two cores, all they touch within the last cache.
SIGNATURE = "conv2d-n1-i128x28x28-o128x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
MATMUL = 512
WITH = ("convolution", "matmul")
# Turns of each side in one batch. Batches alone and in turns alternate, so that both meet the same machine.
TURNS = 20
# Files of the GNU, LLVM and Intel OpenMP libraries begin so.
OPENMP = ("libgomp", "libomp", "libiomp")


@dataclass(frozen=True)
class Task:
    """What one process measures: which library it loads first, and what it finds there."""

    order: str
    bundle: str
    batches: int

    def __str__(self) -> str:
        return f"taking turns, {self.order}"


@dataclass(frozen=True)
class Turns:
    """What taking turns with one operation of torch cost: time in turns / time alone, of each side."""

    operation: str
    ours: float
    torch: float


def measure(task: Task) -> tuple[list[str], list[Turns]]:
    """Return the OpenMP libraries of this process, and what taking turns with each operation of torch costs."""
    problem = parse_signature(SIGNATURE)
    arrays = random_fill(problem)
    output = np.empty(problem.output_shape, np.float32)
    kernel = load(task.bundle).lookup(problem)
    ours = partial(kernel, arrays.data, arrays.filter, None, out=output)
    if task.order == "tvmconv first":
        ours()
    operations = _torch_operations()
    ours()
    turns = []
    for name in WITH:
        operation = operations[name]
        together, alone, alone_torch = [], [], []
        pause = pause_torch = 1e-3
        for _ in range(task.batches):
            batch = take_turns(ours, operation)
            together += batch[1:]  # the first follows other company
            pause, pause_torch = median(b for _, b in batch), median(a for a, _ in batch)
            alone += [a for a, _ in take_turns(ours, partial(wait, pause))][1:]
            alone_torch += [b for b, _ in take_turns(operation, partial(wait, pause_torch))][1:]
        turns.append(
            Turns(name, median(a for a, _ in together) / median(alone), median(b for _, b in together) / median(alone_torch))
        )  # fmt: skip
    return openmp_libraries(Path("/proc/self/maps").read_text()), turns


def take_turns(first: Callable[[], Any], second: Callable[[], Any]) -> list[tuple[float, float]]:
    """Return the seconds of each of `TURNS` calls of `first` and of `second`, called in turn."""
    times = []
    for _ in range(TURNS):
        start = time.perf_counter()
        first()
        between = time.perf_counter()
        second()
        times.append((between - start, time.perf_counter() - between))
    return times


def wait(seconds: float) -> None:
    """Do nothing for `seconds` and stay on the core, as who calls a kernel does."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def openmp_libraries(maps: str) -> list[str]:
    """Return the distinct OpenMP libraries in the text of /proc/PID/maps."""
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if Path(path).name.startswith(OPENMP))


def _torch_operations() -> dict[str, Callable[[], Any]]:
    try:
        import torch
    except ModuleNotFoundError:
        raise missing_extra("bench", "torch") from None
    torch.set_grad_enabled(False)
    data = torch.randn(1, 128, 28, 28).contiguous(memory_format=torch.channels_last)
    filter_ = torch.randn(128, 128, 3, 3).contiguous(memory_format=torch.channels_last)
    left, right = torch.randn(MATMUL, MATMUL), torch.randn(MATMUL, MATMUL)
    return {
        "convolution": lambda: torch.conv2d(data, filter_, padding=1),
        "matmul": lambda: left @ right,
    }
