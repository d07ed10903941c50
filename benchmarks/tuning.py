"""How fast the tuner is, and how close a short run comes to a longer one.

Tunes the problems within some seconds, then goes on for several times as long in a copy of the records. Both runs'
winners then race, in one process and in several placements of the arrays, where neither was measured before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean, median

from tvmconv.algorithms.table import MATHS
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
from tvmconv.tuning.problem_tuner import Session, TuneResult
from tvmconv.tuning.records import Records
from tvmconv.tuning.tuner import tune_all


@dataclass(frozen=True)
class Run:
    """One run over all problems.

    Attributes
    ----------
    wanted, seconds
        The time it was given and the time it took.
    candidates
        Built and measured.
    describing, building, measuring, racing
        What of the time went where; the rest is the search, records and waiting.
    """

    wanted: float
    seconds: float
    candidates: int
    describing: float
    building: float
    measuring: float
    racing: float

    def __str__(self) -> str:
        shares = (f"{name} {spent / self.seconds:.0%}" for name, spent in list(asdict(self).items())[3:])
        return (
            f"{self.candidates} candidates in {self.seconds:.0f} s, {self.candidates / self.seconds:.1f} a second with "
            f"everything, {self.candidates / (self.building + self.measuring or 1.0):.1f} built and measured a second: "
            f"{', '.join(shares)}"
        )


@dataclass(frozen=True)
class Row:
    """Seconds of the default schedule and of both runs' winners, each the median over the placements."""

    signature: str
    default: float
    short: float
    long: float


def main() -> int:
    """Run the study that the command line asks for."""
    arguments = _arguments()
    problems = list(dict.fromkeys(p for source in arguments.sources for p in read_source(source) if not p.is_empty))
    target = check_tunable(Target.parse(arguments.target))
    with tempfile.TemporaryDirectory(prefix="tvmconv-tuning-") as folder:
        short, long = Path(folder) / "short", Path(folder) / "long"
        first, short_results = _run(problems, target, short, arguments.seconds, arguments.math)
        print(f"short: {first}", flush=True)
        shutil.copytree(short, long)
        rest = arguments.seconds * (arguments.times - 1)
        second, long_results = _run(problems, target, long, rest, arguments.math)
        print(f"long: {second} more", flush=True)
    rows = _compare(problems, target, short_results, long_results, arguments.math)
    _print(rows)
    if arguments.output:
        report = {
            "cpu": model_name(), "threads": kernel_threads(), "target": target.name, "sources": arguments.sources,
            "short": asdict(first), "long": asdict(second), "rows": [asdict(row) for row in rows],
        }  # fmt: skip
        Path(arguments.output).write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a TOML suite, an ONNX file or a signature")
    parser.add_argument("--seconds", type=float, default=570, help="of the short run, default 570")
    parser.add_argument("--times", type=float, default=10, help="how many times longer the long run is, default 10")
    parser.add_argument("--target", default="host", help="default: host")
    parser.add_argument("--math", choices=MATHS, default="default", help="default: %(default)s")
    parser.add_argument("--output", help="write a JSON report to this file")
    return parser.parse_args()


def _run(
    problems: Sequence[Problem], target: Target, folder: Path, seconds: float, math: str
) -> tuple[Run, list[TuneResult]]:
    """Tune into `folder`, going on where it stands."""
    before = _trials(folder)
    with _evaluator() as evaluator, progress_line(None) as progress:
        session = Session(evaluator, target, Records(folder, shipped=False), model_name(), 0, math)
        start = time.monotonic()
        results = tune_all(session, problems, None, seconds, progress)
        run = Run(seconds, time.monotonic() - start, _trials(folder) - before, **evaluator.spent)
    return run, results


def _trials(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.glob("*/trials/*.jsonl"))


def _compare(
    problems: Sequence[Problem],
    target: Target,
    short: Sequence[TuneResult],
    long: Sequence[TuneResult],
    math: str,
) -> list[Row]:
    """Race both runs' winners and the default schedule; what does not work, or was disturbed, is left out."""
    rows = []
    with _evaluator() as evaluator:
        for problem, one, other in zip(problems, short, long, strict=True):
            if one.record is not None and other.record is not None:
                default = evaluator.spaces(problem, target, math)[0].defaults[0]
                candidates = [default, one.record.candidate, other.record.candidate]
                times = evaluator.race(problem, target, list(dict.fromkeys(candidates))).undisturbed()
                if len(times.quiet) < LEAST_QUIET:
                    print(f"{format_signature(problem)} is left out: others used the processors", file=sys.stderr)
                    continue
                seconds = dict(zip(dict.fromkeys(candidates), map(median, times.seconds), strict=True))
                rows.append(Row(format_signature(problem), *(seconds[candidate] for candidate in candidates)))
    return rows


def _evaluator() -> Evaluator:
    return Evaluator(jobs=len(os.sched_getaffinity(0)), threads=kernel_threads())


def _print(rows: list[Row]) -> None:
    table = [
        [row.signature]
        + [f"{seconds * 1e6:.1f}" for seconds in (row.default, row.short, row.long)]
        + [f"{row.default / row.short:.3f}", f"{row.short / row.long:.3f}"]
        for row in rows
    ]
    print_table(("signature", "default us", "short us", "long us", "default / short", "short / long"), table)
    gain, behind = (
        [getattr(row, a) / getattr(row, b) for row in rows] for a, b in (("default", "short"), ("short", "long"))
    )
    print(f"geometric mean of (default / short) {geometric_mean(gain):.3f}, worst {min(gain):.3f}")
    print(f"geometric mean of (short / long) {geometric_mean(behind):.3f}, worst {max(behind):.3f}")


if __name__ == "__main__":
    sys.exit(main())
