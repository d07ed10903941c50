"""Times that more threads than this machine has cores would take for the kernels of a bundle, from tasks that are timed alone.

    python -m benchmarks.simulated_cores BUNDLE --threads 2,16,64

Each kernel is called as by so many threads, and every task by one, the processor's time of which is taken, the least of some calls. The
makespan is that of threads which take the next task whenever they are done, after what it takes to wake each and to wait for it; in turn
for each loop; what is in none takes no time. Caches that threads would not share, and memory that they would, are not in it. The last column is the time of two threads
that was measured.
"""

from __future__ import annotations

import argparse
import ctypes
import heapq
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tvm_ffi import libinfo

import tvmconv
from tvmconv.cli.output import print_table
from tvmconv.errors import TvmconvError
from tvmconv.support.toolchain import ffi_includes, run_compiler

ROUNDS = 9
# Microseconds of a loop, and of each thread beyond the first: 0.15 to 0.35 were seen on two cores of a Zen 3.
LOOP, WAKE = 0.3, 0.25


def makespan(times: Sequence[float], threads: int) -> float:
    """Return when the last of tasks ends that threads take in order, each the next when it is done."""
    free = [0.0] * min(threads, max(len(times), 1))
    for each in times:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def calls_of(bundle: Path, threads: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the signatures of a bundle's kernels of f32, and calls with a prepacked filter."""
    generator, registry = np.random.default_rng(0), tvmconv.load(bundle, threads=threads)
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


def time_by_two(bundle: Path) -> dict[str, float]:
    """Return the microseconds of each kernel by two threads."""
    found = {}
    for signature, call in calls_of(bundle, 2):
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

    def loops(self, call: Callable[[], object]) -> list[tuple[int, list[float]]]:
        """Return the threads that each loop of a call asks for, and the microseconds of its tasks, the least of some calls."""
        call()
        runs = []
        for _ in range(ROUNDS):
            self._library.simulated_reset()
            call()
            runs.append(np.array((ctypes.c_double * self._number("tasks")).in_dll(self._library, "simulated_times")))
        times, begin, found = np.min(runs, axis=0) / 1e3, 0, []
        count = self._number("loops")
        threads = (ctypes.c_int * count).in_dll(self._library, "simulated_threads")
        for asked, tasks in zip(
            threads, (ctypes.c_int64 * count).in_dll(self._library, "simulated_counts"), strict=True
        ):
            found.append((asked, times[begin : begin + tasks].tolist()))
            begin += tasks
        return found

    def _number(self, name: str) -> int:
        return ctypes.c_int64.in_dll(self._library, f"simulated_{name}").value


def simulate(loops: Sequence[tuple[int, Sequence[float]]]) -> float:
    """Return the microseconds of loops that follow each other."""
    return sum(makespan(times, asked) + LOOP + WAKE * (min(asked, len(times)) - 1) for asked, times in loops)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of the bundle that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated_cores", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", default="2,4,8,16,32,64", help="numbers, with commas, default %(default)s")
    arguments = parser.parse_args(argv)
    counts = [int(each) for each in arguments.threads.split(",")]
    if min(counts) < 2:
        parser.error("--threads has a number below 2: one thread has no loop to share")
    try:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            by_two = pool.apply(time_by_two, (arguments.bundle,))
        found: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as folder:
            serial = SerialPool(Path(folder))
            for threads in counts:
                for signature, call in calls_of(arguments.bundle, threads):
                    found.setdefault(signature, []).append(simulate(serial.loops(call)))
    except TvmconvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rows = [
        [signature, *(f"{each:.0f}" for each in times), f"{by_two[signature]:.0f}"]
        for signature, times in found.items()
    ]
    sums = [sum(each) for each in zip(*found.values(), strict=True)]
    rows.append(["all", *(f"{each:.0f}" for each in sums), f"{sum(by_two.values()):.0f}"])
    print_table(["us by threads", *map(str, counts), "2, measured"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
