"""Features of an x86 CPU as Linux reports them: the flags of /proc/cpuinfo, and tiles, which a process must request."""

from __future__ import annotations

import ctypes
from functools import cache

from .. import cpuinfo

# Linux grants tile registers to processes on request (Documentation/arch/x86/xstate.rst).
_ARCH_PRCTL, _ASK_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def features() -> frozenset[str]:
    """Return the features of this machine's CPU that programs may use, by Linux's names.

    Features that the operating system has not enabled are absent, and so are tiles (AMX) if Linux denies this process's request for
    them. Without /proc/cpuinfo the set is empty, and only kernels that need no feature run.
    """
    found = frozenset(cpuinfo.fields().get("flags", "").split())
    tiles = frozenset(flag for flag in found if flag.startswith("amx_"))
    return found - tiles if tiles and not tiles_permitted() else found


@cache
def tiles_permitted() -> bool:
    """Request AMX's tile registers from Linux for all threads of this process; return whether they may be used."""
    ask = ctypes.CDLL(None, use_errno=True).syscall
    return int(ask(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_ASK_PERMISSION), ctypes.c_long(_TILE_DATA))) == 0
