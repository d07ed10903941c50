"""Times that more threads than this machine has cores would take for networks, and for the kernels of bundles, from tasks that are timed alone.

    python -m benchmarks.simulated_cores BUNDLE NETWORK.so --threads 2,16,64 --update benchmarks/results/many_cores.md

Each is called as by so many threads, and every task by one, the processor's time of which is taken, the least of some calls. The
makespan is that of threads which take the next task whenever they are done, loop after loop; what is between loops is one thread's, what
is before the first takes no time. Beside it is what it takes to wake each thread and to wait for it, after two measurements, and what
that is at least, by loops that are shared evenly by the best number of threads. What threads cannot take less than: the work shared
evenly, and the longest task of each loop. These find filters where one thread leaves them; *filters cold* is by the model of
`benchmarks/filters_read.py`, beside the bytes of filters that all threads read. The last column is the time of two threads that was
measured.
"""

from __future__ import annotations

import argparse
import ctypes
import heapq
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm_ffi import libinfo

import tvmconv
from tvmconv.errors import TvmconvError
from tvmconv.support.toolchain import ffi_includes, run_compiler

from .commands import print_errors
from .filters_read import Read, mappings_of, whole_pages
from .report import markers, show_simulated

# All numbers of threads in turns, as machines change their speed, and calls of each in a turn.
TURNS, ROUNDS, COLD_ROUNDS = 3, 6, 2
# Ways of `simulated_pool.c`.
WARM, NOTE, COLD = range(3)
# Microseconds of a loop, and of each thread beyond the first: 0.15 to 0.35 were seen on two cores of a Zen 3.
LOOP, WAKES = 0.3, (0.15, 0.35)
# In place of the seconds of a step that has not run, as `simulated_pool.c` has it.
UNKNOWN = -2.0
MARKERS = markers("benchmarks.simulated_cores")
Loops = Sequence[tuple[int, Sequence[float]]]


def makespan(times: Sequence[float], threads: int) -> float:
    """Return when the last of tasks ends that threads take in order, each the next when it is done."""
    free = [0.0] * min(threads, max(len(times), 1))
    for each in times:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


@dataclass(frozen=True)
class Simulated:
    """A call as by some number of threads: the threads that each loop asks for, with the microseconds of its tasks, and those between loops.

    `reads`: what each loop reads of filters, if that was noted.
    """

    loops: Loops
    between: float = 0.0
    reads: Sequence[Read] = ()

    def makespan(self, wake: float | None = None) -> float:
        """Return the microseconds of the call; with `wake`, each thread takes so many to come, and a loop LOOP."""
        found = self.between
        for asked, times in self.loops:
            found += makespan(times, asked)
            found += 0 if wake is None else LOOP + wake * (min(asked, len(times)) - 1)
        return found

    def cold(self) -> tuple[float, int]:
        """Return the microseconds of the call where caches have no filters, and how many bytes of filters all threads read."""
        found = [read.simulate(times, asked) for read, (asked, times) in zip(self.reads, self.loops, strict=True)]
        return self.between + sum(time for time, _ in found), sum(read for _, read in found)

    def least(self, other: Simulated) -> Simulated:
        """Return the least times of this and of the same call."""
        times = zip(self.loops, other.loops, strict=True)
        loops = [(asked, _least(mine, theirs)) for (asked, mine), (_, theirs) in times]
        colds = zip(self.reads, other.reads, strict=True)
        reads = [Read(mine.parts, _least(mine.cold, theirs.cold)) for mine, theirs in colds]
        return Simulated(loops, min(self.between, other.between), reads)

    def limit(self, threads: int, wake: float) -> float:
        """Return the microseconds that no tasks and no number of threads take less than where each thread takes so many to come."""
        found = self.between
        for _, times in self.loops:
            found += LOOP + min(sum(times) / count + wake * (count - 1) for count in range(1, threads + 1))
        return found

    def shared(self, threads: int) -> float:
        """Return the microseconds of all work, shared evenly."""
        return sum(sum(times) for _, times in self.loops) / threads

    def longest(self) -> float:
        """Return the microseconds of the longest task of each loop, and of what is between loops."""
        return self.between + sum(max(times, default=0.0) for _, times in self.loops)


def _least(times: Sequence[float], others: Sequence[float]) -> list[float]:
    return [min(each) for each in zip(times, others, strict=True)]


def calls_of(path: Path, threads: int) -> Iterator[tuple[str, Callable[[], object], tuple[int, int]]]:
    """Yield the signatures of a bundle's kernels of f32, and calls with a prepacked filter; or the name of a network, and its call.

    Behind them stand the pages of filters: where they begin, and how many bytes.
    """
    if path.is_file():
        before = mappings_of(path)
        network = tvmconv.load_network(path)
        weights = (mappings_of(path) - before).pop()
        given = network.random_inputs()
        arrays = [given[each.name] for each in network.inputs]
        arrays += [np.zeros(each.shape, each.numpy) for each in network.outputs]
        count = len(network.inputs)

        def run() -> None:
            places = [each.ctypes.data for each in arrays]
            network.run(places[:count], places[count:], threads=threads)

        yield path.stem, run, weights
        return
    generator, registry = np.random.default_rng(0), tvmconv.load(path, threads=threads)
    for signature in registry:
        kernel = registry[signature]
        if not isinstance(kernel, tvmconv.Kernel) or kernel.problem.dtype != "f32":
            continue
        operands = kernel.problem.operands.items()
        given = {name: generator.standard_normal(shape).astype(np.float32) for name, (shape, _) in operands}
        data, filters = given.pop("data"), given.pop("filter")
        packed: Any = kernel.pack(filters)
        out = kernel(data, filters, **given)

        def call(kernel: Any = kernel, arrays: Any = (data, packed), out: Any = out, given: Any = given) -> object:
            return kernel(*arrays, out=out, **given)

        yield signature, call, whole_pages(packed.array.ctypes.data, packed.array.nbytes)


def time_by_two(path: Path) -> dict[str, float]:
    """Return the microseconds of each call by two threads."""
    found = {}
    for signature, call, _ in calls_of(path, 2):
        call()
        times = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        found[signature] = min(times) * 1e6
    return found


class SerialPool:
    """The pool of `simulated_pool.c` in this process, which must not have another."""

    def __init__(self, folder: Path) -> None:
        ctypes.CDLL(libinfo.find_libtvm_ffi(), ctypes.RTLD_GLOBAL)
        source = Path(__file__).with_name("simulated_pool.c")
        includes = (*ffi_includes(), str(source))
        run_compiler(("-shared", "-fPIC", "-O2", *includes, "-o", "pool.so"), folder)
        self._library = ctypes.CDLL(str(folder / "pool.so"))
        if self._library.simulated_register() != 0:
            raise TvmconvError("this process has a pool of threads; simulate in a fresh one")

    def simulate(self, call: Callable[[], object], filters: tuple[int, int] = (0, 0)) -> Simulated:
        """Return what a call does, by the least times of some, and what its tasks read of filters, by their pages."""
        loops, between = self._run(call)
        if self._library.simulated_watch(ctypes.c_void_p(filters[0]), ctypes.c_size_t(filters[1])) != 0:
            raise TvmconvError("what tasks read cannot be noted: this process has no signal for it")
        self._choose(NOTE)
        self._library.simulated_reset()
        call()
        ends = np.array((ctypes.c_int64 * self._number("tasks")).in_dll(self._library, "simulated_ends")).tolist()
        noted = np.array((ctypes.c_int * (ends[-1] if ends else 0)).in_dll(self._library, "simulated_parts")).tolist()
        self._choose(COLD)
        cold, _ = self._run(call, COLD_ROUNDS)
        self._choose(WARM)
        parts = iter([frozenset(noted[begin:end]) for begin, end in pairwise([0, *ends])])
        reads = [Read([next(parts) for _ in times], times) for _, times in cold]
        return Simulated(loops, between, reads)

    def simulate_steps(self, call: Callable[[], object], seconds: npt.NDArray[np.float64]) -> list[Simulated]:
        """Return what each step does of a network's call, which writes there how long each takes; that of a step that does not run is empty."""
        place = ctypes.c_void_p.in_dll(self._library, "simulated_seconds")
        between = np.full(seconds.size, np.inf)

        def run() -> None:
            seconds[:] = UNKNOWN
            place.value = seconds.ctypes.data
            call()
            place.value = None
            rest = seconds.copy()
            np.subtract.at(rest, self._array(ctypes.c_int, "steps"), self._array(ctypes.c_double, "walls"))
            np.minimum(between, rest * 1e6, out=between)

        loops, _ = self._run(run)
        numbers = self._array(ctypes.c_int, "steps").tolist()
        return [
            Simulated([loop for loop, of in zip(loops, numbers, strict=True) if of == step], max(float(alone), 0.0))
            for step, alone in enumerate(between)
        ]

    def _choose(self, way: int) -> None:
        ctypes.c_int.in_dll(self._library, "simulated_way").value = way

    def _run(self, call: Callable[[], object], rounds: int = ROUNDS) -> tuple[Loops, float]:
        """Return the loops of a call, and the microseconds between them, by the least times of some."""
        self._library.simulated_reset()
        call()
        runs, between = [], []
        for _ in range(rounds):
            self._library.simulated_reset()
            call()
            runs.append(np.array((ctypes.c_double * self._number("tasks")).in_dll(self._library, "simulated_times")))
            between.append(ctypes.c_double.in_dll(self._library, "simulated_between").value / 1e3)
        times, begin, found = np.min(runs, axis=0) / 1e3, 0, []
        for asked, tasks in zip(
            self._array(ctypes.c_int, "threads").tolist(), self._array(ctypes.c_int64, "counts").tolist(), strict=True
        ):
            found.append((asked, times[begin : begin + tasks].tolist()))
            begin += tasks
        return found, min(between)

    def _array(self, kind: Any, name: str) -> npt.NDArray[Any]:
        """Return what the pool keeps of each loop."""
        return np.array((kind * self._number("loops")).in_dll(self._library, f"simulated_{name}"))

    def _number(self, name: str) -> int:
        return ctypes.c_int64.in_dll(self._library, f"simulated_{name}").value


def _ways_of(wake: float) -> list[tuple[str, Callable[[int, Simulated], float]]]:
    return [
        (f"{wake} us a thread more", lambda _, call: call.makespan(wake)),
        ("at least", lambda threads, call: call.limit(threads, wake)),
    ]


def rows_of(name: str, calls: Sequence[Mapping[int, Simulated]], by_two: float) -> list[list[str]]:
    """Return the lines of calls that follow each other, simulated for some numbers of threads."""
    ways: list[tuple[str, Callable[[int, Simulated], float]]] = [
        ("makespan", lambda _, call: call.makespan()),
        ("filters cold", lambda _, call: call.cold()[0]),
        ("MB of filters read", lambda _, call: call.cold()[1] / 1e6),
        *(way for wake in WAKES for way in _ways_of(wake)),
        ("work shared evenly", lambda threads, call: call.shared(threads)),
        ("longest tasks", lambda _, call: call.longest()),
    ]
    rows = []
    for way, of in ways:
        sums = [sum(of(threads, call[threads]) for call in calls) for threads in calls[0]]
        measured = f"{by_two:.0f}" if way == "makespan" else ""
        rows.append([name, way, *(f"{each:.0f}" for each in sums), measured])
        name = ""
    rows.insert(1, ["", "efficiency, %", *(f"{100 * _efficiency(calls, threads):.0f}" for threads in calls[0]), ""])
    return rows


def _efficiency(calls: Sequence[Mapping[int, Simulated]], threads: int) -> float:
    """Return the share of so many threads' time in which they have a task, without what it takes to wake them."""
    spans = sum(call[threads].makespan() for call in calls)
    return sum(call[threads].shared(threads) for call in calls) / spans


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of the bundles and networks that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated_cores", description=__doc__)
    parser.add_argument("sources", type=Path, nargs="+", metavar="BUNDLE|NETWORK.so")
    parser.add_argument("--threads", default="2,4,8,16,32,64", help="numbers, with commas, default %(default)s")
    parser.add_argument("--list", action="store_true", help="also print each kernel of bundles")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between its markers there")
    arguments = parser.parse_args(argv)
    counts = [int(each) for each in arguments.threads.split(",")]
    if min(counts) < 2:
        parser.error("--threads has a number below 2: one thread has no loop to share")
    rows = []
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(1) as pool:
        serial = SerialPool(Path(folder))
        for source in arguments.sources:
            by_two = pool.apply(time_by_two, (source,))
            found: dict[str, dict[int, Simulated]] = {}
            for threads in counts * TURNS:
                for name, call, filters in calls_of(source, threads):
                    seen, before = serial.simulate(call, filters), found.setdefault(name, {})
                    before[threads] = seen.least(before[threads]) if threads in before else seen
            if arguments.list and len(found) > 1:
                rows += [row for name, call in found.items() for row in rows_of(name, [call], by_two[name])]
            name = source.stem if len(found) == 1 else f"{len(found)} kernels of {source.stem}"
            rows += rows_of(name, list(found.values()), sum(by_two.values()))
    header = ["us", "", *map(str, counts), "2, measured"]
    show_simulated(header, rows, arguments.update, MARKERS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
