"""Which search strategy finds the fastest kernels: after as many candidates, or after as many seconds.

Each tunes every layer from nothing, with the same seed. What each found then races with the default schedule, in one
process and in several placements of the arrays.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import geometric_mean, median

from benchmarks.metaschedule_search import MetaScheduleSearch
from tvmconv.cli.output import print_table
from tvmconv.cli.tune import progress_line
from tvmconv.frontends import read_source
from tvmconv.isa.machine import model_name
from tvmconv.measuring.race import LEAST_QUIET
from tvmconv.problem import Problem
from tvmconv.runtime.processors import kernel_threads
from tvmconv.signature import format_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.evaluate import Evaluator
from tvmconv.tuning.machine import check_tunable
from tvmconv.tuning.problem_tuner import MakeSearch, Session
from tvmconv.tuning.records import Records
from tvmconv.tuning.search import Candidate
from tvmconv.tuning.trials import read_by_machine
from tvmconv.tuning.tuner import tune_all

STRATEGIES = ("tvmconv", "replay-trace", "evolutionary")
COST_MODELS = ("random", "xgb")  # xgb needs xgboost


@dataclass(frozen=True)
class Outcome:
    """What one strategy came to on one layer.

    Attributes
    ----------
    candidates, seconds
        Measured, and that took, races apart.
    fastest
        Of the candidates.
    """

    candidates: int
    seconds: float
    fastest: Candidate


@dataclass(frozen=True)
class Row:
    """Seconds of the default schedule and of what each strategy found, and how many candidates a second it measured."""

    signature: str
    default: float
    fastest: Mapping[str, float]
    rates: Mapping[str, float]


def main() -> int:
    """Run the study that the command line asks for."""
    arguments = _arguments()
    target = check_tunable(Target.parse(arguments.target))
    rows = []
    with Evaluator(len(os.sched_getaffinity(0)), kernel_threads()) as evaluator:
        for problem in islice(_large(arguments.sources, arguments.least, evaluator, target), arguments.layers):
            outcomes = {each: _tune(problem, each, arguments, evaluator, target) for each in STRATEGIES}
            row = _row(problem, target, outcomes, evaluator)
            if row is not None:
                rows.append(row)
                print(json.dumps(asdict(row)), file=sys.stderr, flush=True)
    _print(rows)
    if arguments.output:
        about = {"cpu": model_name(), "threads": kernel_threads(), "target": target.name}
        report = {**vars(arguments), **about, "rows": [asdict(row) for row in rows]}
        Path(arguments.output).write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strategies", description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a TOML suite, an ONNX file or a signature")
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--trials", type=int, help="candidates of each strategy for each layer")
    budget.add_argument("--seconds", type=float, help="of each strategy for each layer, its race included")
    parser.add_argument("--layers", type=int, default=20, help="at most, default %(default)s")
    parser.add_argument("--least", type=int, default=200, help="schedules that a layer has, default %(default)s")
    parser.add_argument("--cost-model", choices=COST_MODELS, default="random", help="default: %(default)s")
    parser.add_argument("--target", default="host", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--output", help="write a JSON report to this file")
    return parser.parse_args()


def _large(sources: Sequence[str], least: int, evaluator: Evaluator, target: Target) -> Iterator[Problem]:
    """Yield the distinct problems that have so many schedules."""
    for problem in dict.fromkeys(problem for source in sources for problem in read_source(source)):
        if not problem.is_empty:
            spaces = evaluator.spaces(problem, target, "default")
            if sum(sketch.size for space in spaces for sketch in space.sketches) >= least:
                yield problem


def _tune(
    problem: Problem, strategy: str, arguments: argparse.Namespace, evaluator: Evaluator, target: Target
) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="tvmconv-strategies-") as folder, progress_line(None) as progress:
        how = (evaluator, target, Records(folder, shipped=False), model_name(), arguments.seed)
        session = Session(*how, search=_search(strategy, arguments, target))
        start, raced = time.monotonic(), evaluator.spent["racing"]
        tune_all(session, [problem], arguments.trials, arguments.seconds, progress)
        seconds = time.monotonic() - start - (evaluator.spent["racing"] - raced)
        (trials,) = read_by_machine(Path(folder), target.name, format_signature(problem)).values()
    return Outcome(len(trials), seconds, min(trials, key=lambda trial: trial.cost).candidate)


def _search(strategy: str, arguments: argparse.Namespace, target: Target) -> MakeSearch | None:
    """Return what makes the searches of a strategy; None: those of tuning."""
    if strategy == "tvmconv":
        return None
    how = (strategy, arguments.cost_model, arguments.seed)
    return lambda problem, spaces, measured, starts: MetaScheduleSearch(problem, target, spaces, *how, measured, starts)


def _row(problem: Problem, target: Target, outcomes: Mapping[str, Outcome], evaluator: Evaluator) -> Row | None:
    """Race what the strategies found; None if others disturbed it."""
    default = evaluator.spaces(problem, target, "default")[0].defaults[0]
    candidates = list(dict.fromkeys([default, *(outcome.fastest for outcome in outcomes.values())]))
    times = evaluator.race(problem, target, candidates).undisturbed()
    if len(times.quiet) < LEAST_QUIET:
        print(f"{format_signature(problem)} is left out: others used the processors", file=sys.stderr)
        return None
    seconds = dict(zip(candidates, map(median, times.seconds), strict=True))
    fastest = {name: seconds[outcome.fastest] for name, outcome in outcomes.items()}
    rates = {name: outcome.candidates / outcome.seconds for name, outcome in outcomes.items()}
    return Row(format_signature(problem), seconds[default], fastest, rates)


def _print(rows: Sequence[Row]) -> None:
    header = ("signature", "default us", *(f"{name} us" for name in STRATEGIES))
    table = [
        [row.signature, *(f"{each * 1e6:.1f}" for each in (row.default, *(row.fastest[name] for name in STRATEGIES)))]
        for row in rows
    ]
    print_table(header, table)
    for name in STRATEGIES if rows else ():
        gain = geometric_mean(row.default / row.fastest[name] for row in rows)
        rate = geometric_mean(row.rates[name] for row in rows)
        print(f"{name}: {gain:.3f} times as fast as the default (geometric mean), {rate:.1f} candidates a second")


if __name__ == "__main__":
    sys.exit(main())
