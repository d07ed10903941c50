"""Features of a 64-bit ARM CPU as macOS reports them."""

from __future__ import annotations

import ctypes

# macOS's names of features (sysctl hw.optional) by Linux's, as platforms/macos/native/cpu_aarch64.c has them; all CPUs have asimd.
NAMES = {
    "asimddp": b"hw.optional.arm.FEAT_DotProd",
    "asimdhp": b"hw.optional.arm.FEAT_FP16",
    "bf16": b"hw.optional.arm.FEAT_BF16",
    "i8mm": b"hw.optional.arm.FEAT_I8MM",
}


def features() -> frozenset[str]:
    """Return the features of this machine's CPU that programs may use, by Linux's names."""
    ask = ctypes.CDLL(None).sysctlbyname

    def has(name: bytes) -> bool:
        found, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
        return ask(name, ctypes.byref(found), ctypes.byref(size), None, ctypes.c_size_t(0)) == 0 and found.value != 0

    return frozenset({"asimd", *(name for name, asked in NAMES.items() if has(asked))})
