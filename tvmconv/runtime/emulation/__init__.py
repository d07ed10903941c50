"""Kernels of another instruction set, run by their platform's emulator (`Platform.runner`), to verify their results.

Their times mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from ..bundle import Bundle, BundleTarget, Entry
from ..kernel import Kernel
from ..selection import foreign_isa, obstacle
from .emulator import EmulatedCall, Emulator

__all__ = ["EmulatedCall", "EmulatedKernel", "Emulator", "find_emulator", "kernel_here"]

# Time limit of a call, plus time for its operations, of which an emulator does at least so many a second.
CALL_SECONDS, EMULATED_FLOPS = 60.0, 2e7


class EmulatedKernel(Kernel):
    """A kernel whose functions run under an emulator, each call in a process of its own."""

    def __init__(self, bundle: Bundle, entry: Entry, emulator: Emulator) -> None:
        super().__init__(bundle, entry)
        self._emulator = emulator
        self._seconds = CALL_SECONDS + self.problem.flops / EMULATED_FLOPS

    def _load(self, symbol: str, openmp: bool = False) -> Callable[..., object]:
        return partial(self._emulate, symbol)

    def _emulate(self, symbol: str, *arrays: np.ndarray[Any, Any]) -> None:
        self._emulator.run(self._bundle.library(self.info), [(symbol, arrays)], self._seconds)


def kernel_here(bundle: Bundle, entry: Entry) -> Kernel | None:
    """Return a CPU kernel that this machine runs, natively or under an emulator; None if neither is possible."""
    target = bundle.targets[entry.target]
    if obstacle(target) is None:
        return Kernel(bundle, entry)
    emulator = find_emulator(target)
    return EmulatedKernel(bundle, entry, emulator) if emulator else None


def find_emulator(target: BundleTarget) -> Emulator | None:
    """Return the emulator of a target with another instruction set than this machine's; None if there is none."""
    isa = foreign_isa(target)
    if isa is None:
        return None
    found: Emulator | None = import_module(isa.platform.runner).find(isa, frozenset(target.features))
    return found
