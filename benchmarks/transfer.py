"""Does it help a problem that was never tuned to take over the schedule of the nearest tuned problem?

Leaves each recorded problem out in turn: it gets the schedule that the others' records suggest, which races against its
default schedule and its own record in several placements of the arrays.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean, median

from tvmconv.algorithms.table import MATHS
from tvmconv.cli.output import print_table, progress_bar
from tvmconv.errors import TvmconvError
from tvmconv.measuring.race import LEAST_QUIET
from tvmconv.runtime.processors import kernel_threads
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.evaluate import Evaluator
from tvmconv.tuning.records import Record, Records
from tvmconv.tuning.transfer import adapt, distance, donor


@dataclass(frozen=True)
class Row:
    """What was measured for one problem: a schedule taken over, the default and the problem's own.

    Attributes
    ----------
    signature, donor
        Of the problem, and of the one whose schedule it took over.
    distance
        Between the two.
    default, transferred, tuned
        Seconds, the median over the placements.
    worst
        The least of (default / transferred) of all placements.
    """

    signature: str
    donor: str
    distance: float
    default: float
    transferred: float
    tuned: float
    worst: float

    @property
    def gain(self) -> float:
        """How many times faster the schedule taken over is than the default."""
        return self.default / self.transferred


def main() -> int:
    """Run the study that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer", description=__doc__)
    parser.add_argument("--records", help="the records' folder; by default the user's, and those that ship")
    parser.add_argument("--target", default="host", help="default: host")
    parser.add_argument("--math", choices=MATHS, default="default", help="default: %(default)s")
    parser.add_argument("--output", help="write a JSON report to this file")
    arguments = parser.parse_args()
    target = Target.parse(arguments.target)
    records = Records(arguments.records).winners(target, arguments.math)
    threads = kernel_threads()
    with Evaluator(jobs=len(os.sched_getaffinity(0)), threads=threads) as evaluator, progress_bar("racing") as progress:
        rows: list[Row] = []
        for number, record in enumerate(records):
            progress(number, len(records), record.signature)
            rows += study(record, records, target, arguments.math, evaluator)
    _print(rows, len(records))
    if arguments.output:
        Path(arguments.output).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


def study(record: Record, records: Sequence[Record], target: Target, math: str, evaluator: Evaluator) -> Iterator[Row]:
    """Yield the row of the problem of `record`; none if the other records suggest its default schedule."""
    problem = parse_signature(record.signature)
    like = donor(problem, target, math, records)
    if like is None:
        return
    spaces = evaluator.spaces(problem, target, math)
    default, taken = spaces[0].defaults[0], adapt(like.candidate, spaces)
    if taken is None or taken == default:
        return
    try:
        times = evaluator.race(problem, target, [default, taken, record.candidate]).undisturbed()
    except TvmconvError as error:
        warnings.warn(f"{record.signature} is left out: {error}", stacklevel=2)
        return
    if len(times.quiet) < LEAST_QUIET:
        warnings.warn(f"{record.signature} is left out: others used the processors", stacklevel=2)
        return
    default_seconds, seconds, tuned_seconds = map(median, times.seconds)
    worst = min(d / t for d, t in zip(times.seconds[0], times.seconds[1], strict=True))
    away = distance(problem, parse_signature(like.signature))
    yield Row(record.signature, like.signature, away, default_seconds, seconds, tuned_seconds, worst)


def _print(rows: list[Row], problems: int) -> None:
    header = ("signature", "from", "distance", "default us", "transferred us", "tuned us", "gain", "worst placement")
    table = []
    for row in sorted(rows, key=lambda row: row.distance):
        times = [f"{seconds * 1e6:.1f}" for seconds in (row.default, row.transferred, row.tuned)]
        table.append([row.signature, row.donor, f"{row.distance:.2f}", *times, f"{row.gain:.3f}", f"{row.worst:.3f}"])
    print_table(header, table)
    print(f"{len(rows)} of {problems} recorded problems would take over a schedule that is not their default")
    for limit in (1.0, 2.0, 4.0, 9.0):
        near = [row for row in rows if row.distance <= limit]
        if near:
            gains = [row.gain for row in near]
            print(
                f"up to a distance of {limit:g}: {len(near)}, geometric mean of (default time / transferred time) "
                f"{geometric_mean(gains):.3f}, worst {min(gains):.3f}, best {max(gains):.3f}"
            )


if __name__ == "__main__":
    sys.exit(main())
