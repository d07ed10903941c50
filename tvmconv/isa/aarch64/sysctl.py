"""Features of a 64-bit ARM CPU as macOS reports them."""

from __future__ import annotations

import ctypes

# Linux's names of features, by macOS's (sysctl hw.optional); all have vectors.
_NAMES = {"asimdhp": b"hw.optional.arm.FEAT_FP16", "bf16": b"hw.optional.arm.FEAT_BF16"}


def features() -> frozenset[str]:
    """Return the features of this machine's CPU that programs may use, by Linux's names."""
    ask = ctypes.CDLL(None).sysctlbyname

    def has(name: bytes) -> bool:
        found, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
        return ask(name, ctypes.byref(found), ctypes.byref(size), None, ctypes.c_size_t(0)) == 0 and found.value != 0

    return frozenset({"asimd", *(name for name, asked in _NAMES.items() if has(asked))})
