"""The machine of a measurement, and the versions of the measured libraries."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from tvmconv.errors import missing_extra
from tvmconv.isa.machine import model_name
from tvmconv.targets.target import Target

# By the processors' time, a process is not charged for what others compute meanwhile.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def describe_machine() -> str:
    """Return the CPU's name, what kernels are built for on it, and the system."""
    words = (model_name(), f"({Target.parse('host').name})", platform.system(), platform.machine())
    return " ".join((*words, *platform.libc_ver()))


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, and of packages by their names.

    Raises
    ------
    MissingExtraError
        If one is not installed.
    """
    try:
        return {"python": platform.python_version(), **{package: version(package) for package in sorted(packages)}}
    except PackageNotFoundError as error:
        raise missing_extra("bench", error.name or "") from error
