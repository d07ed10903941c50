"""Good company: how much PyTorch and our kernels slow each other in one process that takes turns between them.

Both run on OpenMP threads that spin a while after each parallel region, waiting for the next. Threads of a second pool
would spin on the cores that the first needs. For each wait policy and order of loading, in a process of its own: how
many OpenMP libraries, and so pools, there are; and each side's median time taking turns against its median alone with
pauses as long as the other's turns.
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

from tvmconv.builder import build
from tvmconv.cli.output import print_json, print_table
from tvmconv.errors import TvmconvError
from tvmconv.signature import parse_signature
from tvmconv.workers import Worker

from .turns import SIGNATURE, Task, Turns, measure

POLICIES = {
    "default": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "active": {"OMP_WAIT_POLICY": "active"},
}
ORDERS = ("torch first", "tvmconv first")
# What the issue of being good company allows.
ALLOWED = 1.10
BATCHES = 10


@dataclass(frozen=True)
class Row:
    """What was found in one process with one operation."""

    policy: str
    order: str
    openmp: list[str]
    turns: Turns


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all policies; exit with 1 if the default one slows a side by more than is allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.company", description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument("--batches", type=int, default=BATCHES, help="of 20 turns, default %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    try:
        rows = _measure_all(arguments.threads, arguments.batches)
    except TvmconvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print_json([asdict(row) for row in rows])
    else:
        header = ("wait policy", "loaded", "OpenMP libraries", "in turns with torch's", "ours x", "torch's x")
        cells = [
            (row.policy, row.order, str(len(row.openmp)), row.turns.operation, _times(row.turns.ours), _times(row.turns.torch))
            for row in rows
        ]  # fmt: skip
        print_table(header, cells)
    return int(any(max(row.turns.ours, row.turns.torch) > ALLOWED for row in rows if row.policy == "default"))


def _measure_all(threads: int, batches: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = str(build([parse_signature(SIGNATURE)], Path(folder) / "company.bundle"))
        for policy, environment in POLICIES.items():
            for order in ORDERS:
                with patch.dict(os.environ, environment):
                    worker = Worker(measure, threads)
                try:
                    libraries, turns = worker.call(Task(order, bundle, batches))
                finally:
                    worker.close()
                rows += [Row(policy, order, libraries, turn) for turn in turns]
    return rows


def _times(factor: float) -> str:
    return f"{factor:.2f}"


if __name__ == "__main__":
    sys.exit(main())
