"""Maximum pools that keep what is not a number, and give minus infinity of nothing but that.

TVM's (0.27) drop the former, and pad with the least finite number. Of a plan, channels last, they are calls of a C
function (`tvmconv/lowering/native/pools.c`), whose vectors are of channels whatever their number; else tensor expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from tvm import relax, te, tirx

from .extremes import TYPES, greatest
from .simplify import static_shape

_FUNCTION = "tvmconv_network_max_pool"
# Taps whose addresses a thread has on its stack.
MOST_TAPS = 1024
Axis = tuple[int, int, int, int, int, int]


def max_pool(planned: bool, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a maximum pool; TVM's of integers, and of shapes that are not fixed."""
    attrs, shape = call.attrs, static_shape(call.ty)
    fixed = shape is not None and static_shape(call.args[0].ty) is not None and 0 not in shape
    plain = str(attrs.layout).isalpha() and attrs.layout == attrs.out_layout
    if str(call.ty.dtype) not in TYPES or not fixed or not plain:
        return call.op.get_attr("FLegalize")(builder, call)
    first = str(attrs.layout).index("C") == 1
    if planned and (axes := axes_for_function(call)):
        return builder.call_te(by_function, call.args[0], shape, axes, _FUNCTION, primfunc_name_hint="max_pool")
    return builder.call_te(
        _pooled, call.args[0], shape, 2 if first else 1, *map(_numbers, (attrs.pool_size, attrs.strides)),
        _numbers(attrs.dilation), _numbers(attrs.padding), primfunc_name_hint="max_pool",
    )  # fmt: skip


def axes_for_function(call: relax.Call) -> list[Axis]:
    """Return of each axis its inputs, outputs, taps, stride, pad and dilation, if a function in C has the pool; else none."""
    attrs = call.attrs
    plain = str(attrs.layout).isalpha() and attrs.layout == attrs.out_layout and str(attrs.layout)[-1] == "C"
    if not plain or str(call.ty.dtype) != "float32" or not static_shape(call.ty) or not static_shape(call.args[0].ty):
        return []
    inputs, outputs = (static_shape(each.ty) or () for each in (call.args[0], call))
    sizes, strides, dilations, pads = map(_numbers, (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding))
    # Beside the channels, and the pads at the ends.
    axes = list(zip(inputs[1:], outputs[1:], sizes, strides, pads, dilations, strict=False))
    return axes if _all_meet(axes) and prod(axis[2] for axis in axes) <= MOST_TAPS else []


def _all_meet(axes: Sequence[Axis]) -> bool:
    """Whether each output meets an input, as the function needs it."""
    return all(
        any(0 <= output * stride - pad + tap * dilation < inputs for tap in range(taps))
        for inputs, outputs, taps, stride, pad, dilation in axes
        for output in range(outputs)
    )


def by_function(data: te.Tensor, shape: Sequence[int], axes: Sequence[Axis], function: str, *given: int) -> te.Tensor:
    """Return the pool by a function in C, whose first numbers are `given`."""
    numbers = [*[(1, 1, 1, 1, 0, 1)] * (3 - len(axes)), *axes]
    sizes = [_integer(number) for number in (shape[0], shape[-1], *(each for axis in numbers for each in axis))]

    def body(read: Any, written: Any) -> Any:
        arguments = (*map(_integer, given), read[0].data, written[0].data, *sizes)
        return tirx.Evaluate(tirx.call_extern("void", function, *arguments))

    return te.extern([shape], [data], body, dtype=str(data.dtype), name="pool")


def _pooled(
    data: te.Tensor,
    shape: Sequence[int],
    spatial: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> te.Tensor:
    """Return the greatest of each window; `spatial` is the first of the axes that windows lie along."""
    rank, taps = len(sizes), [te.reduce_axis((0, size), "k") for size in sizes]
    begins = pads[:rank]
    # Of windows that reach beyond the pads, too, as they do where the output's size is rounded up.
    ends = [
        max((y - 1) * stride + dilation * (size - 1) + 1 - int(x) - begin, 0)
        for y, x, size, stride, dilation, begin in zip(
            shape[spatial:], data.shape[spatial:], sizes, strides, dilations, begins, strict=False
        )
    ]
    if any(begins) or any(ends):
        data = _padded(data, spatial, begins, ends)

    def element(*at: Any) -> Any:
        index = list(at)
        for axis in range(rank):
            index[spatial + axis] = at[spatial + axis] * strides[axis] + taps[axis] * dilations[axis]
        return greatest(data(*index), axis=taps)

    return te.compute(shape, element, "max_pool")


def _padded(data: te.Tensor, spatial: int, begins: Sequence[int], ends: Sequence[int]) -> te.Tensor:
    extents = [int(size) for size in data.shape]
    whole = list(extents)
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True), spatial):
        whole[axis] += begin + end

    def element(*at: Any) -> Any:
        index, inside = list(at), []
        for axis, (begin, end) in enumerate(zip(begins, ends, strict=True), spatial):
            index[axis] = at[axis] - begin
            inside += [at[axis] >= begin] * bool(begin) + [index[axis] < extents[axis]] * bool(end)
        return tirx.if_then_else(tirx.all(*inside), data(*index), tirx.const(-inf, data.dtype))

    return te.compute(whole, element, "padded")


def _numbers(values: Any) -> list[int]:
    return [int(each) for each in values]


def _integer(value: int) -> Any:
    return tirx.const(value, "int64")
