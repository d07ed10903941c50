"""What this machine's CPU can do, by the names Linux gives in /proc/cpuinfo."""

from __future__ import annotations

import os
from collections.abc import Iterable
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


def missing_features(needed: Iterable[str]) -> tuple[str, ...]:
    """Return those of `needed` that this machine lacks, sorted."""
    return tuple(sorted(set(needed) - cpu_features()))


def model_name() -> str:
    """Return the CPU's name as the system reports it, ``"unknown CPU"`` if it does not."""
    return _cpuinfo().get("model name", "unknown CPU")


def kernel_threads() -> int:
    """Return how many threads a kernel uses in this environment (OMP_NUM_THREADS, else every core)."""
    # OpenMP takes a list, one number for each level of nested parallelism; kernels have one level.
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(text) if text.isdigit() and int(text) else len(os.sched_getaffinity(0))


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
