"""64-bit ARM: NEON's 32 registers of 128 bits, and BFDOT, BFMMLA and dot products of integers where CPUs have them; no scalable vectors."""

from __future__ import annotations

from pathlib import Path

from ..isa import Isa, Matrices
from .hwcap import c_features, features

_LINUX_NAMES = {"neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp"}
# Features whose instructions LLVM may use in any code if a CPU's name implies them: other vector widths, three-way logic (sha3),
# complex products, comparisons, copies and atomics of later versions.
_WITHOUT = (
    *("sve", "sve2", "sve-bitperm", "sve-aes", "sve-sha3", "sve-sm4", "sve-b16b16", "sme", "sme2"),
    *("sha3", "sm4", "rdm", "complxnum", "jsconv", "fp16fml", "fptoint", "crc"),
    *("flagm", "altnzcv", "cssc", "mops", "hbc", "faminmax", "lut", "fp8", "fp8fma", "fp8dot2", "fp8dot4"),
    *("lse", "lse2", "rcpc", "rcpc-immo", "rcpc3", "pauth", "ls64", "wfxt"),
)

ISA = Isa(
    name="aarch64",
    machine="aarch64",
    triple="aarch64-linux-gnu",
    linux_names=_LINUX_NAMES,
    used=frozenset({"neon", "fullfp16", "bf16", "dotprod", "i8mm"}),
    without=_WITHOUT,
    # Sums then begin with a product, not with a zero, which would cost a multiply-add more; zeros may have another sign. Depthwise
    # sums of nine taps by llvm-mca: 75 cycles instead of 82 on a Neoverse N1, 36.6 instead of 39.1 on a V1.
    options={"fast-math-nsz": True},
    needed=frozenset({"neon"}),
    least="has no NEON, which every kernel needs; the least is cortex-a53",
    vectors={"asimd": (128, 32)},
    # Operands from memory need registers, too. With 4, LLVM spilled sums: a pointwise layer's loop reached 61 % of a Neoverse N1's
    # multiply-adds by llvm-mca, with 8 98 % (benchmarks/static_analysis.py).
    working_registers=8,
    saturates=True,
    dot="bf16",
    dot_intrinsic="llvm.aarch64.neon.bfdot.v{lanes}f32.v{halves}bf16",
    dots_by_element=True,
    quads={
        "asimddp": {("s8", "s8"): "sdot", ("u8", "u8"): "udot"},
        "i8mm": {("u8", "s8"): "usdot", ("s8", "u8"): "sudot"},
    },
    # FEAT_BF16 has dot products and matrices.
    matrices=Matrices("bf16", "llvm.aarch64.neon.bfmmla", rows=2, columns=2, depth=4),
    # Linux reports no vendor.
    known_cpus={"": ("cortex-a53", "neoverse-n1", "neoverse-n2")},
    cross_compilers=("aarch64-linux-gnu-gcc",),
    install="apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    c_file="cpu_aarch64",
    c_features=c_features(),
    # Outlined atomics are calls into GCC's library, which other compilers' programs may not link.
    c_flags=("-mno-outline-atomics",),
    cpu_flag="-mcpu=",
    detect=features,
    native=Path(__file__).with_name("native"),
    assembly=f"{__name__}.assembly",
    emulators=("qemu-aarch64-static", "qemu-aarch64"),
    emulated_cpus=(
        ("cortex-a53", frozenset({"asimd"})),
        ("neoverse-n1", frozenset({"asimd", "asimdhp", "asimddp"})),
        ("max", frozenset({"asimd", "asimdhp", "asimddp", "bf16", "i8mm"})),
    ),
    aliases=frozenset({"apple-m1", "apple-m2", "apple-m3"}),
)
