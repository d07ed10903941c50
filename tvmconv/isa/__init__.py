"""Instruction sets, a folder each with its `ISA`: features and their detection, registers, assembly, compilers.

Kernels can be compiled for the instruction set of each folder here, and on other systems for those of `Platform.ports`.
"""

from __future__ import annotations

import pkgutil
import platform
from collections.abc import Iterable
from importlib import import_module

from ..platforms import PLATFORMS
from .isa import Isa, isa_named, port_isa

__all__ = ["ISAS", "Isa", "isa_named", "isa_of", "native", "unless_native"]

_FOLDERS: tuple[Isa, ...] = tuple(
    import_module(f"{__name__}.{folder.name}").ISA for folder in pkgutil.iter_modules(__path__) if folder.ispkg
)
ISAS: tuple[Isa, ...] = (*_FOLDERS, *(port_isa(each, port) for each in PLATFORMS for port in each.ports))


def native() -> Isa | None:
    """Return this machine's instruction set; None if kernels are not compiled for it."""
    machine = platform.machine()
    return next((isa for isa in ISAS if isa.machine == machine), None)


def unless_native(isa: Isa | None) -> Isa | None:
    """Return an instruction set if it is not this machine's, else None."""
    return None if isa is native() else isa


def isa_of(features: Iterable[str]) -> Isa | None:
    """Return the instruction set of code that needs `features`, by Linux's names; None if they are of none."""
    there = set(features)
    systems = there & {each.prefix for each in PLATFORMS}
    of_system = (isa for isa in ISAS if set(isa.platform.marks) == systems)
    return next((isa for isa in of_system if {isa.linux_name(each) for each in isa.needed} <= there), None)
