"""The three transforms of Winograd convolution with 3 taps, along one axis, as straight-line expressions.

m outputs of 3 taps are a polynomial product, evaluated at m + 1 points and infinity (Toom-Cook; Lavin and Gray,
"Fast Algorithms for Convolutional Neural Networks", 2015; the matrices are those of the wincnn package, by
https://github.com/andravin/wincnn). With N(x) the product of (x - q) over the points q but p:

    data, row p        the coefficients of N(x), lowest first, times m + 2 data
    filter, row p      (1, p, p^2) / N(p), times 3 taps
    output, column p   (1, p, p^2, ...), times m + 2 products; infinity adds to the last output alone

Points in pairs (p, -p) share the even and the odd part of each row. F(2x2) takes 0, 1, -1. F(4x4) takes 0, 5/8, -5/8,
3/2, -3/2, as oneDNN does: the relative L2 error on normal data is half of that with 0, 1, -1, 2, -2 (at 2048 channels
3.9e-6 against 8.7e-6, in a float32 model of the whole algorithm; 1/2 for 2 gives 8.5e-6), for one multiplication more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

Expr = Any

# The positive point of each pair; F(m x m) has m / 2 pairs.
PAIRS = {2: (1.0,), 4: (0.625, 1.5)}


def data_transform(outputs: int, d: Sequence[Expr]) -> list[Expr]:
    """Return the m + 2 transformed values of m + 2 data."""
    if outputs == 2:
        return [d[0] - d[2], d[2] + d[1], d[2] - d[1], d[3] - d[1]]
    a, b = PAIRS[4]
    aa, bb = a * a, b * b
    even_a, odd_a = d[4] - d[2] * _c(bb), d[3] - d[1] * _c(bb)
    even_b, odd_b = d[4] - d[2] * _c(aa), d[3] - d[1] * _c(aa)
    return [
        d[0] * _c(aa * bb) + (d[4] - d[2] * _c(aa + bb)),
        even_a + odd_a * _c(a),
        even_a - odd_a * _c(a),
        even_b + odd_b * _c(b),
        even_b - odd_b * _c(b),
        d[1] * _c(aa * bb) + (d[5] - d[3] * _c(aa + bb)),
    ]


def filter_transform(outputs: int, g: Sequence[Expr]) -> list[Expr]:
    """Return the m + 2 transformed values of 3 taps."""
    if outputs == 2:
        even = (g[0] + g[2]) * _c(0.5)
        return [g[0], even + g[1] * _c(0.5), even - g[1] * _c(0.5), g[2]]
    values = [g[0] * _c(1 / (PAIRS[4][0] * PAIRS[4][1]) ** 2)]
    for p, q in (PAIRS[4], PAIRS[4][::-1]):
        scale = 1 / (2 * p * p * (p * p - q * q))
        even, odd = g[0] * _c(scale) + g[2] * _c(p * p * scale), g[1] * _c(p * scale)
        values += [even + odd, even - odd]
    return [*values, g[2]]


def output_transform(outputs: int, m: Sequence[Expr]) -> list[Expr]:
    """Return the m outputs of m + 2 products."""
    if outputs == 2:
        return [m[0] + (m[1] + m[2]), m[3] + (m[1] - m[2])]
    a, b = PAIRS[4]
    sum_a, sum_b, difference_a, difference_b = m[1] + m[2], m[3] + m[4], m[1] - m[2], m[3] - m[4]
    return [
        m[0] + sum_a + sum_b,
        difference_a * _c(a) + difference_b * _c(b),
        sum_a * _c(a * a) + sum_b * _c(b * b),
        m[5] + difference_a * _c(a**3) + difference_b * _c(b**3),
    ]


def pick(values: Sequence[Expr], index: Expr) -> Expr:
    """Return ``values[index]``; once `index` is unrolled, one of the expressions alone is left."""
    value = values[-1]
    for number in reversed(range(len(values) - 1)):
        value = tirx.Select(index == number, values[number], value)
    return value


def _c(value: float) -> Expr:
    return tirx.const(value, "float32")
