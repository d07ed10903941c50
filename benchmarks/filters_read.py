"""Filters that tasks read, of a bundle's kernel or a network, and what that takes where caches do not have them.

A stated model, of a server's processor: a thread has no part of a filter when a loop begins, takes longer for tasks that read new parts, by
what the same tasks took without them in a cache, and keeps what it has read to the loop's end. THREADS_OF_L3 threads share a cache
for which memory gives each part once, MEMORY bytes a microsecond for all threads together.
"""

from __future__ import annotations

import heapq
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvmconv.runtime.networks.file import read_file

PART = 1 << 14  # bytes, as in `simulated_pool.c`
THREADS_OF_L3 = 8  # of AMD's since Zen 3
MEMORY = 200_000  # of eight channels of DDR4-3200, 204.8 GB/s


@dataclass(frozen=True)
class Read:
    """What the tasks of a loop read of filters: the parts of each, and the microseconds of each where no cache has them."""

    parts: Sequence[frozenset[int]]
    cold: Sequence[float]

    def simulate(self, times: Sequence[float], threads: int) -> tuple[float, int]:
        """Return when the last task ends that threads take in order, and how many bytes all threads read of filters.

        `times` are those of the tasks where caches have what they read.
        """
        count = min(threads, max(len(times), 1))
        free, known, read = [(0.0, thread) for thread in range(count)], [set[int]() for _ in range(count)], 0
        for warm, cold, parts in zip(times, self.cold, self.parts, strict=True):
            at, thread = free[0]
            new = len(parts - known[thread])
            known[thread] |= parts
            read += new
            longer = max(cold - warm, 0.0) * new / max(len(parts), 1)
            heapq.heapreplace(free, (at + warm + longer, thread))
        once = len(frozenset().union(*self.parts))
        given = min(read, once * -(-count // THREADS_OF_L3))
        return max(max(free)[0], given * PART / MEMORY), read * PART


def mappings_of(path: Path) -> set[tuple[int, int]]:
    """Return where this process has mapped the weights of a network, and how many bytes they have: whole pages of each loaded one."""
    file, name, found = read_file(path), str(path.resolve()), set()
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        where, _, offset, *rest = line.split(maxsplit=5)
        if rest[-1] == name and int(offset, 16) == file.weights:
            found.add(whole_pages(int(where.partition("-")[0], 16), file.weight_bytes))
    return found


def whole_pages(begin: int, size: int) -> tuple[int, int]:
    """Return the pages that an array has for itself: where they begin, and how many bytes."""
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    return first, max(0, (begin + size) // mmap.PAGESIZE * mmap.PAGESIZE - first)
