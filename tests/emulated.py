"""Helpers for tests of emulated kernels: QEMU, for 64-bit ARM with the cross compiler's C library, and for x86-64."""

from __future__ import annotations

import shutil
from functools import cache

import pytest

from tvmconv.isa import native
from tvmconv.isa.x86 import ISA as X86
from tvmconv.runtime.bundle import BundleTarget
from tvmconv.runtime.emulation import Emulator, find_emulator
from tvmconv.runtime.emulation.qemu import QemuCpu
from tvmconv.targets.target import CpuTarget, Target

N1, V1 = "neoverse-n1", "neoverse-v1"
COMPILER = "aarch64-linux-gnu-gcc"


def cpu_of(name: str) -> CpuTarget:
    """Return a target for CPUs."""
    target = Target.parse(name)
    assert isinstance(target, CpuTarget)
    return target


def emulator_of(name: str) -> Emulator | None:
    """Return what runs a target's kernels here; None: nothing does."""
    return find_emulator(BundleTarget("cpu", cpu_of(name).features))


needs_emulator = pytest.mark.skipif(
    emulator_of(V1) is None,
    reason="no qemu-aarch64-static or qemu-aarch64, or no aarch64-linux-gnu-gcc that it would take the C library of",
)


WINDOWS = "windows:x86-64-v3"
WINDOWS_COMPILER = "x86_64-w64-mingw32-gcc"
needs_wine = pytest.mark.skipif(
    shutil.which("wine") is None or shutil.which(WINDOWS_COMPILER) is None or emulator_of(WINDOWS) is None,
    reason="no wine or no x86_64-w64-mingw32-gcc (Debian, Ubuntu: apt install wine64 mingw-w64), or no CPU with AVX2",
)


@cache
def haswell() -> Emulator | None:
    """Return what runs programs of this machine's as a CPU that has x86-64-v3's instructions and no more; None: nothing does."""
    program = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    return QemuCpu(X86, program, "Haswell", "qemu-x86_64 -cpu Haswell") if program and native() is X86 else None


needs_haswell = pytest.mark.skipif(
    haswell() is None, reason="no qemu-x86_64-static (Debian, Ubuntu: apt install qemu-user-static), or no x86-64 CPU"
)
