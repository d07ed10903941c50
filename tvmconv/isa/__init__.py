"""Instruction sets, a folder each: which features there are and how they are found, registers, compilers."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from .aarch64 import AARCH64
from .isa import Isa
from .x86 import X86

__all__ = ["AARCH64", "ISAS", "X86", "Isa", "isa_of", "named", "native"]

ISAS = (X86, AARCH64)


def native() -> Isa | None:
    """Return this machine's instruction set; None if kernels are not compiled for it."""
    machine = platform.machine()
    return next((isa for isa in ISAS if isa.machine == machine), None)


def named(name: str) -> Isa:
    """Return the instruction set of a name."""
    return next(isa for isa in ISAS if isa.name == name)


def isa_of(features: Iterable[str]) -> Isa | None:
    """Return the instruction set that code is of which needs `features`, by Linux's names; None if they do not tell."""
    there = set(features)
    return next((isa for isa in ISAS if {isa.linux_name(each) for each in isa.needed} <= there), None)
