"""How evenly 2 to 64 threads share the kernels of a target, by the loops of their default plans: nothing is compiled or timed.

    python -m benchmarks.many_cores --target znver3 --target znver5 [SUITE ...]

Efficiency is ideal: what a kernel stores by one thread, by that of as many threads as there are, all as busy as the busiest. A task weighs
the elements that it stores, the tasks of a loop are alike, or count as the largest where a call cuts them, loops follow each other, and
the filter is prepacked. Threads, caches and memory take no time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from tvmconv.algorithms.table import MATHS
from tvmconv.cli.output import print_table, progress_bar
from tvmconv.lowering.compiler import default_choice
from tvmconv.lowering.cpu.sharing import COUNTS, divide_tasks, find_tasks, speedup
from tvmconv.problem import DTYPES, Problem
from tvmconv.signature import format_signature
from tvmconv.targets.target import CpuTarget, Target

from .commands import print_errors
from .compare import FILTER_FORMATS, NETWORKS, read_suites

POOR = 0.4  # efficiency that no layer is to have


@dataclass(frozen=True)
class Layer:
    """A problem's kernel for prepacked filters: its algorithm, and its parallel loops in order."""

    problem: Problem
    algorithm: str
    loops: tuple[Any, ...]

    def efficiency(self, threads: int) -> float:
        """Return the share of so many threads' time in which they do what one thread does."""
        return speedup(self.loops, threads) / threads


def layer(problem: Problem, target: CpuTarget, math: str = "default") -> Layer:
    """Return a problem's kernel by its default plan."""
    choice = default_choice(problem, target, math)
    return Layer(problem, choice.algorithm, find_tasks(problem, target, choice))


def summary(layers: Sequence[Layer]) -> list[list[str]]:
    """Return a row of cells for each number of threads: mean and least efficiency, and how many layers have a poor one."""
    rows = []
    for threads in COUNTS:
        found = [each.efficiency(threads) for each in layers]
        poor = sum(each < POOR for each in found)
        rows.append([str(threads), f"{geometric_mean(found):.2f}", f"{min(found):.2f}", str(poor)])
    return rows


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Print the efficiency of the suites that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_cores", description=__doc__)
    parser.add_argument("sources", nargs="*", metavar="SUITE", help="as of benchmarks.compare; default: all suites")
    parser.add_argument("--target", action="append", help="may be repeated; default: znver3 and znver5")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="default %(default)s")
    parser.add_argument("--layout", choices=FILTER_FORMATS, default="nxc", help="NXC/XIO or NCX/OIX, default nxc")
    parser.add_argument("--math", choices=MATHS, default="default", help="default %(default)s")
    parser.add_argument("--list", type=int, metavar="N", help="also print the N layers that 16 threads share worst")
    arguments = parser.parse_args(argv)
    suites = read_suites(arguments.sources or NETWORKS, arguments.dtype, arguments.layout)
    problems = list(dict.fromkeys(problem for suite in suites.values() for problem in suite))
    for name in arguments.target or ("znver3", "znver5"):
        target = Target.parse(name)
        if not isinstance(target, CpuTarget):
            parser.error(f"--target {name} is no CPU")
        with progress_bar("planning") as progress:
            layers = []
            for done, problem in enumerate(problems):
                progress(done, len(problems), format_signature(problem))
                layers.append(layer(problem, target, arguments.math))
        print_layers(name, [each for each in layers if each.loops], len(problems), arguments.list or 0)
    return 0


def print_layers(name: str, layers: Sequence[Layer], problems: int, listed: int) -> None:
    """Print a target's summary, and the layers that 16 threads share worst."""
    print(f"{name}: {problems} layers, {problems - len(layers)} of them of no parallel loop")
    if not layers:
        return
    print_table(["threads", "mean efficiency", "least", f"layers below {POOR}"], summary(layers))
    worst = sorted(layers, key=lambda each: (each.efficiency(16), each.efficiency(64)))[:listed]
    rows = [
        [
            format_signature(each.problem),
            each.algorithm,
            " ".join("{}:{:.0f}".format(*divide_tasks(loop, COUNTS[-1])) for loop in each.loops),
            *(f"{each.efficiency(threads):.2f}" for threads in (16, 64)),
        ]
        for each in worst
    ]
    if rows:
        print_table(["signature", "algorithm", "tasks for 64:stores of one", "16 threads", "64 threads"], rows)


if __name__ == "__main__":
    sys.exit(main())
