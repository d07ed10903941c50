"""Elementary functions by arithmetic on vectors (`tvmconv/lowering/common/elementary_arithmetic.py`), and powers by fixed exponents.

TVM calls the C library's, a number at a time. It does not compile hyperbolic sines, and near 0 its inverse hyperbolic tangent is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ...lowering.common.elementary_arithmetic import elementary
from ..ir.constants import constant
from ..ir.free import dims_of
from ..ir.graph import scalar
from .elementwise import FLOATS, Legalize, broadcast, by_element

# Powers whose exponents are multiples of 1/4 up to this one are roots and at most three products.
_MOST_POWER = 4
# Binary digits of the exponents of integers: greater powers overflow for all bases but 0, 1 and -1.
_DIGITS = 7
# Least x from which log(1 + e**x) differs from x by less than half of its last bit.
_MOST_CURVED = 17.0
_OF_ONE = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "sin", "sinh", "tan")  # fmt: skip


def quarters(exponent: float | None) -> int | None:
    """Return an exponent in quarters; None if `power` does not compute it."""
    if exponent is None or not abs(exponent) <= _MOST_POWER or exponent * 4 != int(exponent * 4):
        return None
    return int(exponent * 4)


def power(x: Any, quarters: int) -> Any:
    """Return x to the power of `quarters` / 4."""
    whole, part = divmod(abs(quarters), 4)
    # Like pow, and unlike square roots, the power of minus infinity is that of infinity, and of -0 that of 0.
    root = tirx.Select(x > _f32(-inf), te.sqrt(x), x * x)
    factors = [x * x] * (whole // 2) + [x] * (whole % 2) + [root] * (part // 2) + [te.sqrt(root)] * (part % 2)
    total = factors[0] if factors else _f32(1)
    for each in factors[1:]:
        total = total * each
    total = te.abs(total) if part else total
    return total if quarters >= 0 else _f32(1) / total


def _f32(value: float) -> Any:
    return tirx.const(float(np.float32(value)), "float32")


def _of_two(name: str) -> Legalize:
    """Return the legalization of a function of two broadcast tensors; TVM's for other types and unknown shapes."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shapes = [dims_of(each.ty) for each in (*call.args, call)]
        if str(call.ty.dtype) not in FLOATS or any(each is None for each in shapes):
            return call.op.get_attr("FLegalize")(builder, call)
        return builder.call_te(computed, *call.args, shapes[-1], primfunc_name_hint=name)

    def computed(left: te.Tensor, right: te.Tensor, shape: Sequence[int]) -> te.Tensor:
        def element(*at: Any) -> Any:
            given = (broadcast(each, at).astype("float32") for each in (left, right))
            return elementary(name, *given).astype(left.dtype)

        return te.compute(shape, element, name, tag=topi.tag.BROADCAST)

    return legalize


def _whole_power(x: Any, exponent: Any) -> Any:
    """Return a power of integers by repeated squares, which wrap; for negative exponents, the quotient rounded towards 0."""
    zero, one, last = (tirx.const(each, x.ty.dtype) for each in (0, 1, 2**_DIGITS - 2))
    by = tirx.min(exponent, last + (exponent & one))
    total, square = one, x
    for digit in range(_DIGITS):
        total = tirx.Select((by >> tirx.const(digit, x.ty.dtype)) & one > zero, total * square, total)
        square = square * square
    if str(x.ty.dtype).startswith("uint"):
        return total
    # Not by a square, which wraps to 0 for powers of 2.
    is_unit = tirx.any(x.equal(one), x.equal(-one))
    below = tirx.Select(is_unit, tirx.Select(exponent & one > zero, x, one), zero)
    return tirx.Select(exponent < zero, below, total)


def _power(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    dtype, known = str(call.ty.dtype), all(dims_of(each.ty) is not None for each in (*call.args, call))
    if dtype.startswith(("int", "uint")) and known:
        return builder.call_te(_powers, *call.args, dims_of(call.ty), primfunc_name_hint="power")
    number = quarters(scalar(constant(call.args[1])))
    shape = getattr(call.args[0].ty, "shape", None)
    if number is None:
        return _of_two("pow")(builder, call)
    # LLVM turns a pow by 2 into a product, which it fuses with additions.
    if number == 8 or shape is None or len(shape) != call.ty.ndim:
        return call.op.get_attr("FLegalize")(builder, call)
    return by_element(lambda x: power(x, number), "power")(builder, call)


def _powers(left: te.Tensor, right: te.Tensor, shape: Sequence[int]) -> te.Tensor:
    def element(*at: Any) -> Any:
        return _whole_power(broadcast(left, at), broadcast(right, at))

    return te.compute(shape, element, "power", tag=topi.tag.BROADCAST)


def _softplus(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    beta, threshold = float(call.attrs.beta), float(call.attrs.threshold)

    def computed(x: Any) -> Any:
        scaled = x if beta == 1 else x * _f32(beta)
        answer = elementary("softplus", scaled)
        answer = answer if beta == 1 else answer / _f32(beta)
        # Beyond `_MOST_CURVED` the result is x, rounded.
        return answer if threshold > _MOST_CURVED else tirx.Select(scaled > _f32(threshold), x, answer)

    return by_element(computed, "softplus")(builder, call)


def _of_name(name: str) -> Legalize:
    return by_element(lambda x: elementary(name, x), name)


def _round(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return numbers rounded, halves to even; TVM's rounds them away from 0."""
    if str(call.ty.dtype) != "float64":
        return _of_name("round")(builder, call)

    def computed(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *at: tirx.nearbyint(data(*at)), "round", tag=topi.tag.ELEMWISE)

    return builder.call_te(computed, call.args[0], primfunc_name_hint="round")


# Functions by the operators' names.
OPERATORS = {f"relax.{name}": _of_name(name) for name in _OF_ONE} | {
    "relax.nn.softplus": _softplus,
    "relax.atan2": _of_two("atan2"),
    "relax.power": _power,
    "relax.round": _round,
}
