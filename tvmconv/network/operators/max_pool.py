"""Maximum pools that keep NaN, and return minus infinity only for inputs of minus infinity.

TVM's (0.27) drop NaN, and pad with the least finite number. In f32 or bf16 they are calls of C functions: with channels last of
`tvmconv/lowering/native/operators/pools.c`, whose vectors are of channels, with channels first of `windows.c`. Others are tensor
expressions.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import inf, prod
from typing import Any

from tvm import relax, te, tirx, topi

from ...errors import SourceError
from ..ir.constants import static_shape
from ..ir.free import dims_of, is_free
from ..ir.operators import AVERAGE_POOLS, MAX_POOLS
from .elementwise import Legalize, in_f32
from .minmax import TYPES, greatest
from .separable import TYPES as FUNCTION_TYPES
from .separable import Axis, WindowKind, Windows, call_windows

FUNCTION = "tvmconv_network_max_pool"
HALF = "bfloat16"
# Types whose pools of free extents are computed in f32, which represents all of their numbers.
IN_F32 = ("float16", "int8", "uint8")
# The most taps, whose addresses a thread keeps on its stack.
MOST_TAPS = 1024


def max_pool(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a maximum pool; TVM's for integers of fixed extents."""
    attrs, shape, channels = call.attrs, static_shape(call.ty), channels_of(call)
    if is_free(call.ty) or is_free(call.args[0].ty):
        if str(call.ty.dtype) in IN_F32:
            return in_f32(max_pool, builder, call)
        if channels_first(call):
            return in_channels_last(max_pool, builder, call)
        return by_function(builder, call, free_axes(call), FUNCTION, "max_pool")
    if axes := axes_for_function(call):
        return by_function(builder, call, axes, FUNCTION, "max_pool")
    if channels == 1 and str(call.ty.dtype) in FUNCTION_TYPES:
        windows = list(map(Windows.of_pool, axes_of(call, 2)))
        pooled = call_windows(builder, call.args[0], shape or (), windows, WindowKind.GREATEST, "max_pool")
        if pooled is not None:
            return pooled
    if str(call.ty.dtype) == HALF:
        return in_f32(max_pool, builder, call)
    if str(call.ty.dtype) not in TYPES or channels is None:
        return call.op.get_attr("FLegalize")(builder, call)
    return builder.call_te(
        _pool,
        call.args[0],
        shape,
        2 if channels == 1 else 1,
        *map(_numbers, (attrs.pool_size, attrs.strides)),
        _numbers(attrs.dilation),
        _numbers(attrs.padding),
        primfunc_name_hint="max_pool",
    )


def channels_first(call: relax.Call) -> bool:
    """Return whether a pool's channels come before its spatial axes."""
    return str(call.attrs.layout)[1:2] == "C"


def in_channels_last(legalize: Legalize, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a pool, channels first, as one with channels last, between transpositions."""
    attrs, rank = call.attrs, call.ty.ndim - 2
    layout = f"N{str(attrs.layout)[2:]}C"
    data = builder.emit(builder.call_te(topi.transpose, call.args[0], [0, *range(2, rank + 2), 1]))
    made = (AVERAGE_POOLS if ".avg_" in call.op.name else MAX_POOLS)[rank](
        data,
        attrs.pool_size,
        attrs.strides,
        attrs.padding,
        attrs.dilation,
        attrs.ceil_mode,
        attrs.count_include_pad,
        layout,
        layout,
    )
    pooled = builder.emit(legalize(builder, builder.normalize(made)))
    return builder.call_te(topi.transpose, pooled, [0, rank + 1, *range(1, rank + 1)])


def channels_of(call: relax.Call) -> int | None:
    """Return the axis of channels of a pool; None if its shapes are not fixed, its result is empty, or its layout is blocked."""
    attrs, shape = call.attrs, static_shape(call.ty)
    plain = str(attrs.layout).isalpha() and attrs.layout == attrs.out_layout
    fixed = static_shape(call.args[0].ty) and shape and 0 not in shape
    return str(attrs.layout).index("C") if plain and fixed else None


def axes_for_function(call: relax.Call) -> list[Axis]:
    """Return the spatial axes of a pool that the C function computes; else none."""
    if channels_of(call) != call.ty.ndim - 1 or str(call.ty.dtype) not in FUNCTION_TYPES:
        return []
    axes = axes_of(call, 1)
    return axes if all_meet(axes) and prod(axis[2] for axis in axes) <= MOST_TAPS else []


def axes_of(call: relax.Call, first: int) -> list[Axis]:
    """Return the spatial axes of a pool, which begin at the axis `first` of its data."""
    attrs, shapes = call.attrs, [static_shape(each.ty) or () for each in (call.args[0], call)]
    inputs, outputs = (shape[first : first + len(attrs.pool_size)] for shape in shapes)
    sizes, strides, dilations, pads = map(_numbers, (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding))
    return list(zip(inputs, outputs, sizes, strides, pads[: len(sizes)], dilations, strict=True))


def all_meet(axes: Sequence[Axis]) -> bool:
    """Return whether each window has a tap on an input, which the functions require."""
    return all(
        any(0 <= output * stride - pad + tap * dilation < inputs for tap in range(taps))
        for inputs, outputs, taps, stride, pad, dilation in axes
        for output in range(outputs)
    )


def free_axes(call: relax.Call) -> list[Axis]:
    """Return the spatial axes of a pool of free extents, channels last.

    Raises
    ------
    SourceError
        If the function does not support it, or a window may have no tap on an input.
    """
    attrs, given, made = call.attrs, dims_of(call.args[0].ty), dims_of(call.ty)
    sizes, strides, dilations, pads = map(_numbers, (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding))
    spans = [dilation * (size - 1) + 1 for size, dilation in zip(sizes, dilations, strict=True)]
    lacks = [
        (
            str(attrs.layout)[-1] != "C" or str(call.ty.dtype) not in FUNCTION_TYPES,
            "is not of floating-point numbers, channels last",
        ),
        (prod(sizes) > MOST_TAPS, f"takes more than {MOST_TAPS} elements"),
        (set(dilations) != {1} and any(pads), "is dilated and padded"),
        (
            bool(attrs.ceil_mode) and may_begin_beyond(spans, strides, pads[len(sizes) :]),
            "rounds its size up, and may have windows that begin behind the data",
        ),
        (max(map(operator.sub, pads, sizes * 2)) >= 0, "has pads as large as its windows"),
    ]
    for lack, what in lacks:
        if lack:
            raise SourceError(f"a pool of free extents {what}; give its input's extents as numbers")
    rank = len(sizes)
    return list(
        zip(
            (given or ())[1 : 1 + rank], (made or ())[1 : 1 + rank], sizes, strides, pads[:rank], dilations, strict=True
        )
    )


def may_begin_beyond(spans: Sequence[int], strides: Sequence[int], ends: Sequence[int]) -> bool:
    """Return whether, if the number of outputs is rounded up, the last window may begin behind the data; such a window is dropped."""
    return any(end + stride > span for span, stride, end in zip(spans, strides, ends, strict=True))


def by_function(
    builder: relax.BlockBuilder, call: relax.Call, axes: Sequence[Axis], function: str, name: str, *given: int
) -> relax.Expr:
    """Return the pool by a C function, channels last, whose first arguments are `given`."""
    data, shape = call.args[0], dims_of(call.ty) or ()
    numbers = [*[(1, 1, 1, 1, 0, 1)] * (3 - len(axes)), *axes]
    sizes = [_integer(number) for number in (shape[0], shape[-1], *(each for axis in numbers for each in axis))]
    first = [*map(_integer, given), _integer(FUNCTION_TYPES.index(str(data.ty.dtype)))]

    def body(read: Any, written: Any) -> Any:
        return tirx.Evaluate(tirx.call_extern("void", function, *first, read[0].data, written[0].data, *sizes))

    def called(data: te.Tensor) -> te.Tensor:
        return te.extern([shape], [data], body, dtype=str(data.dtype), name="pool")

    return builder.call_te(called, data, primfunc_name_hint=name)


def _pool(
    data: te.Tensor,
    shape: Sequence[int],
    spatial: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> te.Tensor:
    """Return the greatest element of each window; `spatial` is the first spatial axis."""
    rank, taps = len(sizes), [te.reduce_axis((0, size), "k") for size in sizes]
    begins = list(pads[:rank])
    # Windows reach beyond the pads where the output's size is rounded up.
    ends = [
        max((y - 1) * stride + dilation * (size - 1) + 1 - int(x) - begin, 0)
        for y, x, size, stride, dilation, begin in zip(
            shape[spatial:], data.shape[spatial:], sizes, strides, dilations, begins, strict=False
        )
    ]
    if any(begins) or any(ends):
        before, after = ([0] * spatial + sizes + [0] * (len(shape) - spatial - rank) for sizes in (begins, ends))
        data = topi.nn.pad(data, before, after, tirx.const(-inf, data.dtype))

    def element(*at: Any) -> Any:
        index = list(at)
        for axis in range(rank):
            index[spatial + axis] = at[spatial + axis] * strides[axis] + taps[axis] * dilations[axis]
        return greatest(data(*index), axis=taps)

    return te.compute(shape, element, "max_pool")


def _numbers(values: Any) -> list[int]:
    return [int(each) for each in values]


def _integer(value: Any) -> Any:
    return tirx.const(value, "int64") if isinstance(value, int) else value


OPERATORS = {f"relax.nn.max_pool{rank}d": max_pool for rank in (1, 2, 3)}
