"""Times that networks would take if independent steps ran side by side: to judge whether it is worth building more than one loop for some.

    python -m benchmarks.side_by_side MODEL.onnx --threads 16,32,64 --update benchmarks/results/many_cores.md

Tasks are timed alone, as by `benchmarks.simulated_cores`. A step begins when those are done that write what it reads, and a thread that is
free takes a task of the step that most time follows. That is as fast as it could be: waking threads for a step keeps no other waiting,
values have memory of their own, and steps that share caches do not take longer. No order is faster than the longest way through the plan,
each step with as many threads as it has tasks. Levels in one loop are what a plan says without a scheduler: the tasks of all steps
with as many before them, the longest first, with one barrier. Libraries do so for steps that follow each other in the plan
(`tvmconv.network.emit.beside`), but not while steps are timed, as here. Cut evenly, a loop has as many tasks as pay by what it takes to wake a thread:
what steps one after another would gain by their own.

In brackets: with what it takes to wake threads.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tvmconv
from tvmconv.errors import SourceError

from .commands import print_errors
from .report import markers, show_simulated
from .simulated_cores import SerialPool
from .step_orders import WAKE, Step, by_levels, cut_evenly, in_turn, longest_way, side_by_side

MARKERS = markers("benchmarks.side_by_side")


def needs_of(plan: Any) -> list[frozenset[int]]:
    """Return, for each step of a plan, the steps whose results it reads; prepared arrays are ready."""
    written: dict[Any, int] = {}
    found = []
    for number, step in enumerate(plan.steps):
        if step.passed:
            raise SourceError("the network has an If, of which a plan has both branches; give one without")
        storages = [each.storage for each in step.arguments if each.storage.region.name in ("ARENA", "OUTPUT")]
        found.append(frozenset(written[each] for each in storages if each in written))
        written.update({each: number for each in storages if each not in written})
    return found


def compile_model(source: Path, path: Path) -> list[frozenset[int]]:
    """Compile an ONNX file; return what each step waits for."""
    from tvmconv.network.compile import build
    from tvmconv.network.emit.library import write
    from tvmconv.network.read.onnx.reader import read_onnx

    with mock.patch("tvmconv.network.compile.write", wraps=write) as written:
        build(read_onnx(str(source)), path)
    return needs_of(written.call_args.args[0].plan)


def steps_of(pool: SerialPool, path: Path, needs: Sequence[frozenset[int]], threads: int) -> list[Step]:
    """Return the steps of a network's library, as many threads have them."""
    network = tvmconv.load_network(path)
    entries, _ = network._entries(())
    given = network.random_inputs()
    arrays = [given[each.name] for each in network.inputs]
    arrays += [np.zeros(each.shape, each.numpy) for each in network.outputs]
    seconds = np.zeros(len(entries.steps))
    places = [each.ctypes.data for each in arrays]
    run = entries.run_with["threads"]
    does = pool.simulate_steps(lambda: run(threads, entries.handle, seconds.ctypes.data, *places), seconds)
    return [Step(each, of) for each, of in zip(does, needs, strict=True)]


def rows_of(name: str, by_threads: Mapping[int, Sequence[Step]]) -> list[list[str]]:
    """Return the lines of a network, whose steps some numbers of threads take."""
    rows = []
    for threads, steps in by_threads.items():
        cut = [replace(each, does=cut_evenly(each.does, threads)) for each in steps]
        cells = []
        for some, ways in ((steps, (in_turn, by_levels, side_by_side)), (cut, (in_turn, side_by_side))):
            alone, woken = ([way(some, threads, wake) for way in ways] for wake in (None, WAKE))
            cells += [
                f"{min(each, alone[0]):.0f} ({min(with_, woken[0]):.0f})"
                for each, with_ in zip(alone, woken, strict=True)
            ]
        way = max(longest_way(steps, [each.does.longest() for each in steps]), default=0.0)
        shared = sum(each.does.shared(threads) + each.does.between / threads for each in steps)
        rows.append([name, str(threads), *cells, f"{way:.0f}", f"{shared:.0f}"])
        name = ""
    return rows


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of the models that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description=__doc__)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.onnx")
    parser.add_argument("--threads", default="16,32,64", help="numbers, with commas, default %(default)s")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between its markers there")
    arguments = parser.parse_args(argv)
    counts = [int(each) for each in arguments.threads.split(",")]
    rows = []
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(1) as pool:
        serial = SerialPool(Path(folder))
        for model in arguments.models:
            path = Path(folder) / f"{model.stem}.so"
            needs = pool.apply(compile_model, (model, path))
            rows += rows_of(model.stem, {each: steps_of(serial, path, needs, each) for each in counts})
    ways = ("one after another", "levels in one loop", "side by side", "cut evenly", "cut evenly, side by side")
    header = ["us", "threads", *ways, "longest way", "work shared evenly"]
    show_simulated(header, rows, arguments.update, MARKERS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
