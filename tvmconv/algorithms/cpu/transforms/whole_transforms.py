"""The three transforms of Winograd convolution along one axis, of integers: exact, modulo 2^32.

Those of `winograd_transforms`, of points 0, 1, -1 and, where there are six, 2, -2. The filter's rows are `SCALES` times the formula's, so
that they have whole numbers; infinity's, which would be the largest, `LAST` times less, which the output's makes up for. So outputs are
the formula's times two (four points) or 24 (six) along each axis: the odd part is divided by modulo 2^32, and a shift takes the rest off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

from tvm import tirx

Expr = Any

# Positive points of each pair, and the factors above, by the number of points.
PAIRS: dict[int, tuple[int, ...]] = {1: (), 4: (1,), 6: (1, 2)}
SCALES = {1: 1, 4: 2, 6: 24}
LAST = {1: 1, 4: 1, 6: 4}
# Sums of the magnitudes of a row, at most, of the data's.
DATA_SUMS = {1: 1, 4: 2, 6: 10}


def shift_of(points: int) -> int:
    """Return how many of the last bits of outputs are none of the formula's."""
    return (SCALES[points] & -SCALES[points]).bit_length() - 1


def filter_rows(points: int, taps: int) -> list[list[int]]:
    """Return the matrix of the filter's transform, a row for each point."""
    if points == 1:
        return [[1]]
    scale, pairs = SCALES[points], PAIRS[points]
    least = 1
    for p in pairs:
        least *= p * p
    rows = [[scale // least, *[0] * (taps - 1)]]
    for p in pairs:
        norm = 2 * p * p * reduce(lambda total, q: total * (p * p - q * q), (q for q in pairs if q != p), 1)
        rows += [[scale * (sign * p) ** k // norm for k in range(taps)] for sign in (1, -1)]
    return [*rows, [*[0] * (taps - 1), scale // LAST[points]]]


def transform_data(d: Sequence[Expr]) -> list[Expr]:
    """Return the transformed values of as many data."""
    if len(d) == 1:
        return [d[0]]
    if len(d) == 4:
        return [d[0] - d[2], d[2] + d[1], d[2] - d[1], d[3] - d[1]]
    even, odd = d[4] - d[2], d[3] - d[1]
    even_by_one, odd_by_one = d[4] - _times(d[2], 4), d[3] - _times(d[1], 4)
    return [
        even - _times(d[2] - d[0], 4),
        even_by_one + odd_by_one,
        even_by_one - odd_by_one,
        even + _times(odd, 2),
        even - _times(odd, 2),
        d[5] - d[3] - _times(odd, 4),
    ]


def transform_filter(points: int, taps: Sequence[Expr]) -> list[Expr]:
    """Return the transformed values, one for each of `points`."""
    return [
        reduce(add, (_times(tap, factor) for tap, factor in zip(taps, row, strict=True) if factor))
        for row in filter_rows(points, len(taps))
    ]


def transform_sums(m: Sequence[Expr], outputs: int) -> list[Expr]:
    """Return so many outputs, scaled, of the sums of products of all points."""
    if len(m) == 1:
        return [m[0]]
    pairs = PAIRS[len(m)]
    sums = [m[2 * k + 1] + m[2 * k + 2] for k in range(len(pairs))]
    differences = [m[2 * k + 1] - m[2 * k + 2] for k in range(len(pairs))]

    def output(i: int) -> Expr:
        terms = [_times(value, p**i) for p, value in zip(pairs, differences if i % 2 else sums, strict=True)]
        first = [m[0]] * (i == 0)
        last = [_times(m[-1], LAST[len(m)])] * (i == outputs - 1)
        return reduce(add, [*first, *last, *terms])

    return [output(i) for i in range(outputs)]


def descale(total: Expr, points: Sequence[int]) -> Expr:
    """Return the formula's sum of a scaled one of uint32, transformed along axes of so many `points`."""
    shift, odd = sum(map(shift_of, points)), 1
    for count in points:
        odd *= SCALES[count] >> shift_of(count)
    if odd > 1:
        total = total * tirx.const(pow(odd, -1, 2**32), "uint32")
    return total.astype("int32") >> tirx.const(shift, "int32")


def _times(value: Expr, factor: int) -> Expr:
    return value if factor == 1 else value * tirx.const(factor, str(value.ty.dtype))
