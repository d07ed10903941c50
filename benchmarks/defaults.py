"""Is the algorithm of least estimate the fastest? Times the default schedule of every algorithm of each problem.

Only algorithms that the problem's default could have been: those that cover it, `plain` aside.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import geometric_mean

from tvmconv.algorithms import table as algorithms
from tvmconv.cli.output import print_table, progress_bar
from tvmconv.problem import DTYPES, Problem
from tvmconv.runtime.processors import kernel_threads
from tvmconv.signature import format_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.evaluate import Evaluator

from .compare import FILTER_FORMATS, NETWORKS, read_suites


@dataclass(frozen=True)
class Row:
    """One problem.

    Attributes
    ----------
    cycles, seconds
        By algorithm, the one that is taken first: its estimate, and what its default schedule takes.
    """

    signature: str
    cycles: dict[str, float]
    seconds: dict[str, float]

    @property
    def loss(self) -> float:
        """How many times as long as the fastest the one that is taken takes."""
        return next(iter(self.seconds.values())) / min(self.seconds.values())


def main() -> int:
    """Run the study that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("source", nargs="*", help="suites or signatures; default: all of benchmarks/suites")
    parser.add_argument("--target", default="host", help="default: host")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="default: %(default)s")
    parser.add_argument("--layout", choices=FILTER_FORMATS, default="nxc", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=kernel_threads(), help="default: all")
    parser.add_argument("--output", help="write a JSON report to this file")
    arguments = parser.parse_args()
    target = Target.parse(arguments.target)
    sources = arguments.source or NETWORKS
    suites = read_suites(sources, arguments.dtype, arguments.layout).values()
    problems = list(dict.fromkeys(problem for suite in suites for problem in suite))
    jobs = len(os.sched_getaffinity(0))
    rows: list[Row] = []
    with Evaluator(jobs=jobs, threads=arguments.threads) as evaluator, progress_bar("timing") as progress:
        for number, problem in enumerate(problems):
            progress(number, len(problems), format_signature(problem))
            rows += study(problem, target, evaluator)
    _print(rows)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


def study(problem: Problem, target: Target, evaluator: Evaluator) -> Iterator[Row]:
    """Yield the row of a problem that several algorithms cover; none of others."""
    spaces = [space for space in evaluator.spaces(problem, target, "default") if space.algorithm != "plain"]
    if len(spaces) < 2:
        return
    candidates = [space.defaults[0] for space in spaces]
    trials = list(evaluator.trials(problem, target, spaces, candidates, inf))
    failed = [f"{trial.candidate}: {trial.status} {trial.detail}" for trial in trials if trial.seconds is None]
    for line in failed:
        print(f"{format_signature(problem)}: {line}", file=sys.stderr)
    seconds = {trial.candidate.algorithm: trial.seconds for trial in trials if trial.seconds is not None}
    cycles = {name: algorithms.get(name).cycles(problem, target) for name in seconds}
    yield Row(format_signature(problem), cycles, seconds)


def _print(rows: list[Row]) -> None:
    header = ("signature", "taken", "us", "fastest", "us", "loss")
    table = []
    for row in sorted(rows, key=lambda row: -row.loss):
        taken, fastest = next(iter(row.seconds)), min(row.seconds, key=lambda name: row.seconds[name])
        times = [f"{row.seconds[name] * 1e6:.1f}" for name in (taken, fastest)]
        table.append([row.signature, taken, times[0], fastest, times[1], f"{row.loss:.3f}"])
    print_table(header, table)
    if rows:
        losses = [row.loss for row in rows]
        right = sum(loss == 1.0 for loss in losses)
        print(
            f"{len(rows)} problems, of {right} the fastest is taken; the geometric mean of (taken / fastest) is "
            f"{geometric_mean(losses):.3f}, the worst {max(losses):.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
