"""Arrays against memory that may not be touched, and inputs that may not be written."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE
_NOTHING, _READ = 0, 1  # PROT_NONE, PROT_READ
_M_PERTURB = -6  # of mallopt, malloc.h


def guarded(array: npt.NDArray[Any], *, at_end: bool, writable: bool = False) -> npt.NDArray[Any]:
    """Return a copy directly before a page that may not be accessed, or directly after one.

    bfloat16 becomes uint16, as kernels take it. Writing to the copy ends the process, unless it is `writable`.
    """
    bits = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    if not bits.size:
        return bits
    pages = max(-(-bits.nbytes // _PAGE), 1)
    memory = mmap.mmap(-1, (pages + 2) * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    start = (pages + 1) * _PAGE - bits.nbytes if at_end else _PAGE
    copy = np.frombuffer(memory, bits.dtype, bits.size, start).reshape(bits.shape)
    copy[...] = bits
    _protect(address, _PAGE, _NOTHING)
    _protect(address + (pages + 1) * _PAGE, _PAGE, _NOTHING)
    if not writable:
        _protect(address + _PAGE, pages * _PAGE, _READ)
    return copy


def _protect(address: int, size: int, rights: int) -> None:
    if _LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), rights) != 0:
        raise OSError(ctypes.get_errno(), "mprotect failed")


def dirty_allocations() -> None:
    """Let malloc fill what it returns with 0x7f, a huge f32: a workspace that is read before it is written shows."""
    _LIBC.mallopt(_M_PERTURB, 0x80)
