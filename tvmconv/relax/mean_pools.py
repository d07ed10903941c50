"""Average pools of a plan, channels last, as calls of a C function (`tvmconv/lowering/native/pools.c`).

TVM's (0.27) asks of each tap of each element whether it is inside: of 3x3 over 224 channels of 14x14 90 us, where this takes 10
(two threads of a Zen 4).
"""

from __future__ import annotations

from math import prod

from tvm import relax

from .max_pools import Axis, axes_for_function, by_function
from .simplify import static_shape

_FUNCTION = "tvmconv_network_mean_pool"


def mean_pool(planned: bool, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return an average pool of a plan in f32; else TVM's."""
    axes = axes_for_function(call) if planned else []
    if not axes:
        return call.op.get_attr("FLegalize")(builder, call)
    divisor = 0
    if call.attrs.count_include_pad:
        ends = [int(pad) for pad in call.attrs.padding][len(axes) :]
        if any(map(_goes_beyond, axes, ends)):  # of which it is asked what counts: TVM says
            return call.op.get_attr("FLegalize")(builder, call)
        divisor = prod(axis[2] for axis in axes)
    shape = static_shape(call.ty)
    return builder.call_te(by_function, call.args[0], shape, axes, _FUNCTION, divisor, primfunc_name_hint="mean_pool")


def _goes_beyond(axis: Axis, end: int) -> bool:
    """Whether the last window of an axis, whose outputs are rounded up, goes beyond the pad at its end."""
    inputs, outputs, taps, stride, pad, dilation = axis
    return (outputs - 1) * stride - pad + (taps - 1) * dilation >= inputs + end
