"""Floor quotients and remainders as tensor expressions, exact like PyTorch's, NumPy's and Python's.

TVM's (0.27) round the quotient first: of 2.9999998 by 3 the quotient is 1 and -2e-7 remains, 1 by 0.1 is 10, and of 2^31 by 3 remains 64.
"""

from __future__ import annotations

from math import frexp
from typing import Any

from tvm import tirx

from ...lowering.common.elementary_arithmetic import elementary
from .elementwise import by_pair


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


# Functions by the operators' names.
OPERATORS = {
    "relax.floor_divide": by_pair(_divide, "floor_divide"),
    "relax.floor_mod": by_pair(_remain, "floor_mod"),
}
