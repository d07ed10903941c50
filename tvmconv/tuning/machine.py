"""Machines that measure for a target: this machine's CPU, its first GPU, or servers elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import UnsupportedMachineError
from ..isa.machine import model_name
from ..runtime.bundle import BundleTarget
from ..runtime.cuda.driver import version_text
from ..runtime.cuda.gpus import survey
from ..runtime.processors import allowed_processors, kernel_threads
from ..runtime.selection import BACKENDS, obstacle_on
from ..targets.target import Target


@dataclass(frozen=True)
class TuningMachine:
    """Machine that measures candidates.

    Attributes
    ----------
    label
        Mark of the measurements: CPU and threads, or the GPU and its driver.
    threads
        Number of threads of measured kernels; for GPUs, of the reference that checks them.
    measure
        Function that the measuring process runs.
    """

    label: str
    threads: int
    measure: Callable[[Any], Any]


class Servers(Protocol):
    """Machines that measure for this one, as in `tvmconv.fleet.fleet.Fleet`."""

    @property
    def target(self) -> Target:
        """Target of the kernels that they measure."""

    @property
    def machine(self) -> str:
        """Mark of their measurements."""

    @property
    def size(self) -> int:
        """Number of servers now."""

    def call(self, task: Any, seconds: float) -> Any:
        """Answer a Check or a Race, as `tvmconv.support.sandbox.Sandbox.call` does."""

    def cancel(self) -> None:
        """Raise CancelledError in calls that no machine has started."""

    def close(self) -> None:
        """End all calls."""


def tuning_machine(target: Target) -> TuningMachine:
    """Return the machine that a target is tuned on, after :func:`check_tunable`."""
    return _MACHINES[target.kind]()


def _gpu() -> TuningMachine:
    from ..measuring.cuda_measure import measure

    found = survey()
    gpu = found.gpus[0]
    label = f"{gpu.name} (sm_{gpu.architecture}, driver for CUDA {version_text(found.driver_version or 0)})"
    return TuningMachine(label, len(allowed_processors()), measure)


def _cpu() -> TuningMachine:
    from ..measuring.measure import measure

    threads = kernel_threads()
    # Code for an older CPU may be tuned on a newer one: the records say on which.
    return TuningMachine(f"{model_name()}, {Target.parse('host').name} ({threads} threads)", threads, measure)


# Machines by the kind of target.
_MACHINES = {"cpu": _cpu, "cuda": _gpu}


def check_tunable(target: Target) -> Target:
    """Return `target`; UnsupportedMachineError if this machine cannot run its code."""
    code, backend = BundleTarget(target.kind, target.features), BACKENDS[target.kind]
    devices = backend.devices()
    # Candidates are measured on the first device.
    why = obstacle_on(code, devices[0]) if devices else backend.obstacle(code)
    if why:
        raise UnsupportedMachineError(
            f"target {target.name} cannot be tuned here: {why}; tune it on a machine that runs it"
        )
    return target
