"""Digests of all that decides the compiler's output besides its input: this package, TVM, the C compiler and this machine."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import TvmconvError
from ..isa import Isa
from ..isa.cpuinfo import fields
from ..isa.machine import cache_bytes, cpu_features
from .toolchain import find_compiler
from .user import user_folder

_PACKAGE = Path(__file__).parents[1]
_ENDINGS = {".py", ".c", ".h", ".cuh", ".json", ".toml"}


@cache
def sources() -> str:
    """Return a digest of the package's sources, so that a change to them invalidates caches."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(_PACKAGE, followlinks=True):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix in _ENDINGS:
                digest.update(f"{path.relative_to(_PACKAGE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def versions() -> list[str]:
    """Return the versions of TVM and of its interface."""
    return [version("apache-tvm"), version("apache-tvm-ffi")]


def compiler(isa: Isa | None = None) -> tuple[Any, ...]:
    """Return the identity of the C compiler for an instruction set, by default this machine's; ToolchainError if there is none."""
    command = find_compiler(isa)
    status = os.stat(command[0])
    return command, status.st_size, status.st_mtime_ns


def host(records: str | None = None) -> tuple[Any, ...]:
    """Return the digest of this machine's facts that decide how networks are compiled and compared; it needs no TVM.

    Parameters
    ----------
    records
        A folder of tuning records in addition to the usual ones.
    """
    cpu = {name: fields().get(name) for name in ("vendor_id", "cpu family", "model", "model name")}
    return sources(), versions(), compiler(), cpu, sorted(cpu_features()), cache_bytes(), _digest_measurements(records)


def _digest_measurements(records: str | None) -> str:
    """Return a digest of the tuning records and costs: those that ship, the user's, and those of a folder."""
    folders = [Path(str(files("tvmconv.tuning_logs"))), *([Path(records)] if records is not None else [])]
    with suppress(TvmconvError):  # a user without a home has none
        folders.append(user_folder())
    digest = hashlib.sha256()
    for folder in folders:
        with suppress(OSError):  # an unreadable folder has no effect
            for path in sorted(folder.rglob("*.json*")):
                digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
