"""f32 numbers as sums of two bf16: x = high + low, whose low half has the 8 bits behind those of the high one.

Products of both halves but the smallest are added: ``x*w = high*high + high*low + low*high``, of which 2^-16 is missing. The
halves of two channels each are a pair, as bf16's dot products take them.

The high half is x rounded to bf16, ties away from zero, which takes no more than an addition. Where that would be no finite
number, it is 0, and x is in the low half: of an infinity, high*low would else be NaN whenever low is 0 or has another sign. NaN
and infinities are then as by the formula, but infinity*infinity, which is NaN. Numbers that round to an infinity, beyond
3.389e38, are cut to 8 bits.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from .types import widen

_HIGH_BITS, _HALF, _MAGNITUDE = 0xFFFF0000, 0x8000, 0x7FFF8000
_TOO_LARGE = 0x7F7F8000  # the first that rounds to an infinity
# The least normal number. What it is subtracted from stays as it is, but for a NaN, which becomes one that its first bits tell; LLVM
# would leave out a subtraction of 0.
_LEAST = 0x00800000


def halves_of_pair(first: Any, second: Any, half: Any, dtype: str) -> Any:
    """Return a pair of halves of two numbers of a problem's type: the high ones where `half` is 0, else the low ones."""
    (high0, low0), (high1, low1) = (_halves(widen(value, dtype)) for value in (first, second))
    return tirx.Select(half == 0, _pair(high0, high1), _pair(low0, low1))


def _halves(value: Any) -> tuple[Any, Any]:
    """Return the bits of an f32 number's halves, each an f32 whose last 16 bits are zeros."""
    mask, least, zero, up = (tirx.const(bits, "uint32") for bits in (_HIGH_BITS, _LEAST, 0, _HALF))
    # Signed, for TVM 0.27 subtracts what it compares.
    magnitude = tirx.reinterpret("int32", value) & tirx.const(_MAGNITUDE, "int32")
    finite = magnitude < tirx.const(_TOO_LARGE, "int32")
    rounded = (tirx.reinterpret("uint32", value) + up) & mask
    high, taken = (tirx.Select(finite, rounded, other) for other in (zero, least))
    rest = tirx.reinterpret("uint32", value - tirx.reinterpret("float32", taken))
    return high, tirx.Select(finite, rest + up, rest) & mask  # of a NaN the addition could make a zero


def _pair(first: Any, second: Any) -> Any:
    return second | first >> tirx.const(16, "uint32")
