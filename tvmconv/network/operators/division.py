"""Quotients and remainders as tensor expressions: floors exact like PyTorch's, NumPy's and Python's, integers without a trap.

TVM's (0.27) floors round the quotient first: of 2.9999998 by 3 the quotient is 1 and -2e-7 remains, 1 by 0.1 is 10, and of 2^31 by 3
remains 64. Its divisions of integers by 0, and of the least one by -1, end the process (SIGFPE); as NumPy's, these are 0 and wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import frexp
from typing import Any

from tvm import relax, te, tirx, topi

from ...lowering.common.elementary_arithmetic import elementary
from ..ir.constants import constant
from ..ir.free import dims_of
from .elementwise import Legalize, broadcast, by_pair
from .minmax import negative


def _remain(x: Any, y: Any) -> Any:
    """Return the remainder of a division, with the divisor's sign."""
    rest = _truncated_rest(x, y)
    return tirx.Select(_is_of_other_sign(rest, y), rest + y, rest)


def _divide(x: Any, y: Any) -> Any:
    """Return a quotient rounded down."""
    zero, one, half = (tirx.const(each, x.ty.dtype) for each in (0, 1, 0.5))
    rest = _truncated_rest(x, y)
    quotient = (x - rest) / y  # nearly whole
    quotient = tirx.Select(_is_of_other_sign(rest, y), quotient - one, quotient)
    below = tirx.floor(quotient)
    return tirx.Select(y.equal(zero), x / y, tirx.Select(quotient - below > half, below + one, below))


def _truncated_rest(x: Any, y: Any) -> Any:
    """Return the remainder of a division, with the dividend's sign; by vectors where the quotient is exact."""
    if isinstance(y, tirx.FloatImm) and y.value >= 1 and frexp(y.value)[0] == 0.5:  # a power of two
        return x - tirx.trunc(x / y) * y
    if str(x.ty.dtype) == "float32":
        return elementary("fmod", x, y)
    return tirx.truncmod(x, y)


def _is_of_other_sign(rest: Any, y: Any) -> Any:
    zero = tirx.const(0, y.ty.dtype)
    return tirx.any(tirx.all(y < zero, rest > zero), tirx.all(y > zero, rest < zero))


def _of_integers(
    function: Callable[[Any, Any], Any], by_minus_one: Callable[[Any], Any], others: Legalize | None = None
) -> Legalize:
    """Return the legalization of a division of integers; for other types and harmless constant divisors it is `others`, or TVM's."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape, divisor = dims_of(call.ty), constant(call.args[1])
        is_safe = divisor is not None and divisor.all() and not (divisor.astype(int) == -1).any()
        if not str(call.ty.dtype).startswith(("int", "uint")) or shape is None or is_safe:
            return (others or call.op.get_attr("FLegalize"))(builder, call)
        return builder.call_te(computed, *call.args, shape, primfunc_name_hint="division")

    def computed(left: te.Tensor, right: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
        def element(*at: Any) -> Any:
            x, y = broadcast(left, at), broadcast(right, at)
            zero, one = (tirx.const(each, x.ty.dtype) for each in (0, 1))
            is_zero = y.equal(zero)
            if str(x.ty.dtype).startswith("uint"):
                return tirx.Select(is_zero, zero, function(x, tirx.Select(is_zero, one, y)))
            is_minus_one = y.equal(-one)
            found = function(x, tirx.Select(tirx.any(is_zero, is_minus_one), one, y))
            return tirx.Select(is_zero, zero, tirx.Select(is_minus_one, by_minus_one(x), found))

        return te.compute(shape, element, "division", tag=topi.tag.BROADCAST)

    return legalize


def _nothing(x: Any) -> Any:
    return tirx.const(0, x.ty.dtype)


# Functions by the operators' names.
OPERATORS = {
    "relax.divide": _of_integers(tirx.truncdiv, negative),
    "relax.floor_divide": _of_integers(tirx.floordiv, negative, by_pair(_divide, "floor_divide")),
    "relax.floor_mod": _of_integers(tirx.floormod, _nothing, by_pair(_remain, "floor_mod")),
    "relax.mod": _of_integers(tirx.truncmod, _nothing),
}
