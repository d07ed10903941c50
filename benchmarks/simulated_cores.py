"""Times that more threads than this machine has cores would take for networks, and for the kernels of bundles, from tasks that are timed alone.

    python -m benchmarks.simulated_cores BUNDLE NETWORK.so --threads 2,16,64 --update benchmarks/results/many_cores.md

Each is called as by so many threads, and every task by one, the processor's time of which is taken, the least of some calls. The
makespan is that of threads which take the next task whenever they are done, loop after loop; what is between loops is one thread's, what
is before the first takes no time. Beside it is what it takes to wake each thread and to wait for it, after two measurements, and what
that is at least, by loops that are shared evenly by the best number of threads. What threads cannot take less than: the work shared
evenly, and the longest task of each loop. Caches that threads would not share, and
memory that they would, are not in it. The last column is the time of two threads that was measured.
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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm_ffi import libinfo

import tvmconv
from tvmconv.errors import TvmconvError
from tvmconv.support.toolchain import ffi_includes, run_compiler

from .commands import print_errors
from .report import markers, show_simulated

ROUNDS = 9
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
    """A call as by some number of threads: the threads that each loop asks for, with the microseconds of its tasks, and those between loops."""

    loops: Loops
    between: float = 0.0

    def makespan(self, wake: float | None = None) -> float:
        """Return the microseconds of the call; with `wake`, each thread takes so many to come, and a loop LOOP."""
        found = self.between
        for asked, times in self.loops:
            found += makespan(times, asked)
            found += 0 if wake is None else LOOP + wake * (min(asked, len(times)) - 1)
        return found

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


def calls_of(path: Path, threads: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the signatures of a bundle's kernels of f32, and calls with a prepacked filter; or the name of a network, and its call."""
    if path.is_file():
        network = tvmconv.load_network(path)
        given = network.random_inputs()
        arrays = [given[each.name] for each in network.inputs]
        arrays += [np.zeros(each.shape, each.numpy) for each in network.outputs]
        count = len(network.inputs)

        def run() -> None:
            places = [each.ctypes.data for each in arrays]
            network.run(places[:count], places[count:], threads=threads)

        yield path.stem, run
        return
    generator, registry = np.random.default_rng(0), tvmconv.load(path, threads=threads)
    for signature in registry:
        kernel = registry[signature]
        if not isinstance(kernel, tvmconv.Kernel) or kernel.problem.dtype != "f32":
            continue
        operands = kernel.problem.operands.items()
        given = {name: generator.standard_normal(shape).astype(np.float32) for name, (shape, _) in operands}
        data, filters = given.pop("data"), given.pop("filter")
        packed, out = kernel.pack(filters), kernel(data, filters, **given)

        def call(kernel: Any = kernel, arrays: Any = (data, packed), out: Any = out, given: Any = given) -> object:
            return kernel(*arrays, out=out, **given)

        yield signature, call


def time_by_two(path: Path) -> dict[str, float]:
    """Return the microseconds of each call by two threads."""
    found = {}
    for signature, call in calls_of(path, 2):
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

    def simulate(self, call: Callable[[], object]) -> Simulated:
        """Return what a call does, by the least times of some."""
        return Simulated(*self._run(call))

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

    def _run(self, call: Callable[[], object]) -> tuple[Loops, float]:
        """Return the loops of a call, and the microseconds between them, by the least times of some."""
        self._library.simulated_reset()
        call()
        runs, between = [], []
        for _ in range(ROUNDS):
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
    return rows


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
            for threads in counts:
                for name, call in calls_of(source, threads):
                    found.setdefault(name, {})[threads] = serial.simulate(call)
            if arguments.list and len(found) > 1:
                rows += [row for name, call in found.items() for row in rows_of(name, [call], by_two[name])]
            name = source.stem if len(found) == 1 else f"{len(found)} kernels of {source.stem}"
            rows += rows_of(name, list(found.values()), sum(by_two.values()))
    header = ["us", "", *map(str, counts), "2, measured"]
    show_simulated(header, rows, arguments.update, MARKERS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
