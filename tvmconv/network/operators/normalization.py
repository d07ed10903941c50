"""Normalizations of layers, groups and instances, and by the root mean square, as tensor expressions.

TVM's (0.27) compute the variance as the mean square less the square of the mean, in f32: for numbers about 100 with a deviation
of 1 a normalization of instances was off by 20. They sum a row one number after the other, and a group once for each of its
channels. Here the mean is subtracted before squares are summed, and a row is summed in 16 parts, which are vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import add
from typing import Any

import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..ir.free import number_of
from ..ir.mutator import each_function, tidy
from ..operators.block_sums import BLOCK, MOST
from ..schedule.rules import ROWS
from ..schedule.stages import KEPT
from .elementwise import OPAQUE
from .free_sums import sum_in_turn
from .softmax import join_parts

# Parts of a row's sum; for rows of several axes, the first number that divides the last: 16 are two vectors of AVX2, or one of AVX-512.
_LANES = (16, 8, 4, 2, 1)
_HALF = "bfloat16"
Value = Callable[..., Any]


def layer_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a normalization of layers."""
    scaled, centered = bool(call.attrs.scale), bool(call.attrs.center)
    return _normalized_rows(builder, call, "layer_norm", True, (scaled, centered))


def rms_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a normalization by the root mean square."""
    return _normalized_rows(builder, call, "rms_norm", False, (True,))


def instance_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a normalization of instances, which is one of groups of one channel."""
    channels = int(call.ty.shape[int(call.attrs.channel_axis)])
    return _normalized_groups(builder, call, channels)


def group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a normalization of groups of channels."""
    return _normalized_groups(builder, call, int(call.attrs.num_groups))


def _normalized_rows(
    builder: relax.BlockBuilder, call: relax.Call, name: str, take_mean: bool, used: Sequence[bool]
) -> relax.Expr:
    """Return the normalization over axes; `used` says whether it has a scale and a shift for each of their elements."""
    rank = call.ty.ndim
    axes = sorted(int(axis) % rank for axis in call.attrs.axes)
    rows = axes == [rank - 1]
    taken = [vector for vector, use in zip(call.args[1:], used, strict=True) if use]

    def normalized(given_data: te.Tensor, *arrays: te.Tensor) -> te.Tensor:
        given, data = iter(arrays), given_data
        if rows and str(data.dtype) == _HALF:  # each row once
            data = te.compute(data.shape, lambda *at: given_data(*at).astype("float32"), "wide")
        scale, shift = (next(given) if use else None for use in (*used, False)[:2])
        count = _count(data.shape, axes)

        def deviation(*at: Any) -> Any:
            value = data(*at).astype("float32")
            return value - mean(*_without(at, axes)) if take_mean else value

        if take_mean:
            mean = _mean(lambda *at: data(*at).astype("float32"), data.shape, axes, count, "mean")
        square = _mean(lambda *at: deviation(*at) * deviation(*at), data.shape, axes, count, "square")
        factor = _inverse_root(square, float(call.attrs.epsilon), "factor")

        def element(*at: Any) -> Any:
            value = deviation(*at) * factor(*_without(at, axes))
            inner = [at[axis] for axis in axes]
            if scale is not None:
                value = value * scale(*inner).astype("float32")
            if shift is not None:
                value = value + shift(*inner).astype("float32")
            return value.astype(given_data.dtype)

        return te.compute(data.shape, element, "normalized")

    attrs = {"op_pattern": OPAQUE} | ({ROWS: 1} if rows else {})
    return builder.call_te(normalized, call.args[0], *taken, primfunc_name_hint=name, primfunc_attrs=attrs)


def narrow_groups(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose group normalizations of bf16 converted to f32 read the bf16.

    The normalization reads its data three times, so a converted copy would be read three times.
    """
    return tidy(each_function(tidy(mod), lambda new, _: _Reading(new), with_bindings=True))


@mutator
class _Reading(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a normalization of converted bf16 as functions of the bf16, one of two axes with a third; any other call unchanged."""
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") == "relax.nn.group_norm" and call.ty.ndim == 2:
            data = self.builder_.emit(relax.op.expand_dims(call.args[0], 2))
            whole = relax.op.nn.group_norm(
                data,
                *call.args[1:],
                call.attrs.num_groups,
                1,
                [2],
                call.attrs.epsilon,
                call.attrs.center,
                call.attrs.scale,
            )
            return relax.op.squeeze(self.builder_.emit(whole), [2])
        if getattr(call.op, "name", "") != "relax.nn.group_norm" or not isinstance(call.args[0], relax.Var):
            return call
        before = self.lookup_binding(call.args[0])
        if getattr(getattr(before, "op", None), "name", "") != "relax.astype" or str(before.args[0].ty.dtype) != _HALF:
            return call
        return _normalized_groups(self.builder_, call, int(call.attrs.num_groups), before.args[0])


def _normalized_groups(
    builder: relax.BlockBuilder, call: relax.Call, groups: int, given: relax.Expr | None = None
) -> relax.Expr:
    """Return the normalization of groups: a pass for the means, one for the factors, and one into which other operators may be fused.

    `given` is the data before a conversion, if any.
    """
    data, scale, shift = call.args
    data, dtype = data if given is None else given, str(call.ty.dtype)
    rank, channel = call.ty.ndim, int(call.attrs.channel_axis) % call.ty.ndim
    if channel == 0:  # a batch of one was moved behind
        return _moved_groups(builder, call, groups)
    spatial = [axis for axis in range(1, rank) if axis != channel]
    size = int(call.ty.shape[channel]) // groups

    def means(data: te.Tensor) -> te.Tensor:
        return _of_groups(lambda *at: data(*at).astype("float32"), data.shape, spatial, size, "mean")

    def factors(data: te.Tensor, mean: te.Tensor, scale: te.Tensor) -> te.Tensor:
        def square(*at: Any) -> Any:
            deviation = data(*at).astype("float32") - mean(at[0], at[channel])
            return deviation * deviation

        variance = _of_groups(square, data.shape, spatial, size, "variance")
        inverse = _inverse_root(variance, float(call.attrs.epsilon), "inverse")
        return te.compute(inverse.shape, lambda n, c: inverse(n, c) * scale(c).astype("float32"), "factor")

    def normalized(data: te.Tensor, mean: te.Tensor, factor: te.Tensor, shift: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            n, c = at[0], at[channel]
            value = (data(*at).astype("float32") - mean(n, c)) * factor(n, c) + shift(c).astype("float32")
            return value.astype(dtype)

        return te.compute(data.shape, element, "normalized", tag=topi.tag.BROADCAST)

    opaque = {"op_pattern": OPAQUE}
    mean = builder.emit(builder.call_te(means, data, primfunc_name_hint="norm_mean", primfunc_attrs=opaque))
    factor = builder.emit(
        builder.call_te(factors, data, mean, scale, primfunc_name_hint="norm_factor", primfunc_attrs=opaque)
    )
    return builder.call_te(normalized, data, mean, factor, shift, primfunc_name_hint="norm")


def _moved_groups(builder: relax.BlockBuilder, call: relax.Call, groups: int) -> relax.Expr:
    """Return the normalization of groups of data whose first axis is the channels', on data whose first axis is the batch's."""
    (batch,) = {*range(1, call.ty.ndim)} - {int(axis) % call.ty.ndim for axis in call.attrs.axes}
    rest = [axis for axis in range(1, call.ty.ndim) if axis != batch]
    order = [batch, 0, *rest]
    moved = builder.emit(builder.call_te(topi.transpose, call.args[0], order))
    numbers = (groups, 1, [*range(2, len(order))], call.attrs.epsilon, call.attrs.center, call.attrs.scale)
    whole = builder.normalize(relax.op.nn.group_norm(moved, *call.args[1:], *numbers))
    normalized = builder.emit(_normalized_groups(builder, whole, groups))
    return builder.call_te(topi.transpose, normalized, [order.index(axis) for axis in range(len(order))])


def _of_free_groups(data: te.Tensor, spatial: Sequence[int], size: int) -> te.Tensor:
    """Return the means of groups with free extents: by means of channels, summed in blocks."""
    means = sum_in_turn(data, spatial, keep=False, divide=True)
    channel = te.reduce_axis((0, size), "channel")

    def element(n: Any, c: Any) -> Any:
        return te.sum(means(n, c // size * size + channel) / tirx.const(size, "float32"), axis=channel)

    return means if size == 1 else te.compute(means.shape, element, "mean", attrs={KEPT: 1})


def _of_groups(value: Value, shape: Sequence[Any], spatial: Sequence[int], size: int, name: str) -> te.Tensor:
    """Return the mean of each group, repeated for each of its `size` channels."""
    if any(not isinstance(extent, int) for extent in map(number_of, shape)):
        return _of_free_groups(te.compute(shape, value, name), spatial, size)
    count = size * _count(shape, spatial)
    if size == 1:
        return _mean(value, shape, spatial, count, name)
    along = len(shape) - 1 in spatial
    parts = (_parts_of_rows if along else _across_rows)(value, shape, spatial, name)
    n, channels, *lanes = (int(extent) for extent in parts.shape)
    among = te.reduce_axis((0, size), "c")
    total = te.compute(
        (n, channels // size, *lanes),
        lambda n, g, *lane: te.sum(parts(n, g * size + among, *lane), axis=among),
        f"{name}_group",
    )
    if along:
        total = join_parts(total, add, name)
    by = tirx.const(1 / count, "float32")
    return te.compute((n, channels), lambda n, c: total(n, c // size) * by, name)


def _mean(value: Value, shape: Sequence[Any], axes: Sequence[int], count: int, name: str) -> te.Tensor:
    """Return the sum of `value`, a function of all indices, over axes, divided by `count`."""
    totals = _row_totals if len(shape) - 1 in axes else _across_rows
    total = totals(value, shape, axes, name)
    return te.compute(total.shape, lambda *at: total(*at) * tirx.const(1 / count, "float32"), name)


def _row_totals(value: Value, shape: Sequence[Any], axes: Sequence[int], name: str) -> te.Tensor:
    """Return sums over the last axis, and perhaps others: for rows alone in parts of whole vectors, combined with the rest of a row."""
    extent, lanes = int(shape[-1]), _LANES[0]
    if len(axes) > 1 or extent < lanes:
        return join_parts(_parts_of_rows(value, shape, axes, name), add, name)
    whole = extent // lanes * lanes
    parts = _parts_of_rows(value, (*shape[:-1], whole), axes, name)
    return join_parts(parts, add, name, lambda *at: value(*at[:-1], at[-1] + whole), extent - whole)


def _parts_of_rows(value: Value, shape: Sequence[Any], axes: Sequence[int], name: str) -> te.Tensor:
    """Return sums over the last axis, and perhaps others, each in a number of parts that divides a row."""
    lanes = next(each for each in _LANES if int(shape[-1]) % each == 0)
    vectors = (*shape[:-1], int(shape[-1]) // lanes, lanes)
    return _sum_axes(lambda *at: value(*at[:-2], at[-2] * lanes + at[-1]), vectors, axes, f"{name}_parts")


def _across_rows(value: Value, shape: Sequence[Any], axes: Sequence[int], name: str) -> te.Tensor:
    """Return sums over axes other than the last: first over all but the first of the axes, in parallel along it."""
    first, *inner = axes
    if inner:
        value, shape, axes = (
            _sum_axes(value, shape, inner, f"{name}_rows"),
            _without(shape, inner),
            [first],
        )
    return _sum_axes(value, shape, axes, f"{name}_total")


def _sum_axes(value: Value, shape: Sequence[Any], axes: Sequence[int], name: str) -> te.Tensor:
    """Return sums over axes: those of more than `MOST` numbers axis by axis, and along long axes in blocks."""
    *outer, last = axes
    extent = int(shape[last])
    if _count(shape, axes) > MOST and outer and extent <= MOST:
        return _sum_axes(_sum_axes(value, shape, [last], f"{name}_rows"), _without(shape, [last]), outer, name)
    if extent > MOST:
        blocks = -(-extent // BLOCK)

        def padded(*at: Any) -> Any:
            place = at[last] * BLOCK + at[last + 1]
            there = value(*at[:last], place, *at[last + 2 :])
            return there if extent % BLOCK == 0 else tirx.if_then_else(place < extent, there, tirx.const(0, "float32"))

        cut = (*shape[:last], blocks, BLOCK, *shape[last + 1 :])
        blocked = _sum_axes(padded, cut, [last + 1], f"{name}_blocks")
        return _sum_axes(blocked, blocked.shape, axes, name)
    over = {axis: te.reduce_axis((0, shape[axis]), f"r{axis}") for axis in axes}

    def element(*at: Any) -> Any:
        left = iter(at)
        indices = [over[axis] if axis in over else next(left) for axis in range(len(shape))]
        return te.sum(value(*indices), axis=list(over.values()))

    return te.compute(_without(shape, axes), element, name)


def _inverse_root(square: te.Tensor, epsilon: float, name: str) -> te.Tensor:
    one, least = tirx.const(1, "float32"), tirx.const(epsilon, "float32")
    return te.compute(square.shape, lambda *at: one / te.sqrt(square(*at) + least), name)


def _without(items: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    return [item for axis, item in enumerate(items) if axis not in axes]


def _count(shape: Sequence[Any], axes: Sequence[int]) -> int:
    return prod(int(shape[axis]) for axis in axes)


OPERATORS = {f"relax.nn.{make.__name__}": make for make in (group_norm, instance_norm, layer_norm, rms_norm)}
