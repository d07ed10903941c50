"""What math that gives the same bits on every CPU costs beside the default: default plans of suites, filters prepacked, on one core.

    python -m benchmarks.reproducible resnet50 mobilenet_v1

Times are the processor's, the least of some calls in turns: other processes disturb them little.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean

import numpy as np

import tvmconv
from tvmconv.cli.output import print_table
from tvmconv.problem import Problem
from tvmconv.signature import format_signature

from .commands import print_errors
from .compare import FILTER_FORMATS, NETWORKS, read_suites

MATHS = ("default", "reproducible")
ROUNDS = 12
COLUMNS = ("suite", "layers", "algorithm by default", "default, us", "reproducible, us", "ratio", "mean ratio")


def time_layer(registries: Sequence[tvmconv.Registry], problem: Problem) -> list[float]:
    """Return the processor's seconds of a problem's kernel of each registry, called in turns."""
    generator, dtype = np.random.default_rng(0), np.float32
    given = {name: generator.standard_normal(shape).astype(dtype) for name, (shape, _) in problem.operands.items()}
    data, filters = given.pop("data"), given.pop("filter")

    def call_of(registry: tvmconv.Registry) -> Callable[[], object]:
        kernel = registry[format_signature(problem)]
        assert isinstance(kernel, tvmconv.Kernel)
        packed, out = kernel.pack(filters), kernel(data, filters, **given)
        return lambda: kernel(data, packed, out=out, **given)

    calls = [call_of(each) for each in registries]
    times = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            begin = time.thread_time()
            call()
            times[number] = min(times[number], time.thread_time() - begin)
    return times


def rows_of(name: str, problems: Sequence[Problem]) -> list[list[str]]:
    """Return the cells of a suite: of layers that a transform computes by default, of others, and of all."""
    with tempfile.TemporaryDirectory() as folder:
        bundles = [tvmconv.build(problems, Path(folder) / math, math=math, verify=False) for math in MATHS]
        registries = [tvmconv.load(each, threads=1) for each in bundles]
        found = [
            (registries[0][format_signature(each)].info.algorithm, time_layer(registries, each)) for each in problems
        ]
    rows = []
    for kind, transform in (("transform", True), ("other", False), ("all", None)):
        times = [both for algorithm, both in found if transform in (None, algorithm.startswith("winograd"))]
        if times:
            sums = [sum(each) * 1e6 for each in zip(*times, strict=True)]
            mean = geometric_mean(other / usual for usual, other in times)
            cells = [str(len(times)), kind, *(f"{each:.0f}" for each in sums)]
            rows.append([name, *cells, f"{sums[1] / sums[0]:.2f}", f"{mean:.2f}"])
    return rows


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of the suites that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproducible", description=__doc__)
    parser.add_argument("sources", nargs="*", metavar="SUITE", help="as of benchmarks.compare; default: all suites")
    parser.add_argument("--layout", choices=FILTER_FORMATS, default="nxc", help="NXC/XIO or NCX/OIX, default nxc")
    arguments = parser.parse_args(argv)
    suites = read_suites(arguments.sources or NETWORKS, "f32", arguments.layout)
    print_table(COLUMNS, [row for name, problems in suites.items() for row in rows_of(name, problems)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
