"""From the start of a process to a network's first answer, and the memory that it takes, in f32.

Each contender has processes of its own, which load nothing but it and NumPy, and take turns. Printed are the seconds from the start
of a process to its first answer, its files in the page cache; MiB resident then, and at the most until then; MiB that no other process
has of a second one beside the first; the MB of the files. Medians of the rounds. OpenVINO reads ONNX, once by its own cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median

import numpy as np

from tvmconv.accuracy import relative_error
from tvmconv.cli.output import print_table
from tvmconv.errors import BuildError, VerificationError
from tvmconv.isa.machine import model_name
from tvmconv.runtime.processors import kernel_threads
from tvmconv.support.workers import Worker
from tvmconv.targets.target import Target

from .commands import print_errors
from .report import markers, show, table
from .start_child import CONTENDERS, cache_of
from .zoo_contenders import ALLOWED_ERROR, EXPECTED, INPUTS, MODELS, ONNXRUNTIME, read_arrays
from .zoo_files import Preparation, prepare

MARKERS = markers("benchmarks.start")
NETWORKS = ("resnet18", "resnet50", "vgg16", "mobilenet_v3_large")
HEADER = ("network", "contender", "first answer, s", "resident, MiB", "peak, MiB", "second adds, MiB", "file, MB")
MODEL = MODELS[ONNXRUNTIME]
# What ours are compiled to, and how.
COMPILED = {"tvmconv": ("network.so", ()), "tvmconv_small": ("small.so", ("--memory", "small"))}


@dataclass(frozen=True)
class Start:
    """Seconds to the first answer; MiB resident then, the most until then, and what a second process beside has alone."""

    seconds: float
    resident: float
    peak: float
    second: float


class Process:
    """A process that has answered, and waits.

    Attributes
    ----------
    seconds
        From its start to its answer.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        begun = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.start_child", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin and self._process.stdout
        self._asked, self._told = self._process.stdin, self._process.stdout
        line = self._told.readline()
        if not line:
            raise BuildError(f"{arguments[0]} ended without an answer, status {self._process.wait()}")
        self.seconds = float(line) - begun

    def memory(self) -> dict[str, float]:
        """Return what `benchmarks.start_child.memory` gives there."""
        self._asked.write("\n")
        self._asked.flush()
        return dict(json.loads(self._told.readline()))

    def end(self) -> None:
        """Let it write its answer, and end."""
        self._asked.close()
        self._process.wait()


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Measure networks; return 1 if one could not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of the zoo, with one input; default: {', '.join(NETWORKS)}")
    parser.add_argument("--only", nargs="*", choices=CONTENDERS, help="contenders; default: all")
    parser.add_argument("--threads", type=int, default=kernel_threads(), help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--folder", help="keeps what was built for another run")
    parser.add_argument("--prepare", action="store_true", help="build alone, and measure nothing")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between its markers there")
    arguments = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for network in arguments.networks or NETWORKS:
            folder = Path(arguments.folder or temporary) / network
            contenders = arguments.only or [*CONTENDERS]
            make_ready(network, folder, contenders)
            if not arguments.prepare:
                found = measured(folder, contenders, arguments.threads, arguments.rounds)
                rows += [(network, name, *_cells(start), _size(folder, name)) for name, start in found.items()]
    if arguments.prepare:
        return 0
    print_table(HEADER, rows)
    if arguments.update:
        show("\n".join(_page(arguments.threads, rows)), arguments.update, MARKERS)
    return 0


def make_ready(network: str, folder: Path, contenders: Sequence[str]) -> None:
    """Write what contenders read, unless it is there."""
    worker = Worker(prepare, kernel_threads(), torch=True)
    try:
        worker.call(Preparation(network, "f32", str(folder), (ONNXRUNTIME,)))
    finally:
        worker.close()
    np.save(folder / "input.npy", read_arrays(folder / INPUTS)[0])
    for name in contenders:
        file, options = COMPILED.get(name, (MODEL, ()))
        if not (folder / file).exists():
            command = [sys.executable, "-c", "import sys; from tvmconv.cli import main; sys.exit(main(sys.argv[1:]))"]
            arguments = ["compile", str(folder / MODEL), "-o", str(folder / file), *options]
            if status := subprocess.run([*command, *arguments], stdout=subprocess.DEVNULL).returncode:
                raise BuildError(f"tvmconv {' '.join(arguments)} failed with status {status}")


def measured(folder: Path, contenders: Sequence[str], threads: int, rounds: int) -> dict[str, Start]:
    """Return what contenders take, by their names.

    Raises
    ------
    VerificationError
        If an answer is wrong.
    """
    found: dict[str, list[Start]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, starts in found.items():
            start = _started(name, folder, threads)
            if turn:  # the first one brings the files into the page cache, and OpenVINO's into its own
                starts.append(start)
    names = [each.name for each in fields(Start)]
    return {
        name: Start(*(median(getattr(start, each) for start in starts) for each in names))
        for name, starts in found.items()
    }


def _started(name: str, folder: Path, threads: int) -> Start:
    file, answer = folder / COMPILED.get(name, (MODEL, ()))[0], folder / f"answer-{name}.npy"
    arguments = (name, str(file), str(folder / "input.npy"), str(answer), str(threads))
    first = Process(arguments)
    memory = first.memory()
    second = Process(arguments)
    own = second.memory()["own"]
    first.end()
    second.end()
    error = relative_error(np.load(answer), read_arrays(folder / EXPECTED)[0])
    if not error <= ALLOWED_ERROR["f32"]:
        raise VerificationError(f"{name}: wrong answer: the relative L2 error is {error:.2g}")
    return Start(first.seconds, memory["resident"], memory["peak"], own)


def _size(folder: Path, name: str) -> str:
    """Return the MB of the files that a contender reads."""
    file = folder / COMPILED.get(name, (MODEL, ()))[0]
    files = [*Path(cache_of(str(file))).iterdir()] if name == "openvino_cached" else []
    return f"{sum(each.stat().st_size for each in (file, *files)) / 1e6:.0f}"


def _cells(start: Start) -> tuple[str, ...]:
    return (f"{start.seconds:.2f}", f"{start.resident:.0f}", f"{start.peak:.0f}", f"{start.second:.0f}")


def _page(threads: int, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"f32, batch 1, {threads} threads, {model_name()} ({Target.parse('host').name}):"
    yield ""
    yield from table(HEADER, rows)


if __name__ == "__main__":
    sys.exit(main())
