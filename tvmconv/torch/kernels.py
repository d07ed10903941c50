"""The kernels that this process may use: those of all bundles that were opened for PyTorch."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import Any

from ..problem import Problem
from ..runtime.bundle import Bundle, read_bundle
from ..runtime.kernel import Kernel
from ..runtime.registry import Registry
from ..runtime.selection import check_usable


class Opened:
    """The bundles that were opened, as one registry; `generation` counts how often there were others."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._bundles: dict[Path, Bundle] = {}
        self.registry: Registry | None = None
        self.generation = 0

    def open(self, path: str | os.PathLike[str]) -> Bundle:
        """Open a bundle, or open it again."""
        bundle = read_bundle(path)
        check_usable(bundle)
        with self._lock:
            self._bundles[bundle.path] = bundle
            self.registry = Registry(list(self._bundles.values()))
            self.generation += 1
        return bundle

    def find(self, problem: Problem, device: Any) -> Any:
        """Return the kernel for a problem on a device, None if there is none."""
        registry = self.registry
        if registry is None or problem not in registry:
            return None
        try:
            return registry.lookup(problem, device)
        except LookupError:  # there is one for another device
            return None


OPENED = Opened()


def open_bundle(path: str | os.PathLike[str]) -> None:
    """Let the models of this process use the kernels of a bundle, for example those that `torch.export.load` returned.

    :func:`tvmconv.torch.optimize` does so by itself.

    Parameters
    ----------
    path
        The bundle's folder.

    Raises
    ------
    BundleError
        If it is no bundle, or its manifest is damaged.
    UnsupportedMachineError
        If all its kernels need CPU features or a GPU that this machine lacks.
    """
    OPENED.open(path)


def is_addressed(kernel: Any) -> bool:
    """Whether a kernel is the CPU's, which is called with addresses."""
    return isinstance(kernel, Kernel)
