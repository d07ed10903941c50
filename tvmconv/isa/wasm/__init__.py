"""WebAssembly with 32-bit addresses: vectors of 128 bits, and a fused multiply-add in engines with relaxed SIMD."""

from __future__ import annotations

from pathlib import Path

from ...platforms.web import PLATFORM as WEB
from ..isa import Isa

ISA = Isa(
    name="WebAssembly",
    machine="wasm32",
    triple="wasm32-wasi",
    linux_names={},
    used=frozenset({"simd128", "relaxed-simd"}),
    without=(),
    options={"vector-width": 128},
    needed=frozenset({"simd128"}),
    least="has no simd128, which every kernel needs; the least is wasm32",
    # The number of locals is unlimited, but an x86 CPU has 16 registers of this width, one of which V8 reserves, and a product needs
    # another before it is added. LLVM loads the data of all unrolled steps first: in Node 20 on a Zen 3, 64 to 64 channels, 3x3 at
    # 56x56, direct, took 9.5 ms with 4 channels together, and 6.9 with one.
    vectors={"simd128": (128, 16)},
    working_registers=8,
    fused=False,
    steps_together=1,
    dot="no dot product",
    dot_intrinsic="",
    dots_by_element=False,
    known_cpus={},
    models={"wasm32": ("simd128",), "wasm32-relaxed": ("simd128", "relaxed-simd")},
    cross_compilers=(),
    install="",
    c_file="",
    c_features={},
    detect=frozenset,
    native=Path(__file__).with_name("native"),
    assembly=f"{__name__}.assembly",
    platform=WEB,
    emulators=("node",),
    operator_flags=(("-msimd128", frozenset()), ("-mrelaxed-simd", frozenset({"relaxed-simd"}))),
)
