"""Quotients by a fixed number as two products, where both round to the same whole numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# Neighbours in f32 on both sides of a tie that are compared: both quotients are within four of the exact one.
_NEAR = 8
# Bounds of divisors whose reciprocals and quotients have no denormal part.
_LEAST, _GREATEST = 2.0**-60, 2.0**60


@lru_cache(maxsize=1024)
def reciprocal_of(divisor: float, low: int, high: int) -> tuple[float, float] | None:
    """Return a reciprocal as the sum of two f32: ``fma(x, first, x * second)`` rounds to the same whole number as ``x / divisor``.

    Neither falls as x grows, so they are compared at the ties alone. None: they differ at a tie.

    Parameters
    ----------
    low, high
        Whole numbers whose products with the divisor bound x.
    """
    if not _LEAST < divisor < _GREATEST:
        return None
    exact = 1 / np.float64(np.float32(divisor))
    first = np.float32(exact)
    second = np.float32(exact - np.float64(first))
    ties = (np.arange(low, high, dtype=np.float64) + 0.5) * np.float64(np.float32(divisor))
    ends = np.array([low, high], np.float64) * np.float64(np.float32(divisor))
    bits = np.concatenate([ties, ends]).astype(np.float32).view(np.int32)
    near = (bits[:, None] + np.arange(-_NEAR, _NEAR + 1, dtype=np.int32)).view(np.float32)
    near[-2:] = near[-2:, _NEAR : _NEAR + 1]  # of the bounds, no neighbours
    with np.errstate(invalid="ignore", over="ignore"):
        same = np.rint(near / np.float32(divisor)) == np.rint(multiply_add(near, first, near * second))
    return (float(first), float(second)) if bool(same[np.isfinite(near)].all()) else None


def multiply_add(a: Array, b: np.float32, c: Array) -> Array:
    """Return ``a * b + c`` of f32, rounded once: the sum of f64 is rounded to odd, which f32 then rounds as the exact one."""
    product, more = a.astype(np.float64) * np.float64(b), c.astype(np.float64)
    total = product + more
    part = total - product
    error = (product - (total - part)) + (more - part)
    even = total.view(np.int64) % 2 == 0
    odd = np.where(even & (error != 0), np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
    return odd.astype(np.float32)
