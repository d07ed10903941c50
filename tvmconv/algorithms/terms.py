"""f32 numbers as sums of bf16: each term has the 8 bits behind those of the one before, so that three are all of it.

Products of terms are added whose numbers add up to an order at most. Of the first order, ``x*w = x0*w0 + x0*w1 + x1*w0``, of which
2^-16 is missing. Of the second also ``x1*w1 + x0*w2 + x2*w0``: 2^-26 is missing, less than f32 rounds off. The terms of two channels
each are a pair, as bf16's dot products take them.

A term is what is left rounded to bf16, ties away from zero, which takes no more than an addition. Where the first would be no finite
number, all but the last are 0, and x is in that: of an infinity, products with other terms would else be NaN whenever these are 0 or
have another sign. NaN and infinities are then as by the formula, but infinity*infinity, which is NaN. Numbers that round to an
infinity, beyond 3.389e38, are cut to 8 bits.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from tvm import tirx

from .types import widen

_TERM_BITS, _HALF, _MAGNITUDE = 0xFFFF0000, 0x8000, 0x7FFF8000
_TOO_LARGE = 0x7F7F8000  # the first that rounds to an infinity
# The least normal number. Subtracted from one, it changes nothing but a NaN, whose first bits then mark it; LLVM would remove a
# subtraction of 0.
_LEAST = 0x00800000


def products_of(order: int) -> tuple[tuple[int, int], ...]:
    """Return the terms of two numbers that are multiplied, those of the first number once and again."""
    return tuple((i, j) for i in range(order + 1) for j in range(order + 1 - i))


def terms_of_pair(first: Any, second: Any, term: Any, count: int, dtype: str) -> Any:
    """Return a pair of terms, those of number `term` of `count`, of two numbers of a problem's type."""
    pairs = [
        _pair(*each) for each in zip(*(_terms(widen(value, dtype), count) for value in (first, second)), strict=True)
    ]
    return reduce(lambda others, at: tirx.Select(term == at, pairs[at], others), reversed(range(count - 1)), pairs[-1])


def _terms(value: Any, count: int) -> list[Any]:
    """Return the bits of an f32 number's terms, each an f32 whose last 16 bits are zeros."""
    mask, least, zero, up = (tirx.const(bits, "uint32") for bits in (_TERM_BITS, _LEAST, 0, _HALF))
    # Signed, for TVM 0.27 subtracts what it compares.
    magnitude = tirx.reinterpret("int32", value) & tirx.const(_MAGNITUDE, "int32")
    finite = magnitude < tirx.const(_TOO_LARGE, "int32")
    made, rest = [], tirx.reinterpret("uint32", value)
    for _ in range(count - 1):
        rounded = (rest + up) & mask
        term, taken = (tirx.Select(finite, rounded, other) for other in (zero, least))
        made.append(term)
        rest = tirx.reinterpret("uint32", tirx.reinterpret("float32", rest) - tirx.reinterpret("float32", taken))
    return [*made, tirx.Select(finite, rest + up, rest) & mask]  # of a NaN the addition could make a zero


def _pair(first: Any, second: Any) -> Any:
    return second | first >> tirx.const(16, "uint32")
