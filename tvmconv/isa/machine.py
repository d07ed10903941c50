"""Features, name and caches of this machine's CPU."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from . import cpuinfo, isa_of, native, unless_native

# Environment variable with features that this process and its children do not use (`pytest --as-cpu`). Exported libraries read it,
# too (exporting/native/tvmconv-runtime.h).
HIDDEN = "TVMCONV_HIDDEN_FEATURES"
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def cpu_features() -> frozenset[str]:
    """Return Linux's names of the features that programs may use here, such as ``"fma"``, without those that the environment hides.

    The set is empty on machines that kernels are not compiled for.
    """
    isa = native()
    return frozenset() if isa is None else isa.detect() - frozenset(os.environ.get(HIDDEN, "").split())


def missing_features(needed: Iterable[str]) -> tuple[str, ...]:
    """Return those of `needed` that this machine lacks, sorted."""
    return tuple(sorted(set(needed) - cpu_features()))


def obstacle_of(needed: Iterable[str]) -> str | None:
    """Return why this machine cannot run code that needs these features, or None if it can."""
    isa = unless_native(isa_of(needed))
    if isa is not None:
        system = f" under {platform.system()}" if isa.port else ""
        return f"it is for {isa.name}, and this machine's CPU is {platform.machine()}{system}"
    missing = missing_features(needed)
    return f"this machine's CPU lacks {', '.join(missing)}" if missing else None


def vendor() -> str:
    """Return the CPU's vendor, such as ``"GenuineIntel"``; ``""`` if the system does not report it."""
    return cpuinfo.fields().get("vendor_id", "")


def model_name() -> str:
    """Return the CPU's name as the system reports it, ``"unknown CPU"`` if it does not."""
    return cpuinfo.fields().get("model name", "unknown CPU")


def cache_bytes() -> tuple[int, int] | None:
    """Return the bytes of the first processor's L2 and L3; None if Linux does not report both."""
    sizes: dict[int, int] = {}
    for folder in _CACHES.glob("index*"):
        try:
            level, size = int((folder / "level").read_text()), (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue  # a kernel without this part of sysfs
        if size.endswith("K") and size[:-1].isdigit():
            sizes[level] = 1024 * int(size[:-1])
    return (sizes[2], sizes[3]) if {2, 3} <= sizes.keys() else None
