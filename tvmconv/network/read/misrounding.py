"""Comparison of a network's quantized integers with the numbers that they round."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Greatest distance of an integer from the number that it rounds, in steps: half a step, and the error of f32 sums, absolute and per
# step of the largest sum. A filter's number that is one step off is detected in sums of hundreds of products.
_HALF, _SUM_ERROR = 0.5 + 2.0**-6, 2.0**-16


def describe_misrounding(
    name: str,
    got: Array,
    values: Array,
    scale: Array,
    zero: Array | None,
    axis: int,
    bounds: tuple[int, int] | None = None,
) -> list[str]:
    """Describe by how much integers miss the rounded values, if that is too far.

    Parameters
    ----------
    name, got
        The tensor's name and integers.
    values
        The unquantized numbers.
    scale, zero
        One for all, or one for each index along `axis`; None: no zero point.
    bounds
        The least and the greatest integer; None: those of the type.
    """
    if values.shape != got.shape:
        return [f"{name} has the shape {got.shape} instead of {values.shape}"]
    shape = [-1 if at == axis % max(values.ndim, 1) and scale.size > 1 else 1 for at in range(values.ndim)]
    steps = np.nan_to_num(values.astype(np.float64) / scale.astype(np.float64).reshape(shape))
    offset = 0 if zero is None else zero.astype(np.float64).reshape(shape)
    low, high = bounds or (np.iinfo(got.dtype).min, np.iinfo(got.dtype).max)
    off = np.abs(got - np.clip(steps + offset, low, high))
    most = _HALF + _SUM_ERROR * np.abs(steps[np.isfinite(values)]).max(initial=0)
    if not (off > most).any():
        return []
    return [f"{name} by up to {off.max():.2g} steps, {np.mean(off > most):.2g} of its numbers"]
