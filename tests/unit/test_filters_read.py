"""What tasks read of filters, as `benchmarks.simulated_cores` notes it, and what that takes by its model."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys import run_python

from benchmarks.filters_read import MEMORY, PART, THREADS_OF_L3, Read, whole_pages
from benchmarks.simulated_cores import Simulated

# Three tasks: of the first part, of it and the last, of nothing.
NOTED = """
import ctypes, mmap, sys
from pathlib import Path
import tvm_ffi
from benchmarks.filters_read import PART
from benchmarks.simulated_cores import SerialPool

serial = SerialPool(Path(sys.argv[1]))
filters = mmap.mmap(-1, 3 * PART - mmap.PAGESIZE)
place = ctypes.addressof(ctypes.c_char.from_buffer(filters))
BODY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)

@BODY
def read(data, index):
    for at in [(0,), (PART - 1, 3 * PART - mmap.PAGESIZE - 1, 0), ()][index]:
        ctypes.string_at(place + at, 1)
    return 0

class Threads(ctypes.Structure):
    RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, BODY, ctypes.c_void_p)
    _fields_ = [("run", RUN), ("pool", ctypes.c_void_p), ("threads", ctypes.c_int)]

pool = ctypes.cast(tvm_ffi.get_global_func("tvmconv.threads.1")(), ctypes.POINTER(Threads)).contents

def call():
    ctypes.string_at(place, len(filters))
    for asked, tasks in ((4, 2), (8, 3)):
        pool.run(None, asked, tasks, read, None)
    filters[:1] = b"1"

for _ in range(2):
    found = serial.simulate(call, (place, len(filters)))
    print([asked for asked, _ in found.loops], [[sorted(each) for each in read.parts] for read in found.reads])
print([[len(read.cold) for read in found.reads], serial.simulate(call).cold()[1]])
"""


def test_what_tasks_read_is_noted(tmp_path: Path) -> None:
    """Also where they read it again, and what is between loops reads and writes it."""
    noted = "[4, 8] [[[0], [0, 2]], [[0], [0, 2], []]]\n"
    assert run_python(NOTED, tmp_path) == 2 * noted + "[[2, 3], 0]"


def test_threads_read_each_part_once() -> None:
    parts = [frozenset({0, 1}), frozenset({1, 2}), frozenset({0, 1}), frozenset[int]()]
    read = Read(parts, [5, 4, 9, 2])
    assert read.simulate([3, 3, 3, 2], 1) == (3 + 2 + 3 + 0.5 + 3 + 2, 3 * PART)
    assert read.simulate([3, 3, 3, 2], 2) == (4 + 3 + 3, 5 * PART)  # the second thread has the last two
    call = Simulated([(2, [3, 3, 3, 2])], between=1, reads=[read])
    assert call.cold() == (1 + 10, 5 * PART)


@pytest.mark.parametrize("threads", [1, THREADS_OF_L3, THREADS_OF_L3 + 1])
def test_memory_gives_a_part_to_each_cache(threads: int) -> None:
    read = Read([frozenset(range(1000))] * 64, [2.0] * 64)
    least = 1000 * PART / MEMORY
    caches = 1 if threads <= THREADS_OF_L3 else 2
    assert read.simulate([1.0] * 64, threads)[0] == pytest.approx(max(caches * least, 64 / threads + 1))


def test_pages_of_an_arrays_own() -> None:
    assert whole_pages(4096, 8192) == (4096, 8192)
    assert whole_pages(4097, 8192) == (8192, 4096)
    assert whole_pages(4097, 100)[1] == 0
