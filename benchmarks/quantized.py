"""Networks that onnxruntime quantised (QDQ, `quantize_static`, random calibration), beside onnxruntime and OpenVINO, and beside the float models.

Each contender has a process of its own, and they take turns. Printed are medians over rounds of the least times in milliseconds, as
Markdown; `in int8` is the share of convolutions and products that the quantiser took, `ratio` the time of the faster of both int8 peers
by ours, `of all` that of the fastest peer, f32 ones too, and `our f32` that of our network of the float model by ours.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from tvmconv.errors import TvmconvError
from tvmconv.isa.machine import model_name
from tvmconv.support.workers import Worker

from .machine import CLOCKS
from .quantized_child import LIBRARIES, PEERS, Turn, measure
from .quantized_files import NETWORKS, OURS, QuantizedModel, prepare, share_quantized
from .report import markers, show, table

COLUMNS = ("network", "in int8", "ours", "fastest", "ours f32", *(f"{name} {kind}" for name, kind in PEERS))
RATIOS = ("ratio", "of all", "our f32", "fastest: ratio", "of all", "our f32")
MARKERS = markers("benchmarks.quantized")


def main(argv: Sequence[str] | None = None) -> int:
    """Time networks; return 1 if one could not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized", description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; default: all")
    parser.add_argument("--folder", help="keeps models and what was compiled for another run")
    parser.add_argument("--prepare", action="store_true", help="write models and libraries alone")
    parser.add_argument("--rounds", type=int, default=7, help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each in each round, default %(default)s")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: what the process had of the processors")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between the markers of this file")
    arguments = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.networks or NETWORKS:
            folder = Path(arguments.folder or temporary).absolute() / name
            try:
                _prepare(name, folder)
                if not arguments.prepare:
                    rows.append((name, share_quantized(folder), *_times(folder, arguments)))
                    print(*_cells(rows[-1]), sep=" | ", file=sys.stderr, flush=True)
            except TvmconvError as error:
                print(f"error: {name}: {error}", file=sys.stderr)
    if rows:
        text = _report(rows, arguments)
        show(text, arguments.update, MARKERS)
    return int(not arguments.prepare and len(rows) < len(arguments.networks or NETWORKS))


def _prepare(name: str, folder: Path) -> None:
    worker: Worker[QuantizedModel, None] = Worker(prepare, os.cpu_count() or 1, torch=True)
    try:
        worker.call(QuantizedModel(name, str(folder), OURS))
    finally:
        worker.close()


def _times(folder: Path, arguments: argparse.Namespace) -> list[float]:
    """Return seconds of ours, then of `PEERS`."""
    contenders = [*(("ours", kind) for kind in OURS), *PEERS]
    workers = [Worker(measure, arguments.threads) for _ in contenders]
    try:
        least: list[list[float]] = [[] for _ in contenders]
        for _ in range(arguments.rounds):
            for worker, found, (library, kind) in zip(workers, least, contenders, strict=True):
                turn = Turn(library, kind, str(folder), arguments.seconds, arguments.threads, arguments.clock)
                found.append(min(worker.call(turn), default=inf))
    finally:
        for worker in workers:
            worker.close()
    return [median(each) for each in least]


def _ratios(row: Sequence[Any]) -> list[float]:
    _, _, int8, fastest, own, *peers = row
    return [by / ours for ours in (int8, fastest) for by in (min(peers[: len(LIBRARIES)]), min(peers), own)]


def _cells(row: Sequence[Any]) -> tuple[str, ...]:
    name, share, *seconds = row
    return (
        name,
        share,
        *("-" if each == inf else f"{1e3 * each:.2f}" for each in seconds),
        *(f"{each:.2f}" for each in _ratios(row)),
    )


def _report(rows: Sequence[Sequence[Any]], arguments: argparse.Namespace) -> str:
    columns = list(zip(*map(_ratios, rows), strict=True))
    blank = [""] * (len(COLUMNS) - 1)
    ends = [
        (name, *blank, *(f"{of(each):.2f}" for each in columns))
        for name, of in (("mean", geometric_mean), ("worst", min))
    ]
    lines = table((*COLUMNS, *RATIOS), [*map(_cells, rows), *ends])
    conditions = f"{model_name()}, {arguments.threads} threads, {arguments.rounds} rounds of {arguments.seconds:g} s."
    return "\n".join((conditions, "", *lines))


if __name__ == "__main__":
    sys.exit(main())
