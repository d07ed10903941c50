"""Time the kernels of a bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .bundle import Bundle, Entry, read_bundle
from .cuda import survey
from .cuda_timing import time_kernel
from .fills import random_fill
from .kernel import Kernel
from .selection import code_for, runnable
from .signature import parse_signature
from .timing import Timing, time_call

DEFAULT_SECONDS = 0.2


@dataclass(frozen=True)
class Row:
    """What was measured for one entry of a bundle.

    Attributes
    ----------
    signature, target, kind, algorithm, origin
        The entry, and the kind of its target.
    flops, nbytes
        Floating point operations of the problem, and bytes it reads and writes at the least.
    timing
        Seconds of a call: on a CPU with NumPy arrays and `out`, as a program would make it; on a GPU between events, with
        inputs that are not in its cache.
    packed
        The same with the filter packed ahead; None where the filter is read in place.
    """

    signature: str
    target: str
    kind: str
    algorithm: str
    origin: str
    flops: int
    nbytes: int
    timing: Timing
    packed: Timing | None


def bench(
    path: str | os.PathLike[str],
    *,
    seconds: float = DEFAULT_SECONDS,
    threads: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Row]:
    """Time every entry of the bundle at `path` that this machine can run, and whose output is not empty.

    Parameters
    ----------
    path
        The bundle's folder.
    seconds
        To spend on each entry, and again with its filter packed ahead, after a warm-up of a quarter of it.
    threads
        Number of threads; None: as many as OpenMP gives.
    progress
        Called as ``progress(done, total, what)``.

    Returns
    -------
    list of Row
        In the bundle's order.

    Raises
    ------
    BundleError
        If there is no bundle, or it is damaged.
    UnsupportedMachineError
        If this machine can run none of its kernels.
    """
    bundle = read_bundle(path)
    entries = runnable(bundle)
    rows = []
    for done, entry in enumerate(entries):
        if progress is not None:
            progress(done, len(entries), entry.signature)
        rows += _time(bundle, entry, seconds, threads)
    return rows


def _time(bundle: Bundle, entry: Entry, seconds: float, threads: int | None) -> list[Row]:
    problem, target = parse_signature(entry.signature), bundle.targets[entry.target]
    if problem.is_empty:
        return []
    facts = (entry.signature, entry.target, target.kind, entry.algorithm, entry.origin)
    if target.kind == "cuda":
        index = next(gpu.index for gpu in survey().gpus if code_for(target, gpu) is not None)
        timing = time_kernel(bundle.library(entry), problem, index, seconds)
        return [Row(*facts, problem.flops, problem.nbytes, timing, None)]
    kernel = Kernel(bundle, entry, threads)
    arrays = random_fill(problem)
    output = np.empty(problem.output_shape, arrays.data.dtype)
    timing = time_call(lambda: kernel(*arrays, out=output), seconds)
    packed = None
    if entry.packed_filter is not None:
        ahead = kernel.pack(arrays.filter)
        packed = time_call(lambda: kernel(arrays.data, ahead, arrays.bias, out=output), seconds)
    return [Row(*facts, problem.flops, problem.nbytes, timing, packed)]
