"""Freed memory: when it is collected, and when it is returned to the system."""

from __future__ import annotations

import ctypes
import gc
import sys

# New containers between two garbage collections of our own processes: tens of MB, if all were garbage. With Python's 700, collections
# traverse TVM's modules again and again, for 5 % of a compilation's time.
_CONTAINERS = 100_000
# Parameters of glibc's mallopt: free bytes at the heap's end that are returned to the system (M_TRIM_THRESHOLD), more than most
# networks' weights; and bytes from which a block is mapped separately (M_MMAP_THRESHOLD), the most that glibc takes.
_MALLOPT = {-1: 1 << 30, -3: 32 << 20}


def spare_time() -> None:
    """Collect garbage less often, and keep freed memory; for processes that end with their result.

    Returned pages would be cleared again when they are needed.
    """
    gc.set_threshold(_CONTAINERS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter, value in _MALLOPT.items():
            mallopt(parameter, value)


def give_back() -> None:
    """Collect garbage, and return the heap's free pages to the system, where the C library can (glibc's does).

    Pages between blocks in use stay the process's.
    """
    gc.collect()
    trim()


def trim() -> None:
    """Return the heap's free pages to the system, where the C library can."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if malloc_trim is not None:
        malloc_trim(ctypes.c_size_t(0))
