"""What this machine's CPU can do, by the names that Linux gives."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ..isa import native
from .processors import usable_processors

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Linux gives a process tile registers when it asks for them (Documentation/arch/x86/xstate.rst).
_ARCH_PRCTL, _ASK_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def cpu_features() -> frozenset[str]:
    """Return the instruction-set features that programs may use here, such as ``"avx2"``.

    On x86 they are the flags of /proc/cpuinfo: a feature that the operating system has not enabled is absent.
    Where there is no such file, the set is empty and only kernels that need no feature run. Tiles (AMX) are absent too
    where the kernel does not let this process use them, which it is asked for. Other instruction sets find them in another way.
    """
    isa = native()
    if isa is not None and isa.detect is not None:
        return isa.detect()
    found = frozenset(_cpuinfo().get("flags", "").split())
    tiles = frozenset(flag for flag in found if flag.startswith("amx_"))
    return found - tiles if tiles and not tiles_permitted() else found


def missing_features(needed: Iterable[str]) -> tuple[str, ...]:
    """Return those of `needed` that this machine lacks, sorted."""
    return tuple(sorted(set(needed) - cpu_features()))


@cache
def tiles_permitted() -> bool:
    """Ask Linux for AMX's tile registers, for all threads of this process; return whether they may be used."""
    ask = ctypes.CDLL(None, use_errno=True).syscall
    return int(ask(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_ASK_PERMISSION), ctypes.c_long(_TILE_DATA))) == 0


def vendor() -> str:
    """Return who made the CPU, as it says itself: ``"GenuineIntel"``; ``""`` if the system does not tell."""
    return _cpuinfo().get("vendor_id", "")


def model_name() -> str:
    """Return the CPU's name as the system reports it, ``"unknown CPU"`` if it does not."""
    return _cpuinfo().get("model name", "unknown CPU")


def cache_bytes() -> tuple[int, int] | None:
    """Return the sizes of L2 and L3 that the first processor uses; None if Linux does not tell."""
    sizes: dict[int, int] = {}
    for folder in _CACHES.glob("index*"):
        try:
            level, size = int((folder / "level").read_text()), (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue  # a kernel without this part of sysfs
        if size.endswith("K") and size[:-1].isdigit():
            sizes[level] = 1024 * int(size[:-1])
    return (sizes[2], sizes[3]) if {2, 3} <= sizes.keys() else None


def kernel_threads() -> int:
    """Return how many threads a kernel has by default: as many as there are processors for, or OMP_NUM_THREADS, if it is less."""
    # OpenMP takes a list, one number for each level of nested parallelism; kernels have one level.
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    asked = int(text) if text.isascii() and text.isdigit() else 0
    return min(usable_processors(), asked) if asked else usable_processors()


@cache
def _cpuinfo() -> dict[str, str]:
    """Read the first processor's fields."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    first = text.split("\n\n", 1)[0]
    lines = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in lines}
