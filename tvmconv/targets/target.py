"""Targets: what a kernel is compiled for, by name, and the CPU features its code may use."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ..errors import TargetError
from .cpus import cpu_of

# LLVM's names of x86 features where they differ from the flags in /proc/cpuinfo.
_CPUINFO_NAME = {
    "amx-bf16": "amx_bf16",
    "amx-tile": "amx_tile",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
}
# The features that code generated for float and integer vectors can use. A CPU model's other features
# (virtualization, cryptography, random numbers, ...) never show up in a kernel and are not required.
_USED = frozenset(
    [
        "sse",
        "sse2",
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "popcnt",
        "avx",
        "avx2",
        "fma",
        "f16c",
        "bmi",
        "bmi2",
        "lzcnt",
        "movbe",
        "avx512f",
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512vl",
        "avx512vnni",
        "avx512bf16",
        "avx512fp16",
        "avx512ifma",
        "avx512vbmi",
        "avx512vbmi2",
        "avx512bitalg",
        "avx512vpopcntdq",
        "amx-tile",
        "amx-bf16",
        "gfni",
    ]
)
# What LLVM would use here and there if a CPU's name implies it, to nobody's gain, and other makers' CPUs of the same
# features lack: SSE4A's insertq in a kernel for znver4 ended in SIGILL on an Intel CPU that has all of `_USED`, and
# push2p of APX in one for diamondrapids would on a Sapphire Rapids, bextri of TBM in one for bdver4 on a Zen.
_WITHOUT = (
    *("sse4a", "fma4", "xop", "tbm"),
    *(
        "avxvnni",
        "avxvnniint8",
        "avxvnniint16",
        "avxifma",
        "avxneconvert",
        "avx512vp2intersect",
        "avx10.1",
        "avx10.2",
        "movrs",
    ),
    *("ccmp", "egpr", "ndd", "nf", "ppx", "push2pop2", "zu"),
)
# Before each feature in the name of a CPU that is compiled for without it.
_MISSING = "-no-"
# Tasks whose filter fits 256 KiB, half of a Zen 3's cache, took 0.75 to 1.3 of the time of those for this size (20 shapes,
# two threads, 1.01 by the mean), the worst with deep filters.
LEAST_L2_SHARE = 512 * 1024
# CPUs of a maker, older ones first: what a machine is taken for whose model LLVM does not know, or that hides its number.
_KNOWN_CPUS = {
    "GenuineIntel": ("haswell", "skylake-avx512", "cascadelake", "icelake-server", "sapphirerapids"),
    "AuthenticAMD": ("znver1", "znver3", "znver4", "znver5"),
}


@dataclass(frozen=True)
class Target:
    """What kernels are compiled for.

    Attributes
    ----------
    name
        What ``--target`` takes, and what records and bundles are keyed by.
    features
        What its code uses. A CPU must have all of them, named as in /proc/cpuinfo, sorted. A GPU must be of one of
        these architectures, or later than the last: ``sm_90``, ascending.
    """

    name: str
    features: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``"cpu"`` or ``"cuda"``: which algorithms apply."""
        raise NotImplementedError

    @property
    def folder(self) -> str:
        """Where a bundle and the tuning logs keep what is for this target."""
        return folder_of(self.name)

    def tvm(self) -> Any:
        """Return the ``tvm.target.Target``."""
        raise NotImplementedError

    @staticmethod
    def parse(text: str) -> Target:
        """Return the target that `text` names.

        Parameters
        ----------
        text
            ``host``, an LLVM CPU name such as ``x86-64-v3`` or ``znver4``, one without some of its features such as
            ``sapphirerapids-no-amx-bf16-no-amx-tile``, or ``cuda:`` and one or several GPU architectures, such as
            ``cuda:sm_90`` or ``cuda:sm_80,sm_90``.

        Raises
        ------
        TargetError
            If there is no such target, or it is not one that kernels can be built for.
        """
        if isinstance(text, str) and text.startswith("cuda"):
            from .cuda import CudaTarget

            return CudaTarget.parse(text)
        if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", text):
            raise TargetError(
                f"target is {text!r}; allowed: host, an LLVM CPU name such as x86-64-v3, x86-64-v4, znver4, or cuda:sm_90"
            )
        return _host() if text == "host" else _named(text)


@dataclass(frozen=True)
class CpuTarget(Target):
    """A CPU that kernels are compiled for. Its name is that of an LLVM CPU.

    Attributes
    ----------
    mcpu
        The LLVM CPU.
    disabled
        LLVM features of the CPU that are switched off (``host`` on a machine that hides some).
    caches
        Bytes of the second and the third level cache, where this machine's are known (``host``); None: those of its name.
    """

    mcpu: str
    disabled: tuple[str, ...] = ()
    caches: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        """``"cpu"``."""
        return "cpu"

    @property
    def vector_bits(self) -> int:
        """Width of a vector register."""
        return 512 if "avx512f" in self.features else 256 if "avx2" in self.features else 128

    @property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        return 32 if "avx512f" in self.features else 16

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of full vectors that a core starts in a cycle."""
        return 2 if self.vector_bits < 512 or cpu_of(self.mcpu).two_of_512 else 1

    @property
    def two_of_512(self) -> bool:
        """Whether a core starts two multiply-adds of 512 bits in a cycle: loads and caches are then what it waits for."""
        return self.vector_bits == 512 and self.multiply_adds == 2

    @property
    def dot_rate(self) -> float:
        """Products that the dot product of bf16 does in the time of a multiply-add of f32."""
        return cpu_of(self.mcpu).dot_rate

    @property
    def l2(self) -> int:
        """Bytes of the second level cache of a core."""
        return self.caches[0] if self.caches else cpu_of(self.mcpu).l2

    @property
    def l2_share(self) -> int:
        """Bytes of a filter that is read at the speed of the second level cache.

        Half of it; the other half holds data and outputs. Not less than `LEAST_L2_SHARE`, beyond which the third level
        cache of a CPU with a small second one is counted as slower than it is.
        """
        return max(self.l2 // 2, LEAST_L2_SHARE)

    @property
    def l3_share(self) -> int:
        """Bytes of filters that the third level cache keeps from call to call: half of it."""
        return (self.caches[1] if self.caches else cpu_of(self.mcpu).l3) // 2

    def tvm(self) -> Any:
        """Return the ``tvm.target.Target``."""
        import tvm

        mattr = [f"-{feature}" for feature in (*self.disabled, *_WITHOUT)]
        return tvm.target.Target({"kind": "llvm", "mcpu": self.mcpu, "mattr": mattr, "opt-level": 3})


def folder_of(name: str) -> str:
    """Return a target's name without what file systems and linkers dislike."""
    return name.replace(":", "-").replace(",", "-")


@cache
def _named(name: str) -> CpuTarget:
    import tvm
    from tvm.target import codegen

    cpu, *missing = name.split(_MISSING)
    known = {str(cpu) for cpu in codegen.llvm_get_cpu_archlist(tvm.target.Target("llvm"))}
    if cpu not in known:
        import difflib

        near = ", ".join(difflib.get_close_matches(cpu, known, 4)) or "x86-64-v3, x86-64-v4, znver4, skylake-avx512"
        raise TargetError(
            f"target is {name!r}, which LLVM does not know for this architecture; near it: {near}; or host"
        )
    has = sorted(_llvm_features(cpu) & _USED)
    if unknown := [feature for feature in missing if feature not in has]:
        raise TargetError(f"target is {name!r}; {cpu} has no {unknown[0]}: what can be left out is {', '.join(has)}")
    return _without(cpu, frozenset(missing))


def _without(mcpu: str, missing: frozenset[str]) -> CpuTarget:
    """Return an LLVM CPU as a target, without some features: that is another target than the CPU."""
    has = _llvm_features(mcpu)
    disabled = tuple(sorted(has & missing))
    name = _MISSING.join((mcpu, *disabled))
    used = has & _USED - missing
    features = tuple(sorted(_CPUINFO_NAME.get(feature, feature) for feature in used))
    if "avx2" not in used or "fma" not in used or "f16c" not in used:
        raise TargetError(
            f"target {name!r} has no AVX2, FMA and F16C, which every kernel needs; the least is x86-64-v3"
        )
    return CpuTarget(name, features, mcpu, disabled)


@cache
def _llvm_features(mcpu: str) -> frozenset[str]:
    import tvm
    from tvm.target import codegen

    return frozenset(map(str, codegen.llvm_get_cpu_features(tvm.target.Target({"kind": "llvm", "mcpu": mcpu}))))


@cache
def _host() -> CpuTarget:
    from tvm.target import codegen

    from ..runtime.cpu import cache_bytes, cpu_features, vendor

    present = cpu_features()
    usable = frozenset(feature for feature in _USED if _CPUINFO_NAME.get(feature, feature) in present)
    mcpu = _closest(str(codegen.llvm_get_system_cpu()), usable, vendor())
    return replace(_without(mcpu, _USED - usable), caches=cache_bytes())


def _closest(mcpu: str, usable: frozenset[str], vendor: str) -> str:
    """Return the LLVM CPU with the most of the `usable` features: `mcpu`, which LLVM takes this machine for, if that has them.

    A virtual machine may show another model's number than its processor's: LLVM then takes a Sapphire Rapids for a
    Rocket Lake, without bf16.
    """
    if usable <= _llvm_features(mcpu):
        return mcpu
    return max((mcpu, *_KNOWN_CPUS.get(vendor, ())), key=lambda cpu: len(usable & _llvm_features(cpu)))
