"""The throughput of a fleet by its number of servers, and the tuner's own time.

Run with ``python -m benchmarks.fleet``. The servers are processes of this machine that measure nothing: they answer after
a delay. All else is real: the search, MetaSchedule's turns, TVM's tracker and sessions, uploads. Building takes as long as
told, of all cores together.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tvmconv.cli.output import print_json, print_table
from tvmconv.cli.parsing import positive
from tvmconv.fleet.fleet import SESSIONS, Fleet
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature
from tvmconv.tuning.evaluate import Evaluator
from tvmconv.tuning.problem_tuner import Session
from tvmconv.tuning.records import Records
from tvmconv.tuning.tuner import tune_all
from tvmconv.tuning.turns import BATCH, TuneProgress

from .fleet_simulated import JOBS, KEY, servers, work

# Turns of each problem that are timed.
TURNS = 6
SHOWN = {
    "problems": "problems",
    "servers": "servers",
    "tuners": "tuners",
    "rate": "candidates/s",
    "of the servers": "of the servers",
    "cpu_ms": "tuner CPU ms",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate the fleets that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument(
        "--servers",
        type=positive,
        nargs="+",
        default=[1, 2, 4, 8, 16, 32, 64],
        metavar="N",
        help="numbers of servers to try (default: %(default)s)",
    )
    parser.add_argument(
        "--problems",
        type=positive,
        nargs="+",
        default=[1, 4],
        metavar="N",
        help="numbers of problems tuned together to try (default: %(default)s)",
    )
    parser.add_argument("--delay", type=float, default=0.1, metavar="S", help="of an answer (default: %(default)s)")
    parser.add_argument(
        "--building", type=float, default=0.0, metavar="S", help="a candidate, all cores together (default: 0)"
    )
    parser.add_argument(
        "--tracker", metavar="HOST:PORT", help="of simulated servers that are there (default: start some)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args(argv)
    rows = []
    started = nullcontext(arguments.tracker) if arguments.tracker else servers(max(arguments.servers), arguments.delay)
    with started as tracker:
        for problems in arguments.problems:
            for count in arguments.servers:
                how = (problems, arguments.delay, arguments.building)
                run = simulate(tracker, count, *how) if count <= SESSIONS else share(tracker, count, *how)
                rows.append({**run, "of the servers": round(run["rate"] * arguments.delay / count, 2)})
                print(rows[-1], file=sys.stderr)
    if arguments.json:
        print_json(rows)
    else:
        print_table(tuple(SHOWN.values()), [tuple(f"{row[name]:g}" for name in SHOWN) for row in rows])
    return 0


def simulate(tracker: str, count: int, problems: int, delay: float, building: float) -> dict[str, float]:
    """Tune so many problems on so many servers; return the result."""
    turn = max(BATCH, count)
    times: list[tuple[float, float]] = []

    def progress(_: TuneProgress) -> None:
        times.append((time.monotonic(), time.process_time()))

    fleet = Fleet(tracker, KEY, devices=count)
    while fleet.size < count:
        time.sleep(0.05)
    with (
        tempfile.TemporaryDirectory() as folder,
        Evaluator(JOBS, 1, work=partial(work, building), servers=fleet) as evaluator,
    ):
        run = Session(evaluator, fleet.target, Records(Path(folder)), fleet.machine, seed=0)
        tune_all(run, [_problem(number) for number in range(problems)], (TURNS + 1) * turn, None, progress)
    # Without the first turns, in which processes start.
    (start, start_cpu), (end, end_cpu) = times[problems * turn - 1], times[-1]
    return _row(problems, count, 1, len(times) - problems * turn, start, end, end_cpu - start_cpu)


def share(tracker: str, count: int, problems: int, delay: float, building: float) -> dict[str, float]:
    """Do so in several tuners at once, as one has not more than `SESSIONS` servers."""
    tuners = math.ceil(count / SESSIONS)
    # The path of this package is the current folder's.
    command = [
        sys.executable,
        "-m",
        "benchmarks.fleet",
        "--tracker",
        tracker,
        "--json",
        "--servers",
        str(count // tuners),
    ]
    command += ["--problems", str(problems), "--delay", str(delay), "--building", str(building)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(tuners)]
    rows = [json.loads(each.communicate()[0])[0] for each in running]
    start, end = min(row["start"] for row in rows), max(row["end"] for row in rows)
    cpu = sum(row["cpu_ms"] * row["measured"] / 1e3 for row in rows)
    return _row(problems, count, tuners, sum(row["measured"] for row in rows), start, end, cpu)


def _row(
    problems: int, count: int, tuners: int, measured: int, start: float, end: float, cpu: float
) -> dict[str, float]:
    return {
        "problems": problems,
        "servers": count,
        "tuners": tuners,
        "measured": measured,
        "start": start,
        "end": end,
        "rate": round(measured / (end - start), 1),
        "cpu_ms": round(cpu / measured * 1e3, 2),
    }


def _problem(number: int) -> Problem:
    return parse_signature(f"conv1d-n1-i1x{64 + number}-o1x{64 + number}-k1-s1-d1-p0_0-g1-NXC-XIO-f32")


if __name__ == "__main__":
    raise SystemExit(main())
