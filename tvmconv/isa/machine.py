"""Features of this machine's CPU, by the names that Linux gives."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from . import cpuinfo, isa_of, native, unless_native

# Names of features that the CPU has and this process, and those that it starts, do without: `pytest --as-cpu`. Programs in C of
# exported libraries read it, too (exporting/native/tvmconv-runtime.h).
HIDDEN = "TVMCONV_HIDDEN_FEATURES"
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def cpu_features() -> frozenset[str]:
    """Return the instruction-set features that programs may use here, such as ``"fma"``.

    None on a machine of an instruction set that kernels are not compiled for; and none that the environment hides.
    """
    isa = native()
    return frozenset() if isa is None else isa.detect() - frozenset(os.environ.get(HIDDEN, "").split())


def missing_features(needed: Iterable[str]) -> tuple[str, ...]:
    """Return those of `needed` that this machine lacks, sorted."""
    return tuple(sorted(set(needed) - cpu_features()))


def obstacle_of(needed: Iterable[str]) -> str | None:
    """Return why this machine does not run code that needs some features, or None if it does."""
    isa = unless_native(isa_of(needed))
    if isa is not None:
        system = f" under {platform.system()}" if isa.port else ""
        return f"it is for {isa.name}, and this machine's CPU is {platform.machine()}{system}"
    missing = missing_features(needed)
    return f"this machine's CPU lacks {', '.join(missing)}" if missing else None


def vendor() -> str:
    """Return the CPU's vendor, as it names itself: ``"GenuineIntel"``; ``""`` if the system does not report it."""
    return cpuinfo.fields().get("vendor_id", "")


def model_name() -> str:
    """Return the CPU's name as the system reports it, ``"unknown CPU"`` if it does not."""
    return cpuinfo.fields().get("model name", "unknown CPU")


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
