"""Compare tvmconv with other libraries, problem by problem.

Each library runs in a process of its own with equal threads, all stay alive, and they are timed in turn,
round after round, so that what slows the machine down for a while slows all of them down; turns in which the host of a
virtual machine moved its processors together or apart are taken again (tvmconv/measuring/cores.py). What counts is the ratio of
the medians over all rounds: the fastest peer's time / our time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from tvmconv import load, reference
from tvmconv.algorithms.table import MATHS
from tvmconv.building.builder import build
from tvmconv.cli.output import print_table, progress_bar
from tvmconv.errors import TargetError
from tvmconv.fills import random_fill
from tvmconv.frontends import read_source
from tvmconv.isa.machine import cpu_features
from tvmconv.measuring import peak
from tvmconv.measuring.cores import Cores
from tvmconv.measuring.peak import Peak
from tvmconv.measuring.timing import summarize
from tvmconv.problem import DTYPES, Problem
from tvmconv.signature import format_signature
from tvmconv.support.workers import Worker
from tvmconv.targets.target import CpuTarget, Target
from tvmconv.tuning.records import Records

from .commands import print_errors
from .machine import describe_machine, versions
from .measure import OURS, OURS_PACKED, Answer, Task, measure
from .peers import INTEGERS, PEERS, as_integers
from .result_files import write_result
from .results import Result, Row, summarize_rows

SUITES = Path(__file__).parent / "suites"
# Those of networks. Of `reported`, which has batches and extremes, and of `filters` the comparisons are their own.
NETWORKS = sorted(path.stem for path in SUITES.glob("*.toml") if path.stem not in ("reported", "filters"))
# How often a contender takes a turn, if threads are moved meanwhile, and seconds to wait until they are moved back.
MOVES, PATIENCE = 3, 60.0
PACKAGES = ("tvmconv", "apache-tvm", "apache-tvm-ffi", "numpy")
FILTER_FORMATS = {"nxc": "XIO", "ncx": "OIX"}


class NoRecords(Records):
    """As if nothing had ever been tuned."""

    def best(self, problem: Problem, target: Target, math: str = "default", among: Sequence[str] | None = None) -> None:
        """Return None."""


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison that the command line asks for."""
    arguments = parse(argv)
    suites = read_suites(arguments.sources, arguments.dtype, arguments.layout)
    result = _run(suites, arguments)
    print_rows(result)
    if arguments.output:
        write_result(result, arguments.output)
    return 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line, defaults filled in."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument(
        "sources", nargs="*", metavar="SUITE", help="a name in benchmarks/suites (default: all), or a source of tvmconv"
    )
    parser.add_argument(
        "--dtype",
        choices=(*DTYPES, INTEGERS),
        default="f32",
        help=f"default %(default)s; {INTEGERS}: rounded to 8 bits, too",
    )
    parser.add_argument("--layout", choices=FILTER_FORMATS, default="nxc", help="NXC/XIO or NCX/OIX, default nxc")
    parser.add_argument("--bundle", help="use this bundle; by default one is built")
    parser.add_argument(
        "--target",
        default="host",
        help="build it for this CPU; without AVX-512, oneDNN is held to AVX2 (default: host)",
    )
    parser.add_argument("--untuned", action="store_true", help="build it by the default schedules, without any record")
    parser.add_argument("--math", choices=MATHS, default="default", help="build it with this (default: %(default)s)")
    parser.add_argument("--peer", action="append", choices=PEERS, help="default: all that can be held to the target")
    parser.add_argument("--rounds", type=int, default=3, help="default 3: of two, a disturbed one moves the median")
    parser.add_argument("--seconds", type=float, default=0.05, help="for each peer in each round, default 0.05")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args(argv)
    arguments.sources = arguments.sources or NETWORKS
    arguments.peer = list(dict.fromkeys(arguments.peer or ()))
    return arguments


def read_suites(sources: Sequence[str], dtype: str, layout: str) -> dict[str, list[Problem]]:
    """Return the problems of each source by its name, in the type and layout asked for.

    Raises
    ------
    SourceError
        If a source is neither a suite nor readable by tvmconv.
    """
    suites = {}
    for source in sources:
        path = SUITES / f"{source}.toml"
        problems = read_source(
            str(path) if path.exists() else source,
            dtype="f32" if dtype == INTEGERS else dtype,
            data_format=layout.upper(),
            filter_format=FILTER_FORMATS[layout],
            fuse=False,  # peers compute the convolutions alone
        )
        suites[Path(source).stem] = list(map(as_integers, problems)) if dtype == INTEGERS else problems
    return suites


def hold_to(target: Target, peers: Sequence[str]) -> list[str]:
    """Let the processes that start from now on use no wider vectors than `target` has; return who takes part.

    PyTorch and OpenVINO compute by oneDNN, which can be told; onnxruntime takes the widest that it finds. On a machine that
    has no wider ones nobody need be told.

    Raises
    ------
    TargetError
        If the target is no CPU, or one of `peers` (absent: all that can) cannot be held to it.
    """
    if not isinstance(target, CpuTarget):
        raise TargetError(f"target is {target.name}; this comparison is for CPUs: python -m benchmarks.gpu_compare")
    if target.vector_bits >= 512 or "avx512f" not in cpu_features():
        return list(peers or PEERS)
    if "onnxruntime" in peers:
        raise TargetError(f"onnxruntime cannot be held to the instructions of {target.name}: leave it out")
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    return list(peers or (peer for peer in PEERS if peer != "onnxruntime"))


def _run(suites: dict[str, list[Problem]], arguments: argparse.Namespace) -> Result:
    load_before = os.getloadavg()[0]
    target = Target.parse(arguments.target)
    peers = hold_to(target, arguments.peer)
    with tempfile.TemporaryDirectory() as folder:
        bundle = arguments.bundle
        if bundle is None:
            problems = list(dict.fromkeys(problem for suite in suites.values() for problem in suite))
            with progress_bar("building") as progress:
                records = NoRecords() if arguments.untuned else Records()
                path = Path(folder) / "compare.bundle"
                bundle = build(
                    problems, path, arguments.target, math=arguments.math, records=records, progress=progress
                )
        timer = Timer(str(bundle), peers, arguments.rounds, arguments.seconds, arguments.threads)
        try:
            rows = timer.rows(suites)
            limits = timer.peak("native" if arguments.target == "host" else arguments.target)
        finally:
            timer.close()
    packages = {*PACKAGES, *(PEERS[peer].package for peer in peers)}
    return Result(
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=describe_machine(),
        versions=versions(packages),
        dtype=arguments.dtype,
        layout=arguments.layout,
        target=arguments.target,
        math=arguments.math,
        untuned=arguments.untuned,
        threads=arguments.threads,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        load=load_before,
        peak=limits,
        rows=tuple(rows),
    )


class Timer:
    """The libraries' processes, and the rounds in which they are timed.

    Parameters
    ----------
    bundle
        A bundle's folder with a kernel for each problem.
    peers
        Names from `PEERS`.
    rounds, seconds
        Each contender is timed for `seconds` in each of `rounds` rounds.
    threads
        Number of threads of each library.
    """

    def __init__(self, bundle: str, peers: Sequence[str], rounds: int, seconds: float, threads: int) -> None:
        self._bundle, self._rounds, self._seconds, self._threads = bundle, rounds, seconds, threads
        self._cores = Cores(threads, PATIENCE)
        modules = {OURS: OURS, OURS_PACKED: OURS, **{peer: PEERS[peer].module for peer in peers}}
        # What shares a library shares its process.
        workers: dict[str, Worker[Task, Answer]] = {}
        for module in dict.fromkeys(modules.values()):
            workers[module] = Worker(measure, threads, torch=True)
        self._workers = {contender: workers[module] for contender, module in modules.items()}

    def rows(self, suites: dict[str, list[Problem]]) -> list[Row]:
        """Time every problem of every suite."""
        work = [(suite, problem) for suite, problems in suites.items() for problem in problems]
        kernels = load(self._bundle)
        rows = []
        with progress_bar("timing") as progress, tempfile.TemporaryDirectory() as folder:
            for done, (suite, problem) in enumerate(work):
                signature = format_signature(problem)
                progress(done, len(work), signature)
                # Once for all: no process spends its time on it, or wakes threads for it.
                expected = Path(folder) / "expected.npy"
                np.save(expected, reference.compute(problem, **random_fill(problem).given()).astype(np.float32))
                answers = self._time(signature, str(expected))
                timings = {name: summarize(answer.samples) for name, answer in answers.items() if answer.samples}
                info = kernels.lookup(problem).info
                rows.append(
                    Row(
                        suite=suite,
                        signature=signature,
                        flops=problem.flops,
                        nbytes=problem.nbytes,
                        algorithm=info.algorithm,
                        origin=info.origin,
                        plain=timings.pop(OURS),
                        packed=timings.pop(OURS_PACKED),
                        peers=timings,
                        unsupported={
                            name: answer.unsupported for name, answer in answers.items() if answer.unsupported
                        },
                    )
                )
        return rows

    def peak(self, cpu: str) -> Peak | None:
        """Measure the machine's limits with the instructions of `cpu`, as the problems were timed."""
        self._cores.settle()
        return peak.measure(self._threads, cpu)

    def close(self) -> None:
        """End the processes."""
        for worker in set(self._workers.values()):
            worker.close()

    def _time(self, signature: str, expected: str) -> dict[str, Answer]:
        answers = {name: Answer([]) for name in self._workers}
        for _ in range(self._rounds):
            for name in self._workers:
                answer = self._turn(name, signature, expected)
                answers[name] = Answer(answers[name].samples + answer.samples, answer.unsupported)
        return answers

    def _turn(self, name: str, signature: str, expected: str) -> Answer:
        """Let a contender take its turn, again if threads were moved meanwhile: that may be half as fast."""
        for _ in range(MOVES):
            self._cores.settle()
            answer = self._workers[name].call(
                Task(name, signature, self._bundle, expected, self._threads, self._seconds)
            )
            if self._cores.settled():
                break
        return answer


def print_rows(result: Result) -> None:
    """Print a line for each problem and the summary of all."""
    names = list(dict.fromkeys(name for row in result.rows for name in row.peers))
    table = []
    for row in result.rows:
        cells = [row.signature, f"{row.plain.median * 1e6:.0f}", f"{row.packed.median * 1e6:.0f}"]
        cells.append(f"{row.flops / row.ours / 1e9:.1f}")
        cells.append(f"{100 * row.flops / row.ours / result.flops_limit:.0f}" if result.flops_limit else "-")
        cells += [f"{row.peers[name].median * 1e6:.0f}" if name in row.peers else "-" for name in names]
        cells.append("-" if row.ratio is None else f"{row.ratio:.2f}")
        table.append(cells)
    print_table(
        ["signature", "us", "packed us", "GFLOP/s", "% of peak", *(f"{name} us" for name in names), "ratio"], table
    )
    summary = summarize_rows(result.rows)
    if summary:
        print(
            f"{summary.shapes} shapes: geometric mean of (fastest peer's time / our time) {summary.mean:.3f}, "
            f"worst {summary.worst:.3f} ({summary.worst_signature}); with plain filters {summary.plain_mean:.3f}"
        )
    for refusal in result.refusals:
        print(refusal, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
