"""Time the kernels of a bundle."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..dtypes import numpy_dtype
from ..fills import random_fill
from ..measuring.cuda_timing import time_kernel
from ..measuring.timing import Timing, sample_call, summarize
from ..problem import Problem
from ..runtime.bundle import Bundle, Entry, read_bundle
from ..runtime.kernel import Kernel
from ..runtime.selection import BACKENDS, first_gpu, runnable
from ..signature import parse_signature
from ..support.progress import Progress

DEFAULT_SECONDS = 0.2
# Forms of the filter: plain, or prepacked.
PLAIN, PACKED = "plain", "packed"
# A variant's number, and a form of its filter.
Way = tuple[int, str]


@dataclass(frozen=True)
class BenchRow:
    """Measurements of one entry of a bundle.

    Attributes
    ----------
    signature, target, kind, algorithm, origin
        The entry, and the kind of its target.
    flops, nbytes
        Floating point operations of the problem, and the least bytes that it reads and writes.
    timing
        Seconds of a call: on a CPU with NumPy arrays and `out`, as in a program; on a GPU between events, with
        inputs that are not in its cache.
    packed
        The same with the filter prepacked; None where the filter is read in place.
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
    progress: Progress | None = None,
) -> list[BenchRow]:
    """Time each entry of the bundle at `path` that this machine can run and whose output is not empty.

    Parameters
    ----------
    path
        The bundle's folder.
    seconds
        Time to spend on each entry, and again with its filter prepacked, after a warm-up of a quarter of that.
    threads
        Number of threads; None: the default.
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
        rows += time_in_turn([(bundle, entry)], seconds, threads)
    return rows


def time_in_turn(
    variants: Sequence[tuple[Bundle, Entry]], seconds: float, threads: int | None, turns: int = 1
) -> list[BenchRow]:
    """Time kernels of one problem that this machine can run.

    Parameters
    ----------
    variants
        The kernels. Those of CPUs get the same arrays, so that their addresses favour none.
    seconds
        Time to spend on each in all its turns, and again with its filter prepacked.
    threads
        As for :func:`bench`.
    turns
        Number of turns of each CPU kernel, in turn with the others; GPU kernels take one turn each.

    Returns
    -------
    list of Row
        One row a variant; none if the output is empty.
    """
    problem = parse_signature(variants[0][1].signature)
    if problem.is_empty:
        return []
    timings = {
        (number, PLAIN): _time_on_gpu(bundle, entry, problem, seconds)
        for number, (bundle, entry) in enumerate(variants)
        if not BACKENDS[bundle.targets[entry.target].kind].packs
    }
    calls = _cpu_calls(variants, problem, threads)
    samples: dict[Way, list[float]] = {key: [] for key in calls}
    for turn in range(turns):
        # There and back, so that neither the order nor a drift of the clock favours one.
        for key in calls if turn % 2 == 0 else reversed(calls):
            samples[key] += sample_call(calls[key], seconds / turns)
    timings |= {key: summarize(each) for key, each in samples.items()}
    return [
        BenchRow(
            entry.signature,
            entry.target,
            bundle.targets[entry.target].kind,
            entry.algorithm,
            entry.origin,
            problem.flops,
            problem.nbytes,
            timings[number, PLAIN],
            timings.get((number, PACKED)),
        )
        for number, (bundle, entry) in enumerate(variants)
    ]


def _cpu_calls(
    variants: Sequence[tuple[Bundle, Entry]], problem: Problem, threads: int | None
) -> dict[Way, Callable[[], object]]:
    """Return the calls of the variants for CPUs."""
    calls: dict[Way, Callable[[], object]] = {}
    arrays = random_fill(problem)
    output = np.empty(problem.output_shape, numpy_dtype(problem.types.output))
    for number, (bundle, entry) in enumerate(variants):
        if not BACKENDS[bundle.targets[entry.target].kind].packs:
            continue
        kernel = Kernel(bundle, entry, threads)
        calls[number, PLAIN] = partial(kernel, **arrays.given(), out=output)
        if entry.packed_filter is not None:
            packed = {**arrays.given(), "filter": kernel.pack(arrays.filter)}
            calls[number, PACKED] = partial(kernel, **packed, out=output)
    return calls


def _time_on_gpu(bundle: Bundle, entry: Entry, problem: Problem, seconds: float) -> Timing:
    index = first_gpu(bundle.targets[entry.target])
    return time_kernel(bundle.library(entry), problem, index, seconds)
