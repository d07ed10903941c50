"""f32 numbers as sums of bf16 terms: each term has the next 8 bits, so that three terms represent a number exactly.

Products of terms are added whose indices sum to at most an order. The first order is ``x*w = x0*w0 + x0*w1 + x1*w0``, with an error of
2^-16. The second adds ``x1*w1 + x0*w2 + x2*w0``, with an error of 2^-26, below f32's rounding. Terms of two channels form a pair, the
operand of bf16's dot products.

A term is the remainder rounded to bf16, ties away from zero, which takes a single addition. If the first term would not be finite,
the last one holds x and the others are 0: products of an infinity with other terms, which may be 0 or have another sign, would
otherwise be NaN. NaN and infinities then follow the formula, except that infinity*infinity is NaN. Numbers beyond 3.389e38, which would
round to an infinity, are truncated to 8 bits.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from tvm import tirx

from .types import widen

_TERM_BITS, _HALF, _MAGNITUDE = 0xFFFF0000, 0x8000, 0x7FFF8000
_TOO_LARGE = 0x7F7F8000  # the first that rounds to an infinity
# The least normal number. Subtracting it has no effect on such large numbers but quiets a NaN, whose first bits then mark it; LLVM would
# remove a subtraction of 0.
_LEAST = 0x00800000


def products_of(order: int) -> tuple[tuple[int, int], ...]:
    """Return the indices of the terms of two numbers that are multiplied, those of the first number in ascending order."""
    return tuple((i, j) for i in range(order + 1) for j in range(order + 1 - i))


def terms_of_pair(first: Any, second: Any, term: Any, count: int, dtype: str) -> Any:
    """Return the pair of the terms at index `term`, of `count`, of two numbers of a problem's type."""
    pairs = [
        _pair(*each) for each in zip(*(_terms(widen(value, dtype), count) for value in (first, second)), strict=True)
    ]
    return reduce(lambda others, at: tirx.Select(term == at, pairs[at], others), reversed(range(count - 1)), pairs[-1])


def _terms(value: Any, count: int) -> list[Any]:
    """Return the bits of an f32 number's terms, each an f32 whose last 16 bits are zeros."""
    mask, least, zero, up = (tirx.const(bits, "uint32") for bits in (_TERM_BITS, _LEAST, 0, _HALF))
    # Signed, because TVM 0.27 subtracts operands of comparisons.
    magnitude = tirx.reinterpret("int32", value) & tirx.const(_MAGNITUDE, "int32")
    finite = magnitude < tirx.const(_TOO_LARGE, "int32")
    made, rest = [], tirx.reinterpret("uint32", value)
    for _ in range(count - 1):
        rounded = (rest + up) & mask
        term, taken = (tirx.Select(finite, rounded, other) for other in (zero, least))
        made.append(term)
        rest = tirx.reinterpret("uint32", tirx.reinterpret("float32", rest) - tirx.reinterpret("float32", taken))
    return [*made, tirx.Select(finite, rest + up, rest) & mask]  # the addition could turn a NaN into a zero


def _pair(first: Any, second: Any) -> Any:
    return second | first >> tirx.const(16, "uint32")
