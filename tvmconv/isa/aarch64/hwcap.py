"""Features of a 64-bit ARM CPU as Linux reports them: bits of AT_HWCAP and AT_HWCAP2.

/proc/cpuinfo has the same features, but describes the host under an emulator, and may be missing in a sandbox.
"""

from __future__ import annotations

import ctypes

_AT_HWCAP, _AT_HWCAP2 = 16, 26  # <elf.h>
# Bits (Linux, arch/arm64/include/uapi/asm/hwcap.h) of features for vectors of floats and integers, by their names in /proc/cpuinfo.
_HWCAP = {"fp": 0, "asimd": 1, "fphp": 9, "asimdhp": 10, "asimdrdm": 12, "fcma": 14, "asimddp": 20, "sve": 22}
_HWCAP |= {"asimdfhm": 23}
_HWCAP2 = {"sve2": 1, "i8mm": 13, "bf16": 14}


def features() -> frozenset[str]:
    """Return the features of this machine's CPU that programs may use, by Linux's names."""
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return decode(getauxval(_AT_HWCAP), getauxval(_AT_HWCAP2))


def decode(hwcap: int, hwcap2: int) -> frozenset[str]:
    """Return the names of the bits that are set in the two words."""
    pairs = ((hwcap, _HWCAP), (hwcap2, _HWCAP2))
    return frozenset(name for word, bits in pairs for name, bit in bits.items() if word >> bit & 1)


def c_features() -> dict[str, str]:
    """Return an initializer of ``struct feature`` for each feature (exporting/native/cpu_aarch64.c)."""
    words = {_AT_HWCAP: _HWCAP, _AT_HWCAP2: _HWCAP2}
    return {name: f'{{{word}, {bit}, "{name}"}}' for word, bits in words.items() for name, bit in bits.items()}
