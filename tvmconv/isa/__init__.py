"""Instruction sets, a folder each with its `ISA`: which features there are and how they are found, registers, compilers.

Whatever folder is here is one that kernels are compiled for.
"""

from __future__ import annotations

import pkgutil
import platform
from collections.abc import Iterable
from importlib import import_module

from .isa import Isa, isa_named

__all__ = ["ISAS", "Isa", "isa_named", "isa_of", "native", "unless_native"]

ISAS: tuple[Isa, ...] = tuple(
    import_module(f"{__name__}.{folder.name}").ISA for folder in pkgutil.iter_modules(__path__) if folder.ispkg
)


def native() -> Isa | None:
    """Return this machine's instruction set; None if kernels are not compiled for it."""
    machine = platform.machine()
    return next((isa for isa in ISAS if isa.machine == machine), None)


def unless_native(isa: Isa | None) -> Isa | None:
    """Return an instruction set if it is another than this machine's, else None."""
    return None if isa is native() else isa


def isa_of(features: Iterable[str]) -> Isa | None:
    """Return the instruction set that code is of which needs `features`, by Linux's names; None if they do not tell."""
    there = set(features)
    return next((isa for isa in ISAS if {isa.linux_name(each) for each in isa.needed} <= there), None)
