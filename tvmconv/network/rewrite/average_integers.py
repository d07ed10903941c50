"""Means and average pools of dequantized data, by sums of integers, which are exact."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from ..ir.constants import static_shape
from ..ir.moves import name_of
from ..ir.operators import CONVOLUTIONS, SPATIAL

Emit = Callable[[relax.Expr], Any]
# Scale, zero point and type of integers.
Numbers = tuple[float, int, str]
# Sums of this many integers of 8 bits are exact in 32 bits.
_MOST_SUMMED = 2**31 // 255


def average(emit: Emit, call: relax.Call, data: Any, numbers: Numbers) -> relax.Expr | None:
    """Return a mean or average pool of dequantized `data` by sums of its integers; None for other operators and free extents."""
    shapes = static_shape(data.ty), static_shape(call.ty)
    if shapes[0] is None or shapes[1] is None or 0 in (*shapes[0], *shapes[1]):
        return None
    if name_of(call) == "relax.mean":
        return _mean(emit, call, data, numbers, prod(shapes[0]) // prod(shapes[1]))
    rank = len(shapes[0]) - 2
    if name_of(call) == f"relax.nn.avg_pool{rank}d" and call.attrs.layout == f"NC{SPATIAL[rank]}":
        return _pool(emit, call, data, numbers, shapes[0], shapes[1])
    return None


def _mean(emit: Emit, call: relax.Call, data: Any, numbers: Numbers, count: int) -> relax.Expr | None:
    if count > _MOST_SUMMED:
        return None
    scale, zero, _ = numbers
    whole = emit(relax.op.sum(emit(relax.op.astype(data, "int32")), call.attrs.axis, call.attrs.keepdims))
    if zero:
        whole = emit(relax.op.subtract(whole, relax.const(zero * count, "int32")))
    factor = relax.const(np.float32(np.float64(scale) / count))
    return relax.op.multiply(emit(relax.op.astype(whole, "float32")), factor)


def _pool(
    emit: Emit, call: relax.Call, data: Any, numbers: Numbers, given: tuple[int, ...], made: tuple[int, ...]
) -> relax.Expr | None:
    """Return a pool as a depthwise convolution by ones, each sum divided by the number of counted taps."""
    attrs, (scale, zero, _), channels, rank = call.attrs, numbers, given[1], len(given) - 2
    sizes, strides, dilations, pads = (
        list(map(int, each)) for each in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )
    counts = np.ones((), np.float64)
    for axis in range(rank):
        inputs, outputs = given[2 + axis], made[2 + axis]
        begin, end, reach = pads[axis], pads[rank + axis], dilations[axis] * (sizes[axis] - 1)
        if outputs != (inputs + begin + end - reach - 1) // strides[axis] + 1:  # rounded up
            return None
        taps = np.arange(outputs)[:, None] * strides[axis] - begin + dilations[axis] * np.arange(sizes[axis])
        inside = np.ones_like(taps, bool) if attrs.count_include_pad else (taps >= 0) & (taps < inputs)
        counts = counts[..., None] * inside.sum(1)
    values = emit(relax.op.astype(data, "int16"))
    if zero:
        values = emit(relax.op.subtract(values, relax.const(zero, "int16")))
    layout = {"data_layout": f"NC{SPATIAL[rank]}", "kernel_layout": f"OI{SPATIAL[rank]}", "out_dtype": "int32"}
    ones = relax.const(np.ones((channels, 1, *sizes), np.int8))
    sums = emit(CONVOLUTIONS[rank](values, ones, strides, pads, dilations, channels, **layout))
    if (counts == counts.flat[0]).all():
        counts = counts.reshape(-1)[:1].reshape([1] * (rank + 2))
    factors = (scale / counts).astype(np.float32).reshape(-1, *counts.shape[-rank:])[None]
    return relax.op.multiply(emit(relax.op.astype(sums, "float32")), relax.const(factors))
