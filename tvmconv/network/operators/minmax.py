"""Maxima, minima and signs as tensor expressions that keep NaN, as ONNX, NumPy and PyTorch do.

TVM's (0.27) compare in an order that drops NaN, and start from the least finite number: the maximum of minus infinities was -3.4e38,
and its index -1. TVM's simplifier takes ``x != x`` for false, so NaN is tested by `isnan`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any

from tvm import relax, te, tirx, topi

from ..ir.constants import constant
from ..ir.free import dims_of, has_elements, same_shape
from ..ir.graph import scalar
from ..ir.ordering import greater, less
from .elementwise import Legalize, broadcast, by_pair

TYPES = ("float32", "float16", "float64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
# Greater than any index.
_NO_INDEX = 2**31 - 1


def _start(dtype: str, end: float) -> Any:
    """Return the least or greatest value of a type."""
    if dtype in TYPES:
        return tirx.const(end, dtype)
    return tirx.min_value(dtype) if end < 0 else tirx.max_value(dtype)


greatest = te.comm_reducer(greater, lambda dtype: _start(dtype, -inf), "greatest")
_least = te.comm_reducer(less, lambda dtype: _start(dtype, inf), "least")


def _of_floats(make: Callable[[relax.BlockBuilder, relax.Call], relax.Expr], types: Sequence[str] = TYPES) -> Legalize:
    """Return the legalization of an operator; for other types, and for unknown shapes, it is TVM's."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if str(call.args[0].ty.dtype) not in types or not all(has_elements(each.ty) for each in (*call.args, call)):
            return call.op.get_attr("FLegalize")(builder, call)
        return make(builder, call)

    return legalize


def _alone(builder: relax.BlockBuilder, data: Any, function: Callable[[Any], Any], name: str) -> relax.Expr:
    """Return an elementwise function of a tensor."""

    def computed(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *at: function(data(*at)), name, tag=topi.tag.ELEMWISE)

    return builder.call_te(computed, data, primfunc_name_hint=name)


def _elementwise(function: Callable[[Any], Any], name: str, types: Sequence[str] = TYPES) -> Legalize:
    return _of_floats(lambda builder, call: _alone(builder, call.args[0], function, name), types)


def _is_finite(x: Any) -> Any:
    """Return whether a number is neither infinite nor NaN; TVM's own tests ``x == x``, which its simplifier takes for true."""
    return tirx.all(x > tirx.const(-inf, x.ty.dtype), x < tirx.const(inf, x.ty.dtype))


def _times_zero(x: Any) -> Any:
    """Return 0 for a finite number, else NaN; TVM's simplifier takes ``x * 0`` for 0."""
    return tirx.Select(_is_finite(x), tirx.const(0, x.ty.dtype), tirx.const(nan, x.ty.dtype))


def _leaky(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a leaky ReLU; TVM's unless the slope is 0."""
    if call.attrs.alpha:
        return call.op.get_attr("FLegalize")(builder, call)

    def element(x: Any) -> Any:
        return tirx.Select(x > tirx.const(0, x.ty.dtype), x, _times_zero(x))

    return _alone(builder, call.args[0], element, "leaky_relu")


def _product(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a product; TVM's unless a factor is a constant of zeros."""
    for data, factor in (call.args, call.args[::-1]):
        array, ours = constant(factor), str(data.ty.dtype) in TYPES and same_shape(data.ty, call.ty)
        if ours and has_elements(call.ty) and array is not None and array.size and not array.any():
            return _alone(builder, data, _times_zero, "times_zero")
    return call.op.get_attr("FLegalize")(builder, call)


def _relu(x: Any) -> Any:
    zero = tirx.const(0, x.ty.dtype)
    return tirx.Select(x < zero, zero, x)


def _sign(x: Any) -> Any:
    zero, one = (tirx.const(each, x.ty.dtype) for each in (0, 1))
    return tirx.Select(x > zero, one, x if str(x.ty.dtype) in _UNSIGNED else tirx.Select(x < zero, -one, x))


def negative(x: Any) -> Any:
    """Return the negative of an integer, modulo its type; TVM would multiply by -1, which unsigned types lack."""
    return tirx.bitwise_not(x) + tirx.const(1, x.ty.dtype)


def _of_two(choose: Callable[[Any, Any], Any], name: str) -> Legalize:
    def make(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape, (data, bound) = dims_of(call.ty) or (), call.args
        number = scalar(constant(bound))
        if number is not None and number == number and same_shape(data.ty, call.ty):
            return builder.call_te(of_number, data, number, primfunc_name_hint=name)
        return builder.call_te(of_tensors, *call.args, shape, primfunc_name_hint=name)

    def of_number(data: te.Tensor, number: float) -> te.Tensor:
        """Compare once, with the operands ordered so that NaN gives false."""

        def element(*at: Any) -> Any:
            x, bound = data(*at), tirx.const(number, data.dtype)
            return tirx.Select(x < bound if choose is greater else x > bound, bound, x)

        return te.compute(data.shape, element, name, tag=topi.tag.ELEMWISE)

    def of_tensors(left: te.Tensor, right: te.Tensor, shape: Sequence[int]) -> te.Tensor:
        def element(*at: Any) -> Any:
            return choose(broadcast(left, at), broadcast(right, at))

        return te.compute(shape, element, name, tag=topi.tag.BROADCAST)

    return _of_floats(make)


def _along(
    axes: Sequence[int] | None, shape: Sequence[int], keepdims: bool, combine: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a reduction along axes: `combine` takes the elements' indices, and the reduced axes."""
    rank = len(shape)
    along = sorted({int(axis) % rank for axis in (range(rank) if axes is None else axes)})
    steps = {axis: te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in along}

    def element(*at: Any) -> Any:
        left = [each for axis, each in enumerate(at) if axis not in along] if keepdims else list(at)
        return combine([steps[axis] if axis in steps else left.pop(0) for axis in range(rank)], list(steps.values()))

    return element


def _reduce(reducer: Callable[..., Any], name: str) -> Legalize:
    def make(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape = dims_of(call.ty) or ()
        if call.attrs.axis is not None and len(call.attrs.axis) == 0:
            return call.args[0]
        return builder.call_te(
            computed, call.args[0], call.attrs.axis, bool(call.attrs.keepdims), shape, primfunc_name_hint=name
        )

    def computed(data: te.Tensor, axes: Any, keepdims: bool, shape: Sequence[int]) -> te.Tensor:
        element = _along(axes, data.shape, keepdims, lambda at, steps: reducer(data(*at), axis=steps))
        return te.compute(shape, element, name, tag=topi.tag.COMM_REDUCE)

    return _of_floats(make)


def _index(reducer: Callable[..., Any], name: str) -> Legalize:
    def make(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axis, shape = call.attrs.axis, dims_of(call.ty) or ()
        return builder.call_te(
            computed, call.args[0], axis, bool(call.attrs.keepdims), shape, str(call.ty.dtype), primfunc_name_hint=name
        )

    def computed(data: te.Tensor, axis: Any, keepdims: bool, shape: Sequence[int], dtype: str) -> te.Tensor:
        """Find the best number of each row, then its first place, or the first of NaN."""
        axes = None if axis is None else [axis]
        best = te.compute(
            shape, _along(axes, data.shape, keepdims, lambda at, steps: reducer(data(*at), axis=steps)), "best"
        )

        def element(*row: Any) -> Any:
            def first(at: Sequence[Any], steps: Sequence[Any]) -> Any:
                place: Any = 0
                for step in steps:  # in the order of the elements
                    place = place * step.dom.extent + step.var
                x, wanted = data(*at), best(*row)
                found = tirx.any(x.equal(wanted), tirx.all(tirx.isnan(x), tirx.isnan(wanted)))
                return te.min(tirx.Select(found, tirx.Cast(dtype, place), tirx.const(_NO_INDEX, dtype)), axis=steps)

            return _along(axes, data.shape, keepdims, first)(*row)

        return te.compute(shape, element, name, tag=topi.tag.COMM_REDUCE)

    # TVM's own has two results at a time, whose buffers belong to no function after a fusion.
    return _of_floats(make, (*TYPES, *_WHOLE))


def _unequal(x: Any, y: Any) -> Any:
    """Return whether numbers differ, as NaN does from all; LLVM's comparison, as TVM requests it, is false for NaN."""
    return tirx.any(tirx.isnan(x), tirx.isnan(y), x < y, x > y)


def _of_numbers(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a comparison that is false for NaN; in conditions, TVM's simplifier takes ``x == x`` and ``x >= x`` for true."""
    return lambda x, y: tirx.all(tirx.Not(tirx.isnan(x)), compare(x, y))


def _is_true(x: Any) -> Any:
    """Return whether a number is not 0; LLVM's comparison, as TVM requests it, is false for NaN."""
    wide = x.astype("float32") if str(x.ty.dtype) == "bfloat16" else x
    zero = tirx.const(0, wide.ty.dtype)
    return tirx.any(tirx.isnan(wide), wide < zero, wide > zero)


def _is_false(x: Any) -> Any:
    """Return the opposite of a truth; TVM's simplifier takes ``not x < y`` for ``x >= y``, which is false for NaN, too."""
    return x.astype("uint8").equal(tirx.const(0, "uint8"))


_to_truth = _elementwise(_is_true, "astype", (*TYPES, "bfloat16"))


def _convert(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a conversion; TVM's unless it is of numbers to bool."""
    is_truth = str(call.ty.dtype) == "bool"
    return _to_truth(builder, call) if is_truth else call.op.get_attr("FLegalize")(builder, call)


# Functions by the operators' names.
OPERATORS = {
    "relax.argmax": _index(greatest, "argmax"),
    "relax.argmin": _index(_least, "argmin"),
    "relax.astype": _convert,
    "relax.equal": by_pair(_of_numbers(lambda x, y: x.equal(y)), "equal"),
    "relax.greater_equal": by_pair(_of_numbers(operator.ge), "greater_equal"),
    "relax.isfinite": _elementwise(_is_finite, "isfinite"),
    "relax.less_equal": by_pair(_of_numbers(operator.le), "less_equal"),
    "relax.logical_not": _elementwise(_is_false, "logical_not", ("bool",)),
    "relax.max": _reduce(greatest, "max"),
    "relax.maximum": _of_two(greater, "maximum"),
    "relax.min": _reduce(_least, "min"),
    "relax.minimum": _of_two(less, "minimum"),
    "relax.multiply": _product,
    "relax.not_equal": by_pair(_unequal, "not_equal"),
    "relax.negative": _elementwise(negative, "negative", _UNSIGNED),
    "relax.nn.leakyrelu": _of_floats(_leaky),
    "relax.nn.relu": _elementwise(_relu, "relu"),
    "relax.sign": _elementwise(_sign, "sign", (*TYPES, *_UNSIGNED)),
}
