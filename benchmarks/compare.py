"""Compare tvmconv with other libraries, problem by problem.

Each library runs in a process of its own with equal threads, all stay alive, and they are timed in turn,
round after round, so that what slows the machine down for a while slows all of them down. What counts is
the ratio of the medians over all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean

from tvmconv import peak
from tvmconv.algorithms import MATHS
from tvmconv.builder import build
from tvmconv.cli.output import print_table, progress_bar
from tvmconv.cpu import model_name
from tvmconv.frontends import read_source
from tvmconv.problem import Problem
from tvmconv.records import Records
from tvmconv.signature import format_signature
from tvmconv.target import Target
from tvmconv.timing import Timing, summarize
from tvmconv.workers import Worker

from .measure import OURS, Task, measure

PEERS = {"pytorch": "torch", "pytorch_packed": "torch"}  # the package each comes with
PACKAGES = ("tvmconv", "apache-tvm", "apache-tvm-ffi", "numpy")


@dataclass(frozen=True)
class Row:
    """What was measured for one problem; a peer without a call for it is absent from `peers`."""

    signature: str
    flops: int
    ours: Timing
    peers: dict[str, Timing]


class NoRecords(Records):
    """As if nothing had ever been tuned."""

    def best(self, problem: Problem, target: Target, math: str = "default") -> None:
        """Return None."""


def main() -> int:
    """Run the comparison that the command line asks for."""
    arguments = _arguments()
    problems = list(dict.fromkeys(problem for source in arguments.sources for problem in read_source(source)))
    with tempfile.TemporaryDirectory() as folder:
        bundle = arguments.bundle
        if bundle is None:
            with progress_bar("building") as progress:
                records = NoRecords() if arguments.untuned else Records()
                path = Path(folder) / "compare.bundle"
                bundle = build(problems, path, math=arguments.math, records=records, progress=progress)
        rows = compare(problems, str(bundle), arguments.peer, arguments.rounds, arguments.seconds, arguments.threads)
    limits = peak.measure(arguments.threads)
    _print(rows, arguments.peer, limits)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(_report(rows, arguments, limits), indent=2) + "\n")
    return 0


def compare(
    problems: list[Problem], bundle: str, peers: list[str], rounds: int, seconds: float, threads: int
) -> list[Row]:
    """Time each problem with tvmconv and each peer.

    Parameters
    ----------
    problems
        What to compute; `bundle` has a kernel for each.
    bundle
        The bundle's folder.
    peers
        Names from `PEERS`.
    rounds, seconds
        Each library is timed for `seconds` in each of `rounds` rounds.
    threads
        Number of threads of each library.
    """
    libraries = [OURS, *peers]
    workers = {name: Worker(measure, threads) for name in libraries}
    try:
        rows = []
        with progress_bar("timing") as progress:
            for done, problem in enumerate(problems):
                signature = format_signature(problem)
                progress(done, len(problems), signature)
                samples: dict[str, list[float]] = {name: [] for name in libraries}
                for _ in range(rounds):
                    for name in libraries:
                        samples[name] += workers[name].call(Task(name, signature, bundle, seconds))
                timings = {name: summarize(taken) for name, taken in samples.items() if taken}
                rows.append(Row(signature, problem.flops, timings.pop(OURS), timings))
        return rows
    finally:
        for worker in workers.values():
            worker.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a TOML suite, an ONNX file or a signature")
    parser.add_argument("--bundle", help="use this bundle; by default one is built")
    parser.add_argument("--untuned", action="store_true", help="build it by the default schedules, without any record")
    parser.add_argument("--math", choices=MATHS, default="default", help="build it with this (default: %(default)s)")
    parser.add_argument("--peer", action="append", choices=PEERS, help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each library in each round, default 0.1")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument("--output", help="write a JSON report to this file")
    arguments = parser.parse_args()
    arguments.peer = arguments.peer or list(PEERS)
    return arguments


def _print(rows: list[Row], peers: list[str], limits: peak.Peak | None) -> None:
    header = [
        "signature",
        "us",
        "GFLOP/s",
        "% of peak",
        *(f"{peer} us" for peer in peers),
        *(f"x {peer}" for peer in peers),
    ]
    table = []
    for row in rows:
        rate = row.flops / row.ours.median
        cells = [row.signature, f"{row.ours.median * 1e6:.0f}", f"{rate / 1e9:.1f}"]
        cells.append(f"{100 * rate / limits.flops:.0f}" if limits else "-")
        cells += [f"{row.peers[peer].median * 1e6:.0f}" if peer in row.peers else "-" for peer in peers]
        cells += [f"{_ratio(row, peer):.2f}" if peer in row.peers else "-" for peer in peers]
        table.append(cells)
    print_table(header, table)
    for peer, (medians, leasts) in _means(rows, peers).items():
        print(
            f"geometric mean of ({peer} time / our time): {medians:.3f} of the medians, {leasts:.3f} of the least times"
        )


def _ratio(row: Row, peer: str) -> float:
    return row.peers[peer].median / row.ours.median


def _means(rows: list[Row], peers: list[str]) -> dict[str, tuple[float, float]]:
    """Return the geometric means of the ratios of the medians, and of the least times, which a busy machine spoils less."""
    means = {}
    for peer in peers:
        both = [row for row in rows if peer in row.peers]
        if both:
            leasts = [row.peers[peer].least / row.ours.least for row in both]
            means[peer] = (geometric_mean(_ratio(row, peer) for row in both), geometric_mean(leasts))
    return means


def _report(rows: list[Row], arguments: argparse.Namespace, limits: peak.Peak | None) -> dict[str, object]:
    packages = {*PACKAGES, *(PEERS[peer] for peer in arguments.peer)}
    return {
        "machine": {
            "cpu": model_name(),
            "threads": arguments.threads,
            "system": " ".join((platform.system(), platform.machine(), *platform.libc_ver())),
        },
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in sorted(packages)},
        },
        "peak": asdict(limits) if limits else None,
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "geometric_means": {
            peer: {"medians": medians, "leasts": leasts}
            for peer, (medians, leasts) in _means(rows, arguments.peer).items()
        },
        "rows": [asdict(row) for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())
