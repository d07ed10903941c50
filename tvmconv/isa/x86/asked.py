"""Features of an x86-64 CPU by cpuid and XCR0 (the registers that the system saves), on systems without /proc/cpuinfo."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from .cpuid import CPUID

# Machine code of a function of a pointer to four words: it reads cpuid's leaf and subleaf from the first two, and writes eax to edx there.
_BEGIN = b"\x53"  # push rbx
_POINTER = b"\x49\x89\xc8" if sys.platform == "win32" else b"\x49\x89\xf8"  # mov r8, rcx, or rdi
_CPUID = b"\x41\x8b\x00\x41\x8b\x48\x04\x0f\xa2\x41\x89\x00\x41\x89\x58\x04\x41\x89\x48\x08\x41\x89\x50\x0c"
_XGETBV = b"\x31\xc9\x0f\x01\xd0\x41\x89\x00"  # of XCR0, of which only the lower half is needed
_END = b"\x5b\xc3"  # pop rbx; ret
_COMMIT, _EXECUTE, _PAGE = 0x3000, 0x40, 4096  # VirtualAlloc's
_SAVES = (1, 0, 2, 27)  # leaf, subleaf, register and bit: programs may read XCR0


@cache
def features() -> frozenset[str]:
    """Return the features of this machine's CPU that programs may use, by Linux's names, without tiles, which must be requested."""
    ask, state = _function(_CPUID), 0
    most = {base: _registers(ask, base, 0)[0] for base in (0, 0x80000000)}

    def has(leaf: int, subleaf: int, register: int, bit: int) -> bool:
        known = leaf <= most[leaf & 0x80000000] and subleaf <= (_registers(ask, leaf, 0)[0] if leaf == 7 else 0)
        return known and bool(_registers(ask, leaf, subleaf)[register] >> bit & 1)

    if has(*_SAVES):
        state = _registers(_function(_XGETBV), 0, 0)[0]
    return frozenset(
        name for name, (*where, saved) in CPUID.items() if has(*where) and state & saved == saved and "amx" not in name
    )


def _registers(function: object, *words: int) -> tuple[int, ...]:
    given = (ctypes.c_uint32 * 4)(*words)
    function(given)  # type: ignore[operator]
    return tuple(given)


def _function(code: bytes) -> object:
    """Return machine code as a function of a pointer, in a page that is never freed."""
    content = _BEGIN + _POINTER + code + _END
    if sys.platform == "win32":
        allocate = ctypes.WinDLL("kernel32").VirtualAlloc
        allocate.restype, allocate.argtypes = (
            ctypes.c_void_p,
            [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32],
        )
        place = allocate(None, _PAGE, _COMMIT, _EXECUTE)
    else:
        import mmap

        pages = mmap.mmap(-1, _PAGE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        _KEPT.append(pages)
        place = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if not place:
        raise OSError("the system refuses executable memory, which detecting the CPU's features needs")
    ctypes.memmove(place, content, len(content))
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(place)


_KEPT: list[object] = []
