"""Memory that a process has freed, given back to the system."""

from __future__ import annotations

import ctypes
import gc


def give_back() -> None:
    """Free what only cycles refer to, and give the system the heap's free pages, where the C library can (glibc's does).

    What lies between blocks that are still used stays the process's.
    """
    gc.collect()
    trim()


def trim() -> None:
    """Give the system the heap's free pages, where the C library can."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(ctypes.c_size_t(0))
