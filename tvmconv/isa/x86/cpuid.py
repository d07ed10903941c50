"""Bits of cpuid and XCR0 by which an x86-64 CPU's features are detected."""

from __future__ import annotations

_EAX, _EBX, _ECX, _EDX = range(4)
# Bits of XCR0: vectors of 256 bits, of 512, tiles.
_NONE, _YMM, _ZMM, _TILES = 0, 0x6, 0xE6, 0x60000
# Leaf and subleaf of cpuid, register, bit, and bits of XCR0 for the state that the system must save, by the names of /proc/cpuinfo
# (Intel's and AMD's manuals, CPUID; Linux, arch/x86/include/asm/cpufeatures.h).
CPUID = {
    "sse": (1, 0, _EDX, 25, _NONE),
    "sse2": (1, 0, _EDX, 26, _NONE),
    "pni": (1, 0, _ECX, 0, _NONE),
    "ssse3": (1, 0, _ECX, 9, _NONE),
    "fma": (1, 0, _ECX, 12, _YMM),
    "sse4_1": (1, 0, _ECX, 19, _NONE),
    "sse4_2": (1, 0, _ECX, 20, _NONE),
    "movbe": (1, 0, _ECX, 22, _NONE),
    "popcnt": (1, 0, _ECX, 23, _NONE),
    "avx": (1, 0, _ECX, 28, _YMM),
    "f16c": (1, 0, _ECX, 29, _YMM),
    "abm": (0x80000001, 0, _ECX, 5, _NONE),
    "bmi1": (7, 0, _EBX, 3, _NONE),
    "avx2": (7, 0, _EBX, 5, _YMM),
    "bmi2": (7, 0, _EBX, 8, _NONE),
    "avx512f": (7, 0, _EBX, 16, _ZMM),
    "avx512dq": (7, 0, _EBX, 17, _ZMM),
    "avx512ifma": (7, 0, _EBX, 21, _ZMM),
    "avx512cd": (7, 0, _EBX, 28, _ZMM),
    "avx512bw": (7, 0, _EBX, 30, _ZMM),
    "avx512vl": (7, 0, _EBX, 31, _ZMM),
    "avx512vbmi": (7, 0, _ECX, 1, _ZMM),
    "avx512_vbmi2": (7, 0, _ECX, 6, _ZMM),
    "gfni": (7, 0, _ECX, 8, _NONE),
    "avx512_vnni": (7, 0, _ECX, 11, _ZMM),
    "avx512_bitalg": (7, 0, _ECX, 12, _ZMM),
    "avx512_vpopcntdq": (7, 0, _ECX, 14, _ZMM),
    "amx_bf16": (7, 0, _EDX, 22, _TILES),
    "avx512_fp16": (7, 0, _EDX, 23, _ZMM),
    "amx_tile": (7, 0, _EDX, 24, _TILES),
    "amx_int8": (7, 0, _EDX, 25, _TILES),
    "avx_vnni": (7, 1, _EAX, 4, _YMM),
    "avx_vnni_int8": (7, 1, _EDX, 4, _YMM),
    "avx512_bf16": (7, 1, _EAX, 5, _ZMM),
}


def c_features() -> dict[str, str]:
    """Return an initializer of ``struct feature`` for each feature (exporting/native/cpu_x86.c)."""
    return {
        name: f'{{{leaf:#x}, {subleaf}, {register}, {bit}, {state:#x}, "{name}"}}'
        for name, (leaf, subleaf, register, bit, state) in CPUID.items()
    }
