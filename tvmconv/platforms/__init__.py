"""Systems that libraries are for, a folder each with its `Platform`.

Whatever folder is here is one. An instruction set names its own (`Isa.platform`), or a platform its instruction sets (`Platform.ports`).
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from .platform import Platform

__all__ = ["PLATFORMS", "Platform"]

PLATFORMS: tuple[Platform, ...] = tuple(
    import_module(f"{__name__}.{folder.name}").PLATFORM for folder in pkgutil.iter_modules(__path__) if folder.ispkg
)
