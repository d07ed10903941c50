"""Select the best variant of a kernel for a device: this machine's CPU, or one of its GPUs.

A device is a `tvmconv.runtime.cuda.gpus.Gpu`, or None for the CPU. The NVIDIA driver is called only if needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import InputError, UnsupportedMachineError
from ..isa import Isa, isa_of, unless_native
from ..isa.machine import obstacle_of
from .backend import Backend, Device
from .bundle import ORIGINS, Bundle, BundleTarget, Entry
from .cuda.gpus import Gpu, survey
from .cuda.kernel import CudaKernel
from .kernel import Kernel

# The best variant that a device can run, by signature.
Table = dict[str, tuple[Bundle, Entry]]
MACHINE_CODE, PTX = 0, 1


def parse_device(device: Any) -> Device:
    """Return the device that ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a torch.device names.

    Raises
    ------
    InputError
        If it names none.
    UnsupportedMachineError
        If this machine has no such GPU.
    """
    match = re.fullmatch(r"cpu|cuda(?::(\d{1,4}))?", str(device))
    if match is None:
        raise InputError(f"device is {device!r}; allowed: cpu, cuda, or cuda: and the number of a GPU")
    return None if match[0] == "cpu" else gpu_at(int(match[1] or 0))


def gpu_at(index: int) -> Gpu:
    """Return a GPU by its number; raise UnsupportedMachineError if this machine lacks it."""
    found = survey()
    if index < len(found.gpus):
        return found.gpus[index]
    has = found.obstacle or f"it has {', '.join(map(str, found.gpus))}"
    raise UnsupportedMachineError(f"this machine has no cuda:{index}: {has}")


def obstacle(target: BundleTarget) -> str | None:
    """Return why this machine cannot run code for `target`, or None if it can."""
    backend = BACKENDS.get(target.kind)
    if backend is None:
        return f"it is for {target.kind!r} devices, which this version of tvmconv does not know"
    return backend.obstacle(target)


def obstacle_on(target: BundleTarget, device: Device) -> str | None:
    """Return why one device cannot run code for `target`, or None if it can."""
    backend = backend_of(device)
    if target.kind != backend.kind:
        return f"it is for {plural(target)}"
    return backend.obstacle_on(target, device)


def backend_of(device: Device) -> Backend:
    """Return the backend of a device."""
    return _CPUS if device is None else BACKENDS[device.kind]


def plural(target: BundleTarget) -> str:
    """Return the plural for a target's devices in messages."""
    backend = BACKENDS.get(target.kind)
    return f"{target.kind} devices" if backend is None else backend.plural


def _cpu_obstacle(target: BundleTarget) -> str | None:
    return obstacle_of(target.features)


def _gpu_obstacle(target: BundleTarget) -> str | None:
    found = survey()
    if found.obstacle is not None:
        return found.obstacle
    reasons = [_obstacle_on_gpu(target, gpu) for gpu in found.gpus]
    return None if None in reasons else "; ".join(filter(None, reasons))


def foreign_isa(target: BundleTarget) -> Isa | None:
    """Return the instruction set of a target's code if it differs from this machine's; None: it does not, or is not known."""
    return unless_native(isa_of(target.features)) if target.kind == _CPUS.kind else None


def _obstacle_on_gpu(target: BundleTarget, gpu: Gpu) -> str | None:
    if code_for(target, gpu) is not None:
        return None
    architectures = ", ".join(target.features) or "no architecture"
    if is_specific(target):
        return f"{gpu} is not of the one architecture that the code is for, {architectures}"
    return f"{gpu} is older than the code, which is for {architectures}"


def _gpu_fitness(target: BundleTarget, gpu: Gpu) -> str:
    code = code_for(target, gpu)
    assert code is not None  # it is taken
    what, architecture = code
    code_of = f"sm_{-architecture}{'a' if is_specific(target) else ''}"
    return f"{gpu} runs its {'machine code' if what == MACHINE_CODE else 'PTX'} for {code_of}"


def is_specific(target: BundleTarget) -> bool:
    """Return whether code runs only on GPUs of its own architecture, such as sm_90a."""
    return any(name.startswith("sm_") and name.endswith("a") for name in target.features)


def code_for(target: BundleTarget, gpu: Gpu) -> tuple[int, int] | None:
    """Return the code of a CUDA target that a GPU runs, as a sort key: the least is the best.

    Machine code runs on architectures of the same major number that are not older; PTX, which the driver compiles when
    the kernel is loaded, on all that are not older; that of sm_90a on 9.0 only (CUDA C++ Programming Guide, Binary and PTX
    Compatibility). A library has machine code for each architecture of its target, and PTX of the last but of sm_90a.

    Returns
    -------
    tuple or None
        MACHINE_CODE or PTX, and the architecture of that code, negative. None if there is no code for this GPU.
    """
    if is_specific(target):
        return (MACHINE_CODE, -gpu.architecture) if f"sm_{gpu.architecture}a" in target.features else None
    architectures = [int(name[3:]) for name in target.features if name.startswith("sm_") and name[3:].isdigit()]
    older = [each for each in architectures if each <= gpu.architecture]
    native = [each for each in older if each // 10 == gpu.architecture // 10]
    if native:
        return MACHINE_CODE, -max(native)
    return (PTX, -max(architectures)) if older and len(older) == len(architectures) else None


def rank(bundle: Bundle, entry: Entry, device: Device = None) -> tuple[Any, ...]:
    """Return the sort key of variants for a device, the best first.

    On the CPU, code with more features comes first: its vectors are wider. On a GPU, machine code comes before PTX, and newer
    architectures first. Then tuned before untuned, then the shorter measured time.
    """
    target = bundle.targets[entry.target]
    fit = backend_of(device).rank(target, device)
    seconds = entry.measured["seconds"] if entry.measured else float("inf")
    return (fit, ORIGINS.index(entry.origin), seconds)


def runnable(bundle: Bundle) -> list[Entry]:
    """Return the entries of `bundle` that this machine can run.

    Raises
    ------
    UnsupportedMachineError
        If the bundle has kernels, and this machine can run none of them.
    """
    obstacles = {name: obstacle(target) for name, target in bundle.targets.items()}
    if bundle.all_entries and all(obstacles[entry.target] for entry in bundle.all_entries):
        raise _unusable(bundle)
    return [entry for entry in bundle.entries if obstacles[entry.target] is None]


def check_usable(bundle: Bundle) -> None:
    """Check that this machine can run something of `bundle`.

    The NVIDIA driver is not called if the CPU can: a process that only uses the CPU may fork.

    Raises
    ------
    UnsupportedMachineError
        If the bundle has kernels, and this machine can run none of them.
    """
    used = {entry.target: bundle.targets[entry.target] for entry in bundle.all_entries}
    # CPUs first: any() stops at the first that runs.
    order = list(BACKENDS)
    known = sorted((t for t in used.values() if t.kind in order), key=lambda t: order.index(t.kind))
    if used and not any(obstacle(t) is None for t in known):
        raise _unusable(bundle)


def take_best(bundles: Sequence[Bundle], device: Device) -> Table:
    """Return the best variant for each signature that a device can run; among equals the earlier bundle's.

    Kernels that `tvmconv verify` found wrong are excluded.
    """
    taken: Table = {}
    for bundle in bundles:
        runs = {name for name, target in bundle.targets.items() if obstacle_on(target, device) is None}
        for entry in bundle.entries:
            if entry.target not in runs or entry.verified is False:
                continue
            other = taken.get(entry.signature)
            if other is None or rank(bundle, entry, device) < rank(*other, device):
                taken[entry.signature] = (bundle, entry)
    return taken


def tables(bundles: Sequence[Bundle]) -> dict[Device, Table]:
    """Return the table of the CPU, and with CUDA kernels of every GPU."""
    return {device: take_best(bundles, device) for device in devices_for(bundles)}


def backends_of(bundles: Sequence[Bundle]) -> list[Backend]:
    """Return the CPU's backend, and that of each other kind that bundles have code for."""
    kinds = {target.kind for bundle in bundles for target in bundle.targets.values()}
    return [each for each in BACKENDS.values() if each is _CPUS or each.kind in kinds]


def devices_for(bundles: Sequence[Bundle]) -> list[Device]:
    """Return the CPU, and this machine's devices of each other kind that bundles have code for."""
    return [device for backend in backends_of(bundles) for device in backend.devices()]


def first_gpu(target: BundleTarget) -> int:
    """Return the number of the first GPU that runs a target's code; :func:`obstacle` must be None."""
    return next(gpu.index for gpu in survey().gpus if code_for(target, gpu) is not None)


def _unusable(bundle: Bundle) -> UnsupportedMachineError:
    used = sorted({entry.target for entry in bundle.all_entries})
    reasons = "; ".join(f"for {name}, {obstacle(bundle.targets[name])}" for name in used)
    return UnsupportedMachineError(
        f"{bundle.path} has no kernel that this machine can run: {reasons}; build it with --target host on this machine"
    )


_CPUS = Backend(
    kind="cpu",
    plural="CPUs",
    devices=lambda: (None,),
    obstacle=_cpu_obstacle,
    obstacle_on=lambda target, _: _cpu_obstacle(target),
    rank=lambda target, _: -len(target.features),
    fitness=lambda target, _: f"this machine has the {len(target.features)} CPU features it needs",
    kernel=Kernel,
    packs=True,
    has_peak=True,
    in_c=True,
)
_GPUS = Backend(
    kind="cuda",
    plural="GPUs",
    devices=lambda: survey().gpus,
    obstacle=_gpu_obstacle,
    obstacle_on=_obstacle_on_gpu,
    rank=code_for,
    fitness=_gpu_fitness,
    kernel=lambda bundle, entry, _, before: CudaKernel(bundle, entry, before),
)
# Backends by the kind of target; CPUs first: their queries cost nothing.
BACKENDS = {each.kind: each for each in (_CPUS, _GPUS)}
