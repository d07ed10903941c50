"""Targets: the CPU or GPU that a kernel is compiled for, by name, and the features that its code may use."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..errors import TargetError, missing_extra
from ..isa import ISAS, Isa, native
from ..isa.isa import Matrices
from .cost_rows import costs_of, user_rows
from .costs import Costs
from .cpus import L1_WAY_BYTES, L1_WAYS, LINE_BYTES, cpu_of
from .llvm import describe_cpu, list_cpus, list_features
from .ports import ports_by_name, usual_targets

# Modules and classes of targets other than CPUs by their kind, the prefix of their names.
_OTHERS = {"cuda": (".cuda", "CudaTarget")}
# Prefix of each disabled feature in the name of a CPU.
_MISSING = "-no-"
_LONGEST = 200  # bytes of a name that stands in names of files, which have at most 255
# Tasks whose filter fits 256 KiB, half of a Zen 3's L2, took 0.75 to 1.3 of the time of tasks for this size (20 shapes, two
# threads, mean 1.01); deep filters were the worst.
LEAST_L2_SHARE = 512 * 1024


@dataclass(frozen=True)
class Target:
    """Target that kernels are compiled for.

    Attributes
    ----------
    name
        The name for ``--target``, and in the keys of records and bundles.
    features
        Features that its code uses. For CPUs Linux's names, sorted; a CPU must have all of them. For GPUs architectures
        such as ``sm_90``, ascending; a GPU must be of one of them, or later than the last.
    """

    name: str
    features: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``"cpu"`` or ``"cuda"``, as `Algorithm.kind`."""
        raise NotImplementedError

    @property
    def folder(self) -> str:
        """Folder of this target in a bundle and in the tuning logs."""
        return folder_of(self.name)

    @property
    def tuned_as(self) -> str:
        """Name of the target whose tuning records apply: the same CPU under Linux."""
        return self.name

    @property
    def library_suffix(self) -> str:
        """Suffix of library files."""
        return ".so"

    @property
    def cost_source(self) -> str:
        """Origin of its coefficients, in words; empty: there are none, and algorithms count cycles."""
        return ""

    def coefficient(self, event: str) -> float:
        """Return the cycles of one event that algorithms count."""
        return 1.0

    def keeps(self, size: int) -> bool:
        """Return whether caches are known, or assumed, to keep so many bytes of filters from call to call."""
        return True

    @property
    def evicting(self) -> int:
        """Bytes of filters that evict each other from all caches between calls; 0: not known."""
        return 0

    def least_cycles(self, operations: int, size: int) -> float | None:
        """Return the least cycles of a core for so many operations on so many bytes; None: not known."""
        return None

    def tvm(self) -> Any:
        """Return the ``tvm.target.Target``."""
        raise NotImplementedError

    @staticmethod
    def parse(text: str) -> Target:
        """Return the target that `text` names.

        Parameters
        ----------
        text
            ``host``; an LLVM CPU name such as ``x86-64-v3``, ``znver4`` or ``neoverse-n1``; one without some features such as
            ``sapphirerapids-no-amx-bf16-no-amx-tile``; a CPU on another system such as ``windows:x86-64-v3``; or ``cuda:`` and one
            or several GPU architectures, such as ``cuda:sm_90`` or ``cuda:sm_80,sm_90``.

        Raises
        ------
        TargetError
            If there is no such target, or kernels cannot be built for it.
        MissingExtraError
            If the compiler is not installed, which knows the names of CPUs.
        """
        if isinstance(text, str) and kind_of(text) in _OTHERS:
            module, name = _OTHERS[kind_of(text)]
            other: type[Target] = getattr(import_module(module, __package__), name)
            return other.parse(text)
        if not isinstance(text, str) or not re.fullmatch(r"([A-Za-z0-9_-]+:)?[A-Za-z0-9][A-Za-z0-9_.-]*", text):
            raise TargetError(
                f"target is {text!r}; allowed: host, an LLVM CPU name such as x86-64-v3, x86-64-v4, znver4, neoverse-n1, for other"
                f" systems {', '.join(usual_targets())}, or cuda:sm_90"
            )
        if find_spec("tvm") is None:
            raise missing_extra("compile", "tvm")
        return _host() if text == "host" else _find_named(text)


@dataclass(frozen=True)
class CpuTarget(Target):
    """A CPU that kernels are compiled for, named after an LLVM CPU.

    Attributes
    ----------
    mcpu
        The LLVM CPU.
    disabled
        LLVM features of the CPU that are disabled (by its name, or ``host`` on a machine that hides some).
    caches
        Bytes of this machine's L2 and L3 (``host``); None: those of the named CPU.
    isa
        Instruction set of the CPU.
    """

    mcpu: str
    disabled: tuple[str, ...] = ()
    caches: tuple[int, int] | None = None
    isa: Isa = field(kw_only=True)

    @property
    def kind(self) -> str:
        """``"cpu"``."""
        return "cpu"

    @property
    def tuned_as(self) -> str:
        """Name of the CPU alone."""
        return self.name.rpartition(":")[2]

    @property
    def library_suffix(self) -> str:
        """Suffix of its platform's libraries."""
        return self.isa.platform.library_suffix

    @cached_property  # read for each tile that is compared
    def vector_bits(self) -> int:
        """Width of a vector register."""
        return self.isa.registers(self.features)[0]

    @cached_property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        return self.isa.registers(self.features)[1]

    @property
    def has_dot(self) -> bool:
        """Return whether there are instructions for dot products of bf16 and rounding to it."""
        return self.isa.dot in self.features

    @cached_property
    def multiply_adds(self) -> int:
        """Multiply-adds of whole vectors that a core starts in a cycle."""
        cpu = cpu_of(self.mcpu)
        return cpu.pipes if self.vector_bits < 512 or cpu.two_of_512 else 1

    @property
    def two_of_512(self) -> bool:
        """Return whether a core starts two multiply-adds of 512 bits in a cycle, so that loads and caches are the limit."""
        return self.vector_bits == 512 and self.multiply_adds == 2

    @property
    def halves_fast(self) -> bool:
        """Return whether a core starts two multiply-adds of 256 bits in the time of one of 512 bits."""
        return self.vector_bits == 512 and self.multiply_adds == 1

    @property
    def matrices(self) -> Matrices | None:
        """Instruction that multiplies matrices of bf16 in vector registers; None: there is none."""
        there = self.isa.matrices is not None and self.isa.matrices.feature in self.features
        return self.isa.matrices if there else None

    @property
    def matrix_rate(self) -> float:
        """Products of that instruction in the time of an f32 multiply-add."""
        return cpu_of(self.mcpu).matrix_rate

    @property
    def dot_rate(self) -> float:
        """Products of the bf16 dot product in the time of an f32 multiply-add."""
        return cpu_of(self.mcpu).dot_rate

    def product_rate(self, integers: bool, count: int = 2) -> float:
        """Return the products, in the time of an f32 multiply-add, of dot products of `count` channels of integers, or of pairs of bf16."""
        of_integers = float(count) if count == 4 or self.adds_pairs else cpu_of(self.mcpu).pair_rate
        return of_integers if integers else self.dot_rate

    @property
    def adds_pairs(self) -> bool:
        """Return whether one instruction multiplies pairs of 16-bit integers and adds the products to sums."""
        return self.isa.sums_of_pairs in self.features

    @cached_property
    def costs(self) -> Costs:
        """Coefficients of the cost model: its row, or the nearest."""
        return _costs(self)

    @property
    def cost_source(self) -> str:
        """Origin of its row of coefficients."""
        return self.costs.source

    def coefficient(self, event: str) -> float:
        """Return the cycles of an event by the CPU's row."""
        return self.costs.coefficient(event)

    @cached_property
    def l1_share(self) -> int:
        """Bytes of L1 that plans use: at most `L1_WAYS` ways, with which the coefficients were measured."""
        return min(self.costs.l1, L1_WAYS * L1_WAY_BYTES)

    @property
    def l2(self) -> int:
        """Bytes of a core's L2."""
        return self.caches[0] if self.caches else cpu_of(self.mcpu).l2

    @property
    def l2_share(self) -> int:
        """Bytes of a filter that is read at the speed of L2.

        That is half of L2, whose other half holds data and outputs, but at least `LEAST_L2_SHARE`: for CPUs with a small L2, less
        would overestimate the cost of L3.
        """
        return max(self.l2 // 2, LEAST_L2_SHARE)

    @property
    def l3(self) -> int:
        """Bytes of L3."""
        return self.caches[1] if self.caches else cpu_of(self.mcpu).l3

    @property
    def l3_share(self) -> int:
        """Bytes of filters that L3 keeps from call to call: half of it."""
        return self.l3 // 2

    def keeps(self, size: int) -> bool:
        """Return whether L3 keeps so many bytes."""
        return size <= self.l3_share

    @property
    def evicting(self) -> int:
        """Bytes that evict everything from L3: twice its size, as replacement is not strictly least recently used."""
        return 2 * self.l3

    def least_cycles(self, operations: int, size: int) -> float:
        """Return the cycles of multiply-adds of whole vectors, or of reading the bytes from L3 if these are more."""
        products = operations / 2 / (self.vector_bits // 32) / self.multiply_adds
        return max(products, size / LINE_BYTES * self.costs.lines.l3)

    def tvm(self, keep_zeros: bool = False) -> Any:
        """Return the ``tvm.target.Target``; with `keep_zeros`, one that keeps the signs of zeros, as on all CPUs."""
        import tvm

        cpu = describe_cpu(self.mcpu, self.isa)
        mattr = [*cpu.pop("mattr", ()), *(f"-{feature}" for feature in (*self.disabled, *self.isa.without))]
        options = {} if keep_zeros else self.isa.options
        return tvm.target.Target({**cpu, **options, "mattr": mattr, "opt-level": 3})


@cache
def _costs(target: CpuTarget) -> Costs:
    core = (target.vector_bits, target.vector_registers, target.multiply_adds)
    # Only for `host`, whose caches are known: builds for named CPUs do not depend on the machine.
    own = user_rows().get(target.name) if target.caches else None
    return costs_of(target.mcpu, core, target.l2, target.l3, target.features, own)


def kind_of(name: str) -> str:
    """Return the kind of a target by its name, or its folder's."""
    return next((kind for kind in _OTHERS if name.startswith(kind)), "cpu")


def folder_of(name: str) -> str:
    """Return a target's name with hyphens for characters that file systems and linkers reject."""
    return name.replace(":", "-").replace(",", "-")


@cache
def _find_named(name: str) -> CpuTarget:
    system, _, named = name.rpartition(":")
    # This machine's instruction set comes first: each has a CPU called "generic".
    isas = sorted((isa for isa in ISAS if isa.port is None), key=lambda isa: isa is not native())
    if found := ports_by_name().get(system or named):
        isas = found
        if not system and found[0].port:
            named = found[0].port.default
    elif system:
        isas = []
    cpu, *missing = named.split(_MISSING)
    isa = next((isa for isa in isas if cpu in list_cpus(isa)), None)
    if isa is None:
        near = difflib.get_close_matches(cpu if isas else system, set(ports_by_name()).union(*map(list_cpus, isas)), 4)
        names = ", ".join(each.name for each in isas)
        what = f"LLVM does not know for {names}" if isas else "names no known system"
        raise TargetError(
            f"target is {name!r}, which {what}"
            f"{'; near it: ' * bool(near)}{', '.join(near)}; allowed under Linux: host; on x86-64 a level (x86-64-v3, the default for"
            " other machines; x86-64-v4) or a CPU (haswell, znver4, sapphirerapids, ...); on 64-bit ARM a CPU (neoverse-n1, the"
            " default there; neoverse-v1, cortex-a53, ...); cuda:sm_80 and later; for browsers wasm32, wasm32-relaxed; for other systems"
            f" {', '.join(usual_targets())}, or another such CPU behind the colon"
        )
    has = sorted(list_features(cpu, isa) & isa.used)
    if unknown := [feature for feature in missing if feature not in has]:
        raise TargetError(f"target is {name!r}; {cpu} has no {unknown[0]}; it can be without {', '.join(has)}")
    return _without(cpu, frozenset(missing), isa)


def _without(mcpu: str, missing: frozenset[str], isa: Isa) -> CpuTarget:
    """Return an LLVM CPU without some features as a target, whose name lists those that the CPU has."""
    has = list_features(mcpu, isa)
    disabled = tuple(sorted(has & missing))
    name = ":".join((*isa.platform.marks, _MISSING.join((mcpu, *disabled))))
    used = list_features(mcpu, isa, disabled) & isa.used  # disabling some also disables those that imply them
    if not isa.needed <= used:
        raise TargetError(f"target {name!r} {isa.least}")
    features = (*map(isa.linux_name, used), *isa.platform.marks)
    return CpuTarget(name, tuple(sorted(features)), mcpu, disabled, isa=isa)


@cache
def _host() -> CpuTarget:
    from tvm.target import codegen

    from ..isa.machine import cache_bytes, cpu_features, vendor

    isa = native()
    if isa is None:
        raise TargetError(
            f"target is 'host', and this machine has an unsupported instruction set; supported: "
            f"{', '.join(each.name for each in ISAS)}; name a CPU, for example x86-64-v3"
        )
    present = cpu_features()
    usable = frozenset(feature for feature in isa.used if isa.linux_name(feature) in present)
    mcpu = _closest(str(codegen.llvm_get_system_cpu()), usable, vendor(), isa)
    target = _without(mcpu, isa.used - usable, isa)
    if len(target.name) > _LONGEST:
        target = _without(mcpu, _least_missing(target), isa)
    return replace(target, caches=cache_bytes())


def _least_missing(target: CpuTarget) -> frozenset[str]:
    """Return features whose absence means that of all that a target lacks: without AVX512F there is no AVX-512."""
    kept = list(target.disabled)
    has = target.isa.used & list_features(target.mcpu, target.isa, target.disabled)
    for feature in target.disabled:
        fewer = tuple(each for each in kept if each != feature)
        if target.isa.used & list_features(target.mcpu, target.isa, fewer) == has:
            kept.remove(feature)
    return frozenset(kept)


def _closest(mcpu: str, usable: frozenset[str], vendor: str, isa: Isa) -> str:
    """Return the LLVM CPU with the most of the `usable` features: `mcpu`, LLVM's name of this machine's CPU, if it has all.

    A virtual machine may report another model number than its processor's: LLVM then takes a Sapphire Rapids for a
    Rocket Lake, without bf16.
    """
    if usable <= list_features(mcpu, isa):
        return mcpu
    return max((mcpu, *isa.known_cpus.get(vendor, ())), key=lambda cpu: len(usable & list_features(cpu, isa)))
