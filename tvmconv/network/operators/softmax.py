"""Softmax along rows, and its logarithm, as tensor expressions: each row's maximum and sum in 16 parts, which are vectors.

TVM's reduces a row one number after the other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from tvm import relax, te, tirx

from ...lowering.common.elementary_arithmetic import elementary
from ..ir.constants import static_shape
from ..ir.free import dims_of, number_of
from ..schedule.reduce import LEAST_HALF, combine_halves
from ..schedule.rules import ROWS
from .elementwise import OPAQUE, with_half_in_f32

# Parts of a row's sum, and the elements of a vector: one of AVX-512, two of AVX2.
_LANES = 16


def softmax(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a softmax of f32; TVM's for other types."""
    axis, shape = int(call.attrs.axis) % call.ty.ndim, dims_of(call.ty)
    if str(call.ty.dtype) != "float32":
        return call.op.get_attr("FLegalize")(builder, call)
    if shape is None or axis != len(shape) - 1 or not isinstance(shape[-1], int) or shape[-1] < _LANES:
        return builder.call_te(_across, call.args[0], axis, primfunc_name_hint="softmax")
    opaque = {ROWS: 1, "op_pattern": OPAQUE}
    return builder.call_te(_of_rows, call.args[0], primfunc_name_hint="softmax", primfunc_attrs=opaque)


def log_softmax(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return the logarithm of a softmax of f32 along long rows; else TVM's, which computes one number after the other."""
    axis, shape = int(call.attrs.axis) % call.ty.ndim, static_shape(call.ty)
    if str(call.ty.dtype) != "float32" or shape is None or axis != len(shape) - 1 or shape[-1] < _LANES:
        return call.op.get_attr("FLegalize")(builder, call)
    opaque = {ROWS: 1, "op_pattern": OPAQUE}
    return builder.call_te(_of_rows, call.args[0], True, primfunc_name_hint="log_softmax", primfunc_attrs=opaque)


def _of_rows(data: te.Tensor, logarithm: bool = False) -> te.Tensor:
    *rows, size = map(number_of, data.shape)
    vectors = -(-size // _LANES)

    def combined(value: te.Tensor, reduce: Callable[..., Any], by: Callable[..., Any], name: str) -> te.Tensor:
        step = te.reduce_axis((0, vectors), "k")
        parts = te.compute(
            (*rows, _LANES), lambda *at: reduce(value(*at[:-1], step * _LANES + at[-1]), axis=step), f"{name}_parts"
        )
        return join_parts(parts, by, name)

    def element(*at: Any) -> Any:
        # The exponentials of elements beyond the row are 0, even if all others are minus infinity.
        return tirx.if_then_else(at[-1] < size, data(*at), tirx.const(-inf, "float32"))

    whole = data if size % _LANES == 0 else te.compute((*rows, vectors * _LANES), element, "whole")
    greatest = combined(whole, te.max, tirx.max, "greatest")
    power = te.compute(whole.shape, lambda *at: elementary("exp", whole(*at) - greatest(*at[:-1])), "power")
    total = combined(power, te.sum, operator.add, "total")
    if logarithm:
        # Subtracted one after the other: x less the maximum is exact where it matters.
        lost = te.compute(rows, lambda *at: elementary("log", total(*at)), "lost")
        return te.compute(data.shape, lambda *at: data(*at) - greatest(*at[:-1]) - lost(*at[:-1]), "log_softmax")
    factor = te.compute(rows, lambda *at: 1.0 / total(*at), "factor")
    return te.compute(data.shape, lambda *at: power(*at) * factor(*at[:-1]), "softmax")


def _across(data: te.Tensor, axis: int) -> te.Tensor:
    """Return the softmax along short rows, or along an axis other than the last."""
    shape = [number_of(extent) for extent in data.shape]

    def along(value: Callable[..., Any], reduce: Callable[..., Any], name: str) -> te.Tensor:
        step = te.reduce_axis((0, shape[axis]), "k")

        def element(*at: Any) -> Any:
            return reduce(value(*at[:axis], step, *at[axis:]), axis=step)

        return te.compute(shape[:axis] + shape[axis + 1 :], element, name)

    def of(tensor: te.Tensor, at: Sequence[Any]) -> Any:
        return tensor(*at[:axis], *at[axis + 1 :])

    greatest = along(data, te.max, "greatest")
    power = te.compute(shape, lambda *at: elementary("exp", data(*at) - of(greatest, at)), "power")
    total = along(power, te.sum, "total")
    return te.compute(shape, lambda *at: power(*at) / of(total, at), "softmax")


def join_parts(
    parts: te.Tensor,
    combine: Callable[[Any, Any], Any],
    name: str,
    left: Callable[..., Any] | None = None,
    count: int = 0,
) -> te.Tensor:
    """Return the combination of each row's parts, by halves while these are vectors, and of `count` elements `left`."""
    *rows, lanes = map(number_of, parts.shape)
    done = 0
    while lanes > LEAST_HALF:
        lanes //= 2
        some = left if count - done >= lanes else None
        parts = _join_halves(parts, (*rows, lanes), combine, f"{name}_{lanes}", some, done)
        done += lanes if some else 0

    def whole(*at: Any) -> Any:
        rest = [left(*at, each) for each in range(done, count)] if left else []
        return combine_halves([*(parts(*at, each) for each in range(lanes)), *rest], combine)

    return te.compute(rows, whole, f"{name}_total")


def _join_halves(
    whole: te.Tensor,
    shape: Sequence[Any],
    combine: Callable[[Any, Any], Any],
    name: str,
    left: Callable[..., Any] | None,
    first: int,
) -> te.Tensor:
    def half(*at: Any) -> Any:
        both = combine(whole(*at), whole(*at[:-1], at[-1] + shape[-1]))
        return combine(both, left(*at[:-1], at[-1] + first)) if left else both

    return te.compute(shape, half, name)


OPERATORS = {f"relax.nn.{make.__name__}": with_half_in_f32(make) for make in (log_softmax, softmax)}
