"""What tests of kernels for 64-bit ARM share: QEMU, and the cross compiler whose C library it takes."""

from __future__ import annotations

import shutil

import pytest

from tvmconv.runtime.bundle import BundleTarget
from tvmconv.runtime.emulation import Emulator, find_emulator
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
    shutil.which("qemu-aarch64-static") is None or emulator_of(V1) is None,
    reason="no qemu-aarch64-static, or no aarch64-linux-gnu-gcc that it would take the C library of",
)
