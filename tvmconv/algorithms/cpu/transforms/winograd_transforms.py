"""The three transforms of Winograd convolution along one axis, as straight-line expressions.

m outputs of r taps are a polynomial product, evaluated at P - 1 = m + r - 2 points and infinity (Toom-Cook; Lavin and Gray,
"Fast Algorithms for Convolutional Neural Networks", 2015; the matrices are those of the wincnn package, by
https://github.com/andravin/wincnn). With N(x) the product of (x - q) over the points q but p:

    data, row p        the coefficients of N(x), lowest first, times P data
    filter, row p      (1, p, p^2, ...) / N(p), times r taps; infinity takes only the last tap
    output, column p   (1, p, p^2, ...), times P products; infinity adds only to the last output

The data's transform depends only on the points: P points serve any r < P, with m = P + 1 - r. Points in pairs (p, -p) share the
even and the odd part of each row. P = 4 takes 0, 1, -1. P = 6 takes 0, 5/8, -5/8, 3/2, -3/2, as oneDNN does: for 3 taps the
relative L2 error on normal data is half of that with 0, 1, -1, 2, -2 (at 2048 channels 3.9e-6 against 8.7e-6, in a float32
model of the whole algorithm; 1/2 for 2 gives 8.5e-6), for one multiplication more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from math import prod
from operator import add
from typing import Any

from tvm import tirx

Expr = Any

# The positive point of each pair, by the number of points.
PAIRS: dict[int, tuple[float, ...]] = {1: (), 4: (1.0,), 6: (0.625, 1.5)}


def data_transform(d: Sequence[Expr]) -> list[Expr]:
    """Return the transformed values of a tile of data."""
    if len(d) == 1:
        return [d[0]]
    if len(d) == 4:
        return [d[0] - d[2], d[2] + d[1], d[2] - d[1], d[3] - d[1]]
    a, b = PAIRS[6]
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


def filter_transform(points: int, g: Sequence[Expr]) -> list[Expr]:
    """Return the transformed values, one for each of `points`, of the taps `g`."""
    if points == 1:
        return [g[0]]
    pairs = PAIRS[points]
    # The data's row of point 0 has the sign that makes N(0) positive.
    values = [_scale(g[0], 1 / prod(p * p for p in pairs))]
    for p in pairs:
        norm = 1 / (2 * p * p * prod(p * p - q * q for q in pairs if q != p))
        even, odd = (_sum(_scale(g[k], p**k * norm) for k in range(first, len(g), 2)) for first in (0, 1))
        values += [even + odd, even - odd]
    return [*values, g[-1]]


def output_transform(m: Sequence[Expr], outputs: int) -> list[Expr]:
    """Return so many outputs of the products of all points."""
    return combine_products(m, outputs, PAIRS[len(m)], _scale)


def combine_products(
    m: Sequence[Expr], outputs: int, pairs: Sequence[float], scale: Callable[[Expr, Any], Expr], last: int = 1
) -> list[Expr]:
    """Return so many outputs of the products at 0, the points in `pairs`, and infinity, the last one scaled by `last`."""
    if len(m) == 1:
        return [m[0]]
    sums = [m[2 * k + 1] + m[2 * k + 2] for k in range(len(pairs))]
    differences = [m[2 * k + 1] - m[2 * k + 2] for k in range(len(pairs))]

    def output(i: int) -> Expr:
        terms = [scale(value, p**i) for p, value in zip(pairs, differences if i % 2 else sums, strict=True)]
        return _sum([m[0]] * (i == 0) + [scale(m[-1], last)] * (i == outputs - 1) + terms)

    return [output(i) for i in range(outputs)]


def select(values: Sequence[Expr], index: Expr) -> Expr:
    """Return ``values[index]`` as a selection, which unrolling `index` reduces to one expression."""
    value = values[-1]
    for number in reversed(range(len(values) - 1)):
        value = tirx.Select(index == number, values[number], value)
    return value


def _sum(terms: Iterable[Expr]) -> Expr:
    return reduce(add, terms)


def _scale(value: Expr, factor: float) -> Expr:
    return value if factor == 1 else value * _c(factor)


def _c(value: float) -> Expr:
    return tirx.const(value, "float32")
