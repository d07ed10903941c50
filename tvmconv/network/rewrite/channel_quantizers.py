"""Quantizers by channels as arithmetic: TVM's ConvertLayout moves channels to another axis, but keeps a quantizer's axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from ..ir.constants import constant
from ..ir.quantizers import BY_RECIPROCAL, is_quantizer

Emit = Callable[[relax.Expr], Any]


def expand_by_channels(emit: Emit, call: relax.Call) -> relax.Expr | None:
    """Return a quantizer or dequantizer with several fixed scales or zero points as elementwise operators; None for others."""
    scale, zero = (constant(each) for each in call.args[1:])
    data = call.args[0]
    if scale is None or zero is None or max(scale.size, zero.size) == 1 or constant(data) is not None:
        return None
    axis, given, out = int(call.attrs.axis) % data.ty.ndim, str(data.ty.dtype), str(call.ty.dtype)

    def spread(numbers: Any, dtype: str) -> relax.Expr:
        shape = [-1 if at == axis else 1 for at in range(data.ty.ndim)]
        return relax.const(numbers.astype(dtype).reshape(shape if numbers.size > 1 else [1] * data.ty.ndim))

    if not is_quantizer(call):
        values = emit(relax.op.astype(data, "float32"))
        values = emit(
            relax.op.multiply(emit(relax.op.subtract(values, spread(zero, "float32"))), spread(scale, "float32"))
        )
        return relax.op.astype(values, out)
    bounds = np.iinfo(out)
    if call.op.name == BY_RECIPROCAL:
        steps = emit(relax.op.multiply(data, spread(1 / scale, given)))
    else:
        steps = emit(relax.op.divide(data, spread(scale, given)))
    steps = emit(relax.op.astype(steps, "float32"))
    steps = emit(relax.op.where(emit(relax.op.isnan(steps)), relax.const(np.float32(0)), emit(relax.op.round(steps))))
    steps = emit(relax.op.add(steps, spread(zero, "float32")))
    for bound, operator in ((bounds.min, relax.op.maximum), (bounds.max, relax.op.minimum)):
        steps = emit(operator(steps, relax.const(np.float32(bound))))
    return relax.op.astype(steps, out)
