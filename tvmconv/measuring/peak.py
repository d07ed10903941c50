"""The machine's limits, measured: multiply-adds a second, and reads from memory and from the cache, with all threads.

A small C program measures them, which needs a C compiler; without one they are unknown.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from ..dtypes import ROWS, is_integer, types_of
from ..errors import ToolchainError
from ..isa import native
from ..support.toolchain import run_compiler

SOURCE = Path(__file__).with_name("peak.c")
FLAGS = ("-O3", "-ffp-contract=fast", "-fopenmp", "-shared", "-fPIC")
# The library's rates: in f32, in bf16 by vectors and by tiles, and in integers by vectors.
OPERATIONS = ("operations", "bf16_operations", "tile_operations", "integer_operations")
# Steps of a run: about 10 ms on a 3 GHz core, twenty runs: long enough to leave the idle clock.
STEPS = 2**20
# Most times fewer multiplications of a transform: Winograd's tiles of 4x4x4 outputs.
MOST_SAVED = 8.0
SECONDS = 0.3
TRIES = 5
# 256 MiB: larger than caches, so that it is read from memory. 4 MiB: larger than a core's own caches, smaller than the last
# one, and about what a layer reads and writes, which that cache holds where it is called again and again, as in a benchmark.
MEMORY_FLOATS, CACHE_FLOATS = 2**26, 2**20


@dataclass(frozen=True)
class Arithmetic:
    """Greatest arithmetic speed of the machine.

    Parameters
    ----------
    flops
        Floating point operations a second in f32, a multiply-add counted as two.
    bf16_flops
        The same in bf16, by AMX's tiles or the dot product of AVX512-BF16 or ARM; None where the CPU, or the compiler, has neither.
    integer_flops
        The same in integers of 8 bits, by AMX's tiles or the dot product of AVX512-VNNI, AVX-VNNI or ARM; None as for `bf16_flops`.
    """

    flops: float
    bf16_flops: float | None
    integer_flops: float | None = field(default=None, kw_only=True)

    def of(self, dtype: str) -> float | None:
        """Return the operations a second in a problem's type: in bf16 without instructions for it, those in f32.

        None if unknown, as of filters of 16 bits.
        """
        types = types_of(dtype)
        if is_integer(types.data):
            return self.integer_flops if ROWS[types.filter].nbytes == 1 else None
        return (self.bf16_flops if dtype == "bf16" else None) or self.flops

    def share(self, speed: float, dtype: str) -> float | None:
        """Return `speed` as a share of the peak; None if that is unknown, or no transform explains it, as on a busy machine."""
        most = self.of(dtype)
        return speed / most if most and speed / most <= MOST_SAVED else None


@dataclass(frozen=True)
class Peak(Arithmetic):
    """Greatest speed of the machine, in arithmetic and from memory.

    Parameters
    ----------
    bandwidth
        Bytes read from memory a second.
    cache_bandwidth
        Bytes read a second from 4 MiB that were read before.
    threads
        Number of threads that were used.
    """

    bandwidth: float
    cache_bandwidth: float
    threads: int


@cache
def arithmetic(threads: int, cpu: str = "native") -> Arithmetic | None:
    """Measure how fast `threads` threads compute with the instructions of `cpu`, once per process; None without a C compiler."""
    library = load_library(cpu)
    if library is None:
        return None

    def most(function: Callable[..., float]) -> float:
        return _best(lambda: run_steps(function, threads, STEPS))

    flops, bf16, tiles, integers = (most(getattr(library, f"tvmconv_{each}_per_second")) for each in OPERATIONS)
    # A product of tiles of integers has twice as many terms as one of bf16, and takes as long (Intel's optimization manual).
    return Arithmetic(flops, max(bf16, tiles) or None, integer_flops=max(integers, 2 * tiles) or None)


@cache
def measure(threads: int, cpu: str = "native") -> Peak | None:
    """Measure the limits that `threads` threads meet with the instructions of `cpu`, once per process; None as for `arithmetic`."""
    library, computing = load_library(cpu), arithmetic(threads, cpu)
    if library is None or computing is None:
        return None
    reads = library.tvmconv_bytes_per_second
    data = np.ones(MEMORY_FLOATS, dtype=np.float32)

    def reading(count: int) -> float:
        sink = ctypes.byref(ctypes.c_float())
        return _best(lambda: reads(threads, ctypes.c_void_p(data.ctypes.data), ctypes.c_int64(count), sink))

    memory, cached = agree(lambda: reading(MEMORY_FLOATS), lambda: reading(CACHE_FLOATS))
    return Peak(computing.flops, computing.bf16_flops, memory, cached, threads, integer_flops=computing.integer_flops)


def measure_again(threads: int) -> Peak | None:
    """Measure again, after limits that are impossible."""
    arithmetic.cache_clear()
    measure.cache_clear()
    return measure(threads)


def agree(memory: Callable[[], float], cached: Callable[[], float]) -> tuple[float, float]:
    """Return the bandwidths of memory and of the cache, measured again while the cache's is less, as on a busy machine.

    A cache is at least as fast as memory: if the measurements never agree, memory's counts for both.
    """
    most, most_cached = memory(), cached()
    for _ in range(TRIES):
        if most_cached >= most:
            break
        most_cached = max(most_cached, cached())
    return most, max(most, most_cached)


@cache
def load_library(cpu: str) -> ctypes.CDLL | None:
    """Compile the C program for `cpu` and load it; None when this machine has no C compiler that can."""
    isa = native()
    if isa is None:
        return None
    with tempfile.TemporaryDirectory(prefix="tvmconv-peak-") as folder:
        try:
            run_compiler((*FLAGS, isa.cpu_flag + cpu, f"-I{isa.native}", str(SOURCE), "-o", "peak.so"), Path(folder))
        except ToolchainError:
            return None
        library = ctypes.CDLL(str(Path(folder) / "peak.so"))
    for name in (*(f"{each}_per_second" for each in (*OPERATIONS, "bytes")), "share", "round_trip"):
        getattr(library, f"tvmconv_{name}").restype = ctypes.c_double
    return library


def run_steps(function: Callable[..., float], threads: int, steps: int) -> float:
    """Return the result of one of the library's functions with `threads` threads in so many steps of multiply-adds."""
    # Factor, addend, and the starts of the sums, 20 at most.
    numbers = np.array([1.0, 1e-30, *range(20)], dtype=np.float32)
    sink = ctypes.byref(ctypes.c_float())
    return function(threads, ctypes.c_int64(steps), ctypes.c_void_p(numbers.ctypes.data), sink)


def _best(rate: Callable[[], float]) -> float:
    """Return the highest of the rates measured in `SECONDS`, or 0 at once, the rate of instructions that are not there."""
    best, end = rate(), time.perf_counter() + SECONDS
    while best and time.perf_counter() < end:
        best = max(best, rate())
    return best
