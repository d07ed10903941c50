"""How long our kernels take in each placement that the host of a virtual machine gives their threads, and how often it gives it.

Run with ``python -m benchmarks.cores [SUITE ...]``. Kernels take turns of some milliseconds, each of which counts for
where the threads ran before and after it (`tvmconv.measuring.cores`). One that takes far longer across caches has cores that write to one
cache line, or that read what another has just written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, get_args

import numpy as np

from tvmconv import load
from tvmconv.building.builder import build
from tvmconv.cli.output import print_table, progress_bar
from tvmconv.fills import numpy_dtype, random_fill
from tvmconv.measuring.cores import Cores, Where
from tvmconv.measuring.timing import sample_call
from tvmconv.problem import DTYPES, Problem
from tvmconv.runtime.processors import kernel_threads

from .commands import print_errors
from .compare import FILTER_FORMATS, NETWORKS, read_suites

PLACES = get_args(Where)
# Long enough for some dozens of calls of most kernels, short beside the seconds that threads stay where they are.
TURN_SECONDS = 0.01

# Seconds that a call of each kernel took in its turns at each place.
Times = dict[str, dict[Where, list[float]]]


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Time the kernels of the suites that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cores", description=__doc__)
    parser.add_argument("sources", nargs="*", metavar="SUITE", help="as of benchmarks.compare; default: all suites")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="default %(default)s")
    parser.add_argument("--layout", choices=FILTER_FORMATS, default="nxc", help="NXC/XIO or NCX/OIX, default nxc")
    parser.add_argument("--seconds", type=float, default=200, help="for all kernels together, default %(default)s")
    arguments = parser.parse_args(argv)
    sources = arguments.sources or NETWORKS
    suites = read_suites(sources, arguments.dtype, arguments.layout)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cores.bundle"
        problems = list(dict.fromkeys(problem for suite in suites.values() for problem in suite))
        with progress_bar("building") as progress:
            build(problems, path, progress=progress)
        seen, times = watch(_calls(path, problems), Cores(kernel_threads()), arguments.seconds)
    print_times(seen, times)
    return 0


def _calls(path: Path, problems: Sequence[Problem]) -> dict[str, Callable[[], Any]]:
    """Return a call of each problem's kernel, its filter prepacked, by "algorithm signature"."""
    kernels = load(path)
    calls: dict[str, Callable[[], Any]] = {}
    for problem in problems:
        kernel: Any = kernels.lookup(problem)  # a CPU's, which packs filters
        arrays = random_fill(problem)
        output = np.empty(problem.output_shape, numpy_dtype(problem.dtype))
        name = f"{kernel.info.algorithm} {kernel.info.signature}"
        calls[name] = partial(kernel, **{**arrays.given(), "filter": kernel.pack(arrays.filter)}, out=output)
    return calls


def watch(calls: dict[str, Callable[[], Any]], cores: Cores, seconds: float) -> tuple[Counter[Where], Times]:
    """Time the calls in turns, for `seconds` and at least once each; return how often threads were where, and the times."""
    for call in calls.values():
        call()
        cores.where()  # which is the same cache shows in time
    seen: Counter[Where] = Counter()
    times: Times = {name: defaultdict(list) for name in calls}
    start, now = time.monotonic(), 0.0
    with progress_bar("timing") as progress:
        while now < seconds:
            for name, call in calls.items():
                before = cores.where()
                taken = median(sample_call(call, TURN_SECONDS))
                after = cores.where()
                seen[after] += 1
                if before == after:
                    times[name][after].append(taken)
            now = time.monotonic() - start
            progress(int(min(now, seconds)), int(seconds), "")
    return seen, times


def print_times(seen: Counter[Where], times: Times) -> None:
    """Print a line for each kernel, those first that take the longest across caches, and what all take at each place."""
    medians = {name: {place: median(taken) for place, taken in of.items()} for name, of in times.items()}
    ratios = {
        place: {
            name: of[place] / of["same cache"] for name, of in medians.items() if place in of and "same cache" in of
        }
        for place in PLACES
    }
    order = sorted(medians, key=lambda name: -ratios["cross cache"].get(name, 0.0))
    table = []
    for name in order:
        algorithm, signature = name.split()
        cells = [f"{medians[name][place] * 1e6:.1f}" if place in medians[name] else "-" for place in PLACES]
        ratio = ratios["cross cache"].get(name)
        table.append([signature, algorithm, *cells, "-" if ratio is None else f"{ratio:.2f}"])
    print_table(["signature", "algorithm", *(f"{place} us" for place in PLACES), "cross / same cache"], table)
    for place in PLACES:
        share = seen[place] / max(1, seen.total())
        known = place != "same cache" and ratios[place]
        mean = f": {geometric_mean(ratios[place].values()):.2f} times as long as in the same cache" if known else ""
        print(f"{place}: {share:.0%} of the time{mean}")


if __name__ == "__main__":
    sys.exit(main())
