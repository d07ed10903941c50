"""Memory that a process has freed: given back to the system, and looked for."""

from __future__ import annotations

import ctypes
import gc
import sys

# New containers between two collections of a process of ours alone: tens of MB, if all were garbage. Python's 700 would look through
# TVM's modules again and again, for 5 % of a compilation.
_CONTAINERS = 100_000


def collect_rarely() -> None:
    """Look for what only cycles refer to less often; for processes that end with what they compute."""
    gc.set_threshold(_CONTAINERS)


def give_back() -> None:
    """Free what only cycles refer to, and give the system the heap's free pages, where the C library can (glibc's does).

    What lies between blocks that are still used stays the process's.
    """
    gc.collect()
    trim()


def trim() -> None:
    """Give the system the heap's free pages, where the C library can."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if malloc_trim is not None:
        malloc_trim(ctypes.c_size_t(0))
