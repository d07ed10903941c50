"""Both operations as loops, one product at a time, from attributes as written (nothing canonical)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt


def extents(
    op: str,
    x: Sequence[int],
    k: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
) -> tuple[int, ...]:
    """Return the output's spatial extents; for backprop an `end` below zero is output padding."""
    if op == "convolution":
        return tuple(
            (pb + pe + xx - (d * (kk - 1) + 1)) // s + 1
            for xx, kk, s, d, pb, pe in zip(x, k, strides, dilations, begin, end, strict=True)
        )
    return tuple(
        s * (xx - 1) + d * (kk - 1) + 1 - pb - pe
        for xx, kk, s, d, pb, pe in zip(x, k, strides, dilations, begin, end, strict=True)
    )


def compute(
    op: str,
    data: npt.NDArray[np.float64],
    filter: npt.NDArray[np.float64],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    groups: int,
) -> npt.NDArray[np.float64]:
    """Return the output; data and output are NXC, the filter XIO."""
    x, k = data.shape[1:-1], filter.shape[:-2]
    y = extents(op, x, k, strides=strides, dilations=dilations, begin=begin, end=end)
    out_channels = filter.shape[-1] if op == "convolution" else filter.shape[-2] * groups
    inputs, outputs = data.shape[-1] // groups, out_channels // groups
    output = np.zeros((data.shape[0], *y, out_channels))
    steps, limits = (y, x) if op == "convolution" else (x, y)
    for j, tap in product(np.ndindex(*steps), np.ndindex(*k)):
        at = tuple(s * a + d * b - p for a, b, s, d, p in zip(j, tap, strides, dilations, begin, strict=True))
        if any(not 0 <= a < limit for a, limit in zip(at, limits, strict=True)):
            continue
        for n, g, i, o in product(range(data.shape[0]), range(groups), range(inputs), range(outputs)):
            ci, co = g * inputs + i, g * outputs + o
            if op == "convolution":
                output[(n, *j, co)] += data[(n, *at, ci)] * filter[(*tap, i, co)]
            else:
                output[(n, *at, co)] += data[(n, *j, ci)] * filter[(*tap, o, ci)]
    return output
