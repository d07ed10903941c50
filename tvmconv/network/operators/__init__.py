"""Operators between kernels, as tensor expressions and calls of C functions.

Every file here contributes its `OPERATORS`, legalizations by the names of Relax's operators, or what its function `operators_for`
returns for a target.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ...targets.target import CpuTarget


def legalizations(target: CpuTarget) -> dict[str, Callable[..., Any]]:
    """Return the functions that legalize operators, by the operators' names; TVM legalizes all others."""
    found: dict[str, Callable[..., Any]] = {}
    for file in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{file.name}")
        found |= module.operators_for(target) if hasattr(module, "operators_for") else getattr(module, "OPERATORS", {})
    return found
