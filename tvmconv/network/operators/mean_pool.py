"""Average pools as calls of C functions (`tvmconv/lowering/native/operators/pools.c` for channels last, `windows.c` for channels first).

TVM's (0.27) tests of each tap of each element whether it is inside the data.
"""

from __future__ import annotations

from math import prod

from tvm import relax

from ...errors import SourceError
from ..ir.constants import static_shape
from ..ir.free import is_free
from .elementwise import in_f32, with_half_in_f32
from .max_pool import (
    HALF,
    all_meet,
    axes_for_function,
    axes_of,
    by_function,
    channels_first,
    channels_of,
    free_axes,
    in_channels_last,
)
from .separable import TYPES, Axis, WindowKind, Windows, call_windows

FUNCTION = "tvmconv_network_mean_pool"


def mean_pool(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return an average pool of f32 or bf16; else TVM's."""
    if (is_free(call.ty) or is_free(call.args[0].ty)) and channels_first(call):
        return in_channels_last(mean_pool, builder, call)
    for by_function_of in (_channels_last, _channels_first):
        pooled = by_function_of(builder, call)
        if pooled is not None:
            return pooled
    legalize = call.op.get_attr("FLegalize")
    return in_f32(legalize, builder, call) if str(call.ty.dtype) == HALF else legalize(builder, call)


def _channels_last(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Return an average pool, channels last; None if the function does not support it."""
    free = is_free(call.ty) or is_free(call.args[0].ty)
    axes, divisor = free_axes(call) if free else axes_for_function(call), 0
    if not axes:
        return None
    if free:
        counts_pads = call.attrs.count_include_pad and any(map(int, call.attrs.padding))
        if counts_pads and call.attrs.ceil_mode:
            raise SourceError(
                "an average pool of free extents counts pads, and rounds its size up; give its input's extents as numbers"
            )
        # Without pads, windows that reach behind the data average their taps on inputs.
        divisor = prod(axis[2] for axis in axes) if counts_pads else 0
    elif call.attrs.count_include_pad:
        ends = [int(pad) for pad in call.attrs.padding][len(axes) :]
        if any(map(_goes_beyond, axes, ends)):  # whether taps beyond the pads count, TVM decides
            return None
        divisor = prod(axis[2] for axis in axes)
    return by_function(builder, call, axes, FUNCTION, "mean_pool", divisor)


def _channels_first(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Return an average pool, channels first; None if the function does not support it, or its shapes are not fixed."""
    attrs, shape = call.attrs, static_shape(call.ty) or ()
    if channels_of(call) != 1 or str(call.ty.dtype) not in TYPES:
        return None
    axes = axes_of(call, 2)
    if not all_meet(axes):
        return None
    ends = [int(pad) for pad in attrs.padding][len(axes) :]
    windows = [
        Windows.of_pool(axis, end if attrs.count_include_pad else None) for axis, end in zip(axes, ends, strict=True)
    ]
    return call_windows(builder, call.args[0], shape, windows, WindowKind.MEAN, "mean_pool")


def _goes_beyond(axis: Axis, end: int) -> bool:
    """Return whether the last window of an axis, whose extent is rounded up, exceeds the pad at its end."""
    inputs, outputs, taps, stride, pad, dilation = axis
    return (outputs - 1) * stride - pad + (taps - 1) * dilation >= inputs + end


OPERATORS = {f"relax.nn.avg_pool{rank}d": with_half_in_f32(mean_pool) for rank in (1, 2, 3)}
