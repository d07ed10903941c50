"""Interference: how much PyTorch and our kernels slow each other in one process that takes turns between them.

Both run on OpenMP threads that spin a while after each parallel region, waiting for the next. Threads of a second pool
would spin on the cores that the first needs. For each wait policy and OpenMP library, in a process of its own: how many
libraries, and so pools, there are; and each side's median time taking turns against its median alone with pauses as
long as the other's turns. Exits with 1 if one pool by the default policy slows a side by more than 10 %.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

from tvmconv.building.builder import build
from tvmconv.cli.output import print_json, print_table
from tvmconv.signature import parse_signature
from tvmconv.support.workers import Worker

from .commands import print_errors
from .turns import OPENMP, SIGNATURE, Task, Turns, measure

# GNU OpenMP's default is to spin 300,000 times, about a millisecond, and then to sleep; passive sleeps at once.
POLICIES = {
    "default": {},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
}
# How much slower a side may be.
ALLOWED = 1.10
BATCHES = 10


@dataclass(frozen=True)
class Row:
    """What was found in one process with one operation.

    Attributes
    ----------
    policy
        One of `POLICIES`.
    openmp
        One of `turns.OPENMP`.
    libraries
        The OpenMP libraries that were in the process.
    turns
        What taking turns cost.
    """

    policy: str
    openmp: str
    libraries: list[str]
    turns: Turns

    @property
    def slowdown(self) -> float:
        """The larger of both sides' slowdowns."""
        return max(self.turns.ours.slowdown, self.turns.torch.slowdown)


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Measure all policies; exit with 1 if the default one slows a side by more than is allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interference", description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument("--batches", type=int, default=BATCHES, help="of 20 turns, default %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    rows = _measure_all(arguments.threads, arguments.batches)
    if arguments.json:
        print_json([asdict(row) for row in rows])
    else:
        _print(rows)
    return int(any(row.slowdown > ALLOWED for row in rows if row.policy == "default" and len(row.libraries) == 1))


def _measure_all(threads: int, batches: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = str(build([parse_signature(SIGNATURE)], Path(folder) / "kernel.bundle"))
        for policy, environment in POLICIES.items():
            for openmp in OPENMP:
                with patch.dict(os.environ, environment):
                    worker = Worker(measure, threads, torch=True)
                try:
                    libraries, turns = worker.call(Task(openmp, bundle, batches))
                finally:
                    worker.close()
                rows += [Row(policy, openmp, libraries, turn) for turn in turns]
    return rows


def _print(rows: Sequence[Row]) -> None:
    header = (
        "wait policy", "OpenMP", "libraries", "torch's operation",
        "ours us", "in turns", "x", "torch's us", "in turns", "x",
    )  # fmt: skip
    cells = []
    for row in rows:
        sides = (row.turns.ours, row.turns.torch)
        times = (
            text
            for side in sides
            for text in (f"{side.alone * 1e6:.0f}", f"{side.in_turns * 1e6:.0f}", f"{side.slowdown:.2f}")
        )
        cells.append((row.policy, row.openmp, str(len(row.libraries)), row.turns.operation, *times))
    print_table(header, cells)


if __name__ == "__main__":
    sys.exit(main())
