"""A network on a busy machine: alone, beside a process that never sleeps, beside a second copy of itself.

Each contender has processes of its own, with a thread a processor. Printed are the mean milliseconds of a call alone (the median
of the rounds), and how many times as long it takes beside the others; two copies on the same processors take twice as long if
nothing is lost. The bundle's calls are one of each convolution of the network.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tvmconv.cli.output import print_table
from tvmconv.isa.machine import model_name
from tvmconv.runtime.processors import kernel_threads
from tvmconv.support.workers import Worker

from .commands import print_errors
from .models import NETWORKS
from .onnx_networks import make_ready
from .report import markers, show, table
from .sharing import CONTENDERS, ONNXRUNTIME, OPTIMIZED, TORCH, Task, measure

MARKERS = markers("benchmarks.shared_machine")
HEADER = ("contender", "alone, ms", "beside a busy process", "beside a second copy")


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Measure contenders; return 1 if one could not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_machine", description=__doc__)
    parser.add_argument("contenders", nargs="*", help=f"of {', '.join(CONTENDERS)}; default: all")
    parser.add_argument("--network", choices=NETWORKS, default="mobilenet_v3_large", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=kernel_threads(), help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement, default %(default)s")
    parser.add_argument("--folder", help="keeps what was built for another run")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between its markers there")
    arguments = parser.parse_args(argv)
    if unknown := sorted(set(arguments.contenders) - set(CONTENDERS)):
        parser.error(f"{', '.join(unknown)}: no contender; there are {', '.join(CONTENDERS)}")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary) / arguments.network
        _prepare(arguments.network, folder)
        for name in arguments.contenders or CONTENDERS:
            task = Task(name, arguments.network, str(folder), arguments.seconds, arguments.threads)
            rows.append((name, *_compared(task, arguments.rounds)))
    print_table(HEADER, rows)
    if arguments.update:
        show("\n".join(_page(arguments.network, arguments.threads, rows)), arguments.update, MARKERS)
    return 0


def _prepare(network: str, folder: Path) -> None:
    """Write the network for all contenders, unless it is there."""
    from tvmconv.building.builder import build
    from tvmconv.frontends import read_source

    folder.mkdir(parents=True, exist_ok=True)
    make_ready(network, folder, None)
    if not (folder / "kernels.bundle").exists():
        build(list(dict.fromkeys(read_source(str(folder / "model.onnx")))), folder / "kernels.bundle")
    for contender in (OPTIMIZED, ONNXRUNTIME):  # builds its bundle; writes what answers are compared with
        worker = Worker(measure, 1, torch=contender in TORCH)
        try:
            worker.call(Task(contender, network, str(folder), 0.0, 1))
        finally:
            worker.close()


def _compared(task: Task, rounds: int) -> tuple[str, str, str]:
    """Return a row: the time alone, and the slowdowns."""
    first, second = (Worker(measure, task.threads, torch=task.contender in TORCH) for _ in range(2))
    alone, busy, two = [], [], []
    try:
        with ThreadPoolExecutor(2) as pool:
            first.call(task)
            second.call(task)
            for _ in range(rounds):
                alone.append(first.call(task))
                with _busy_process():
                    busy.append(first.call(task))
                both = [pool.submit(worker.call, task) for worker in (first, second)]
                two.append(max(each.result() for each in both))
    finally:
        first.close()
        second.close()
    least = median(alone)
    return f"{1e3 * least:.2f}", f"{median(busy) / least:.2f}", f"{median(two) / least:.2f}"


@contextmanager
def _busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _page(network: str, threads: int, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"{network}, f32, batch 1, {threads} threads, {model_name()}:"
    yield ""
    yield from table(HEADER, rows)


if __name__ == "__main__":
    sys.exit(main())
