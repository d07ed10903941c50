"""The three transforms of Winograd convolution along one axis, of integers: exact, modulo 2^32.

The transforms of `winograd_transforms` with points 0, 1, -1 and, of six, also 2, -2. The filter's rows are scaled by `SCALES` to integers;
the row of infinity, which would be the largest, is divided by `LAST`, which the output's transform compensates. Outputs are thus scaled
by 2 (four points) or 24 (six) along each axis: the odd factor is inverted modulo 2^32, and a shift removes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from operator import add
from typing import Any

from tvm import tirx

from .winograd_transforms import combine_products

Expr = Any

# Positive point of each pair, and the factors above, by the number of points.
PAIRS: dict[int, tuple[int, ...]] = {1: (), 4: (1,), 6: (1, 2)}
SCALES = {1: 1, 4: 2, 6: 24}
LAST = {1: 1, 4: 1, 6: 4}
# Largest sum of magnitudes in a row of the data's transform.
DATA_SUMS = {1: 1, 4: 2, 6: 10}


def shift_of(points: int) -> int:
    """Return the number of low bits by which outputs are scaled."""
    return (SCALES[points] & -SCALES[points]).bit_length() - 1


def filter_rows(points: int, taps: int) -> list[list[int]]:
    """Return the matrix of the filter's transform, with a row for each point."""
    if points == 1:
        return [[1]]
    times, pairs = SCALES[points], PAIRS[points]
    rows = [[times // prod(p * p for p in pairs), *[0] * (taps - 1)]]
    for p in pairs:
        norm = 2 * p * p * prod(p * p - q * q for q in pairs if q != p)
        rows += [[times * (sign * p) ** k // norm for k in range(taps)] for sign in (1, -1)]
    return [*rows, [*[0] * (taps - 1), times // LAST[points]]]


def transform_data(d: Sequence[Expr]) -> list[Expr]:
    """Return the transformed values of a tile of data."""
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
    """Return the transformed values of the taps, one for each of `points`."""
    return [
        reduce(add, (_times(tap, factor) for tap, factor in zip(taps, row, strict=True) if factor))
        for row in filter_rows(points, len(taps))
    ]


def transform_sums(m: Sequence[Expr], outputs: int) -> list[Expr]:
    """Return so many scaled outputs of the sums at all points."""
    return combine_products(m, outputs, PAIRS[len(m)], _times, LAST[len(m)])


def descale(total: Expr, points: Sequence[int]) -> Expr:
    """Return the sum of a scaled one in uint32 that was transformed along axes of so many `points`."""
    shift, odd = sum(map(shift_of, points)), prod(SCALES[count] >> shift_of(count) for count in points)
    if odd > 1:
        total = total * tirx.const(pow(odd, -1, 2**32), "uint32")
    return total.astype("int32") >> tirx.const(shift, "int32")


def _times(value: Expr, factor: int) -> Expr:
    return value if factor == 1 else value * tirx.const(factor, str(value.ty.dtype))
