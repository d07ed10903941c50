"""Whole networks in PyTorch: ours beside PyTorch, torch.compile and OpenVINO, f32, batch 1.

Each contender has a process of its own, and they take turns, so that all meet the same machine. Printed are medians in
milliseconds; the ratio is the fastest peer's time by ours, above 1 ours is faster. `kernels` is the time of our kernels called
one after the other with what the network gives them, `others` that of all else. `by parts` is the network's time by both: what
it takes beyond 1 is spent between them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tvmconv.cli.output import print_table
from tvmconv.errors import TvmconvError
from tvmconv.support.workers import Worker

from .network import CONTENDERS, EAGER, OURS, Answer, Task, measure

NETWORKS = ("resnet50", "mobilenet_v2")
ROUNDS = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Time networks; return 1 if one could not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; default: all")
    parser.add_argument("--bundles", help="folder that keeps our kernels for another run; default: a temporary one")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="of each contender in each round, default %(default)s"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    arguments = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bundles = Path(arguments.bundles or folder)
            rows = [_row(name, bundles, Path(folder), arguments.seconds, arguments.threads) for name in arguments.networks or NETWORKS]  # fmt: skip
    except TvmconvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print_table(("network", *CONTENDERS, "ratio", "kernels", "others", "by parts"), rows)
    return 0


def _row(network: str, bundles: Path, folder: Path, seconds: float, threads: int) -> tuple[str, ...]:
    def task(contender: str, parts: bool = False) -> Task:
        bundle = str(bundles / f"{network}.bundle")
        return Task(network, contender, bundle, str(folder / f"{network}.npy"), seconds, parts)

    workers = {name: Worker(measure, threads, torch=True) for name in CONTENDERS}
    samples: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    try:
        workers[EAGER].call(task(EAGER))  # writes what is expected
        for _ in range(ROUNDS):
            for name, worker in workers.items():
                samples[name] += worker.call(task(name)).samples
        parts: Answer = workers[OURS].call(task(OURS, parts=True))
    finally:
        for worker in workers.values():
            worker.close()
    times = {name: median(taken) for name, taken in samples.items()}
    if parts.by_torch:
        print(f"{network}: PyTorch computes {', '.join(parts.by_torch)}", file=sys.stderr)
    ratio = min(time for name, time in times.items() if name != OURS) / times[OURS]
    beyond = times[OURS] / (parts.kernels + parts.others)
    milliseconds = [f"{1e3 * time:.2f}" for time in (*times.values(), parts.kernels, parts.others)]
    return (network, *milliseconds[:-2], f"{ratio:.2f}", *milliseconds[-2:], f"{beyond:.2f}")


if __name__ == "__main__":
    sys.exit(main())
