"""What this machine's CPU can do, by the names Linux gives in /proc/cpuinfo."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def cpu_features() -> frozenset[str]:
    """Return the instruction-set features that programs may use here, such as ``"avx2"``.

    They are the flags of /proc/cpuinfo: a feature that the operating system has not enabled is absent.
    Where there is no such file, the set is empty and only kernels that need no feature run.
    """
    fields = _cpuinfo()
    return frozenset(fields.get("flags", fields.get("Features", "")).split())


def model_name() -> str:
    """Return the CPU's name as the system reports it, ``"unknown CPU"`` if it does not."""
    return _cpuinfo().get("model name", "unknown CPU")


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
