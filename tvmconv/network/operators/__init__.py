"""Operators between kernels, as tensor expressions and calls of C functions.

Whatever file is here with `OPERATORS`, from names of Relax to how these are legalized, or with a function `operators_for` of a
target that returns them, is taken.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ...targets.target import CpuTarget


def legalizations(target: CpuTarget) -> dict[str, Callable[..., Any]]:
    """Return the functions that legalize operators, by the operators' names; the others are TVM's."""
    found: dict[str, Callable[..., Any]] = {}
    for file in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{file.name}")
        found |= module.operators_for(target) if hasattr(module, "operators_for") else getattr(module, "OPERATORS", {})
    return found
