"""Operating systems of libraries: every folder here is one, with its `Platform`.

An instruction set names its platform (`Isa.platform`), or a platform its instruction sets (`Platform.ports`).
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from .platform import Platform

__all__ = ["PLATFORMS", "Platform"]

PLATFORMS: tuple[Platform, ...] = tuple(
    import_module(f"{__name__}.{folder.name}").PLATFORM for folder in pkgutil.iter_modules(__path__) if folder.ispkg
)
