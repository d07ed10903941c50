"""What a process that takes turns between PyTorch and our kernels does; see `benchmarks.interference`."""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tvmconv import load
from tvmconv.errors import missing_extra
from tvmconv.fills import random_fill
from tvmconv.runtime.bundle import read_bundle, write_manifest
from tvmconv.signature import parse_signature

# Both about 1 ms on two cores, all they touch within the last cache.
SIGNATURE = "conv2d-n1-i128x28x28-o128x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
MATMUL = 512
WITH = ("convolution", "matmul")
# Turns of each side in one batch. Batches alone and in turns alternate, so that both meet the same machine.
TURNS = 20
# Files of the GNU, LLVM and Intel OpenMP libraries begin so (libgom: the second one, too).
LIBRARIES = ("libgom", "libomp", "libiomp")
# Whose library is loaded first, and so serves whoever asks for it by its name; or one for each, as there are where
# another is asked for (LLVM's, Intel's) or one is bundled under another name.
OPENMP = ("torch's", "the system's", "two")
# What kernels ask the loader for, and a name of the same length for a second one.
SONAME, OTHER_SONAME = "libgomp.so.1", "libgomq.so.1"


@dataclass(frozen=True)
class Task:
    """What one process measures.

    Attributes
    ----------
    openmp
        One of `OPENMP`: whose OpenMP library there is.
    bundle
        Folder with a kernel for `SIGNATURE`.
    batches
        How many batches of turns.
    """

    openmp: str
    bundle: str
    batches: int

    def __str__(self) -> str:
        return f"taking turns, with {self.openmp} OpenMP"


@dataclass(frozen=True)
class Side:
    """Median seconds of one side's calls: alone, with pauses as long as the other's turns, and in turns with it."""

    alone: float
    in_turns: float

    @property
    def slowdown(self) -> float:
        """How many times as long a call takes in turns."""
        return self.in_turns / self.alone


@dataclass(frozen=True)
class Turns:
    """What taking turns with one operation of torch cost each side."""

    operation: str
    ours: Side
    torch: Side


def measure(task: Task) -> tuple[list[str], list[Turns]]:
    """Return the OpenMP libraries of this process, and what taking turns with each operation of torch costs."""
    if task.openmp == "the system's":
        ctypes.CDLL(SONAME)
    problem = parse_signature(SIGNATURE)
    arrays = random_fill(problem)
    output = np.empty(problem.output_shape, np.float32)
    operations = _torch_operations()
    with tempfile.TemporaryDirectory() as folder:
        bundle = _with_another_openmp(task.bundle, folder) if task.openmp == "two" else task.bundle
        kernel = load(bundle).lookup(problem)
        ours = partial(kernel, arrays.data, arrays.filter, None, out=output)
        ours()
    turns = []
    for name in WITH:
        operation = operations[name]
        together, alone, alone_torch = [], [], []
        pause = pause_torch = 1e-3
        for _ in range(task.batches):
            batch = take_turns(ours, operation)
            together += batch[1:]  # the first follows what the last batch called
            pause, pause_torch = median(b for _, b in batch), median(a for a, _ in batch)
            alone += [a for a, _ in take_turns(ours, partial(wait, pause))][1:]
            alone_torch += [b for b, _ in take_turns(operation, partial(wait, pause_torch))][1:]
        our_side = Side(median(alone), median(a for a, _ in together))
        turns.append(Turns(name, our_side, Side(median(alone_torch), median(b for _, b in together))))
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
    return sorted(path for path in paths if Path(path).name.startswith(LIBRARIES))


def _with_another_openmp(bundle: str, folder: str) -> Path:
    """Return a copy of a bundle, in `folder`, whose kernels ask for a copy of this process's OpenMP by another name.

    The copy is loaded, so that the loader finds it by that name.
    """
    (library,) = openmp_libraries(Path("/proc/self/maps").read_text())
    copy = Path(folder) / OTHER_SONAME
    copy.write_bytes(_renamed(Path(library)))
    ctypes.CDLL(str(copy))
    original = read_bundle(bundle)
    changed = replace(original, path=Path(folder) / "changed.bundle")
    entries = []
    for entry in original.entries:
        code = _renamed(original.path / entry.file)
        file = changed.path / entry.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
        entries.append(replace(entry, sha256=hashlib.sha256(code).hexdigest()))
    write_manifest(replace(changed, entries=tuple(entries)))
    return changed.path


def _renamed(library: Path) -> bytes:
    return library.read_bytes().replace(SONAME.encode(), OTHER_SONAME.encode())


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
