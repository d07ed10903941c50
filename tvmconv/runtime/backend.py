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
        As targets and manifests name it.
    plural
        What messages call its devices.
    devices
        Returns those of this machine.
    obstacle
        Returns why this machine cannot run code for a target of the kind; None if it can.
    obstacle_on
        The same of one device.
    rank
        Returns how well a target's code fits a device that runs it, the least the best.
    fitness
        Says that, of code that is taken.
    kernel
        Makes the kernel of an entry, for so many threads, with what is to be done before its first answer.
    packs
        Whether its kernels take packed filters.
    has_peak
        Whether `tvmconv.measuring.peak` measures what its devices can do at most.
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
