"""x86-64: AVX2 with FMA, AVX-512, VNNI's dot products of integers, AVX512-BF16's, and AMX's tiles of both."""

from __future__ import annotations

from pathlib import Path

from ..isa import Isa
from .amx import TILES
from .cpuid import c_features
from .flags import features

# LLVM's names of features where they differ from the flags in /proc/cpuinfo.
_LINUX_NAMES = {
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
    "amx-tile": "amx_tile",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
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
        "amx-int8",
        "avxvnni",
        "avxvnniint8",
        "gfni",
    ]
)
# Features that LLVM would use here and there if a CPU's name implies them, to no gain, although other CPUs with all of
# `_USED` lack them: SSE4A's insertq in a kernel for znver4 ended in SIGILL on an Intel CPU; push2p of APX (diamondrapids) would on
# a Sapphire Rapids, bextri of TBM (bdver4) on a Zen.
_WITHOUT = (
    *("sse4a", "fma4", "xop", "tbm"),
    *(
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
_KNOWN_CPUS = {
    "GenuineIntel": ("haswell", "skylake-avx512", "cascadelake", "icelake-server", "sapphirerapids"),
    "AuthenticAMD": ("znver1", "znver3", "znver4", "znver5"),
}
_WIDE = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"})

ISA = Isa(
    name="x86-64",
    machine="x86_64",
    triple="x86_64-linux-gnu",
    linux_names=_LINUX_NAMES,
    used=_USED,
    without=_WITHOUT,
    needed=frozenset({"avx2", "fma", "f16c"}),
    least="has no AVX2, FMA and F16C, which every kernel needs; the least is x86-64-v3",
    vectors={"avx512f": (512, 32), "avx2": (256, 16)},
    working_registers=4,
    saturates=True,
    dot="avx512_bf16",
    dot_intrinsic="llvm.x86.avx512bf16.dpbf16ps.{bits}",
    dots_by_element=False,
    pairs={256: "avx2", 512: "avx512bw"},
    packs={256: "llvm.x86.avx2.{}", 512: "llvm.x86.avx512.{}.512"},
    sums_of_pairs="avx512_vnni",
    quads={
        "avx512_vnni": {("u8", "s8"): "vpdpbusd"},
        "avx_vnni": {("u8", "s8"): "vpdpbusd"},
        "avx_vnni_int8": {("s8", "s8"): "vpdpbssd", ("u8", "u8"): "vpdpbuud", ("s8", "u8"): "vpdpbsud"},
    },
    quads_by_evex="avx512_vnni",
    tiles=TILES,
    known_cpus=_KNOWN_CPUS,
    cross_compilers=("x86_64-linux-gnu-gcc",),
    install="apt install gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
    c_file="cpu_x86",
    c_features=c_features(),
    detect=features,
    native=Path(__file__).with_name("native"),
    assembly=f"{__name__}.assembly",
    operator_flags=(
        *((flag, frozenset[str]()) for flag in ("-mavx2", "-mfma", "-mf16c")),
        *((flag, _WIDE) for flag in ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")),
        ("-mavx512vbmi", _WIDE | {"avx512vbmi"}),
    ),
)
