"""Memory on huge pages, for arrays that every call reads from end to end: few TLB entries cover them."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from math import prod
from pathlib import Path

import numpy as np

from .arrays import LINE_BYTES, array_in

_HUGE_PAGE = 2 << 20
# Bytes allocated at once; freed when no array in them is left.
_SLAB = 16 << 20
# Linux's setting of transparent huge pages: [always], [madvise] or [never].
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_rests: list[np.ndarray] = []  # of slabs: as many as threads that asked at the same time; pop and append are atomic


def huge_pages(size: int) -> np.ndarray:
    """Return `size` zero bytes at the beginning of a huge page, where the system has any (`setting`)."""
    # Shared memory, mmap's default, gets no huge pages; Windows has no such flags.
    private = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    pages = mmap.mmap(-1, size + _HUGE_PAGE, **private)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a Linux built without huge pages refuses; small pages are only slower
            pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    return memory[-memory.ctypes.data % _HUGE_PAGE :][:size]


def setting() -> str:
    """Return Linux's setting of transparent huge pages: ``always``, ``madvise`` or ``never``."""
    try:
        words = _SETTING.read_text().split()
    except OSError:
        return "never"  # no such Linux
    return next((word[1:-1] for word in words if word.startswith("[")), "never")


def zeros(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> np.ndarray:
    """Return a new array of zeros that begins at a cache line, right after the previous one: filters of a model share pages."""
    size = -(-prod(shape) * dtype.itemsize // LINE_BYTES) * LINE_BYTES
    try:
        rest = _rests.pop()
    except IndexError:
        rest = huge_pages(_SLAB)
    if rest.size < size:
        rest = huge_pages(max(size, _SLAB))
    _rests.append(rest[size:])
    return array_in(rest, shape, dtype, 0)
