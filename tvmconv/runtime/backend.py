"""`Backend`: the run time's interface to a kind of device. `tvmconv.runtime.selection.BACKENDS` has one for each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .bundle import Bundle, BundleTarget, Entry
from .cuda.gpus import Gpu
from .cuda.kernel import CudaKernel
from .kernel import Kernel
from .library import BeforeUse

# None: the CPU.
Device = Gpu | None


@dataclass(frozen=True)
class Backend:
    """Functions that find, order and call kernels for one kind of device.

    Attributes
    ----------
    kind
        Its name in targets and manifests.
    plural
        The plural for its devices in messages.
    devices
        Returns this machine's devices.
    obstacle
        Returns why this machine cannot run code for a target of the kind; None if it can.
    obstacle_on
        The same for one device.
    rank
        Returns the sort key of targets for a device that runs them, the best first.
    fitness
        Describes why a target's code fits a device, for `tvmconv explain`.
    kernel
        Makes the kernel of an entry, with its number of threads and the check before its first answer.
    packs
        Whether its kernels take packed filters.
    has_peak
        Whether `tvmconv.measuring.peak` measures its devices' peak.
    in_c
        Whether libraries for C hold its kernels.
    """

    kind: str
    plural: str
    devices: Callable[[], Sequence[Device]]
    obstacle: Callable[[BundleTarget], str | None]
    obstacle_on: Callable[[BundleTarget, Any], str | None]
    rank: Callable[[BundleTarget, Any], Any]
    fitness: Callable[[BundleTarget, Any], str]
    kernel: Callable[[Bundle, Entry, int | None, BeforeUse | None], Kernel | CudaKernel]
    packs: bool = False
    has_peak: bool = False
    in_c: bool = False
