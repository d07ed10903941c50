"""Bounds of integer tensors, by interval arithmetic on the operators that compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any, TypeGuard

from tvm import relax

from ...checks import LARGEST
from .constants import constant
from .free import dims_of, equal

# The least and the greatest number; the greatest may be an expression of extents.
Bounds = tuple[Any, Any]
_ANY: Bounds = (-inf, inf)
# Maximum number of operators followed back from a value.
_DEEPEST = 12
ValueOf = Callable[[relax.Var], Any]
# Operators whose result consists of their first argument's numbers.
_MOVES = tuple(
    f"relax.{name}"
    for name in (
        "astype",
        "broadcast_to",
        "expand_dims",
        "flatten",
        "flip",
        "gather_elements",
        "gather_nd",
        "permute_dims",
        "repeat",
        "reshape",
        "squeeze",
        "strided_slice",
        "take",
        "tile",
    )
)
_PLACES = ("relax.argmax", "relax.argmin", "relax.argsort")


def is_within(bounds: Bounds, low: Any, end: Any) -> bool:
    """Return whether bounds prove ``low <= number < end``; both ends are numbers or expressions of extents."""
    least, most = bounds
    if not isinstance(end, int):  # an extent, at least 1
        return bool(least >= 0 and (most == 0 if _is_number(most) else equal(most, end - 1)))
    return bool(_is_number(most) and low <= least and most < end)


def _is_number(bound: Any) -> TypeGuard[int | float]:
    return isinstance(bound, (int, float))


def bounds_of(expr: Any, value_of: ValueOf, left: int = _DEEPEST) -> Bounds:
    """Return the bounds of an integer tensor's numbers; infinite ones of other types.

    Parameters
    ----------
    value_of
        Returns the value that a variable is bound to; None: the variable is an argument.
    left
        How many operators may still be followed.
    """
    array, dtype = constant(value_of(expr) if isinstance(expr, relax.Var) else expr), str(getattr(expr.ty, "dtype", ""))
    if array is not None and array.size and array.dtype.kind in "iu":
        return int(array.min()), int(array.max())
    if dtype == "bool":
        return 0, 1
    if not dtype.startswith(("int", "uint")):
        return _ANY
    low, high = _range_of(dtype)
    least, most = _exact(expr, value_of, left, (low, high))
    # Numbers beyond the type wrap around. An extent is at most LARGEST.
    fits = low <= least and (most if _is_number(most) else LARGEST) <= high
    return (least, most) if fits else (low, high)


def _range_of(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest number of an integer type."""
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _exact(expr: Any, value_of: ValueOf, left: int, range_: tuple[int, int]) -> Bounds:
    """Return the bounds of an operator's results before they wrap around; `range_`, the type's, if they are unknown."""
    value = value_of(expr) if left and isinstance(expr, relax.Var) else None
    if isinstance(value, relax.TupleGetItem):
        made = _call(value_of, value.tuple_value)
        if made is not None and made.op.name == "relax.split":
            return bounds_of(made.args[0], value_of, left - 1)
        return _places(made) if made is not None and made.op.name == "relax.topk" and value.index == 1 else range_
    call = _call(value_of, expr) if value is not None else None
    if call is None:
        return range_
    name = call.op.name
    if name in _PLACES:
        return _places(call)
    if name in _MOVES:
        return bounds_of(call.args[0], value_of, left - 1)
    if name == "relax.concat":
        return _either([bounds_of(each, value_of, left - 1) for each in _fields(call.args[0], value_of)])
    if name == "relax.where":
        return _choose(call, value_of, left - 1)
    if name == "relax.clip":
        least, most = (getattr(each, "value", None) for each in call.args[1:])
        return (max(least, range_[0]), min(most, range_[1])) if _is_number(least) and _is_number(most) else range_
    if name in _ARITHMETIC:
        one, other = (bounds_of(each, value_of, left - 1) for each in call.args)
        if all(map(_is_number, (*one, *other))):
            return _ARITHMETIC[name](one, other)
    return range_


def _places(call: relax.Call) -> Bounds:
    """Return the bounds of indices along the axis of an operator such as argmax."""
    dims, axis = dims_of(call.args[0].ty), call.attrs.axis
    if dims is None:
        return _ANY
    return (0, (prod(dims) if axis is None else dims[int(axis)]) - 1)


def _either(bounds: Sequence[Bounds]) -> Bounds:
    if not bounds or not all(_is_number(each) for pair in bounds for each in pair):
        return _ANY
    return (min(least for least, _ in bounds), max(most for _, most in bounds))


def _choose(call: relax.Call, value_of: ValueOf, left: int) -> Bounds:
    """Return the bounds of ``where(i < 0, i + extent, i)``, indices of which negative ones count from the end, or of another choice."""
    condition, one, other = call.args
    is_below, counted = _call(value_of, condition, "relax.less"), _call(value_of, one, "relax.add")
    bounds = bounds_of(other, value_of, left)
    if is_below is None or counted is None or not _is_zero(is_below.args[1], value_of):
        return _either([bounds_of(one, value_of, left), bounds])
    if not all(isinstance(each.args[0], relax.Var) and each.args[0].same_as(other) for each in (is_below, counted)):
        return _either([bounds_of(one, value_of, left), bounds])
    least, most = bounds
    if isinstance(least, int) and least >= 0:
        return bounds
    end = bounds_of(counted.args[1], value_of, left)
    return _either([(least + end[0], end[1] - 1), (0, most)])


def _call(value_of: ValueOf, variable: Any, name: str = "") -> relax.Call | None:
    value = value_of(variable) if isinstance(variable, relax.Var) else None
    if not isinstance(value, relax.Call) or getattr(value.op, "name", None) is None:
        return None
    return value if name in ("", value.op.name) else None


def _fields(expr: Any, value_of: ValueOf) -> list[Any]:
    value = value_of(expr) if isinstance(expr, relax.Var) else expr
    return list(value.fields) if isinstance(value, relax.Tuple) else []


def _is_zero(expr: Any, value_of: ValueOf) -> bool:
    array = constant(value_of(expr) if isinstance(expr, relax.Var) else expr)
    return array is not None and not array.any()


def _products(one: Bounds, other: Bounds) -> Bounds:
    made = [a * b for a in one for b in other]
    return min(made), max(made)


def _rest(_: Bounds, divisor: Bounds) -> Bounds:
    return (0, divisor[1] - 1) if divisor[0] > 0 else _ANY


def _quotient(one: Bounds, divisor: Bounds) -> Bounds:
    if divisor[0] != divisor[1] or divisor[0] <= 0:
        return _ANY
    return (one[0] // divisor[0], one[1] // divisor[0])


_ARITHMETIC: dict[str, Callable[[Bounds, Bounds], Bounds]] = {
    "relax.add": lambda one, other: (one[0] + other[0], one[1] + other[1]),
    "relax.subtract": lambda one, other: (one[0] - other[1], one[1] - other[0]),
    "relax.multiply": _products,
    "relax.minimum": lambda one, other: (min(one[0], other[0]), min(one[1], other[1])),
    "relax.maximum": lambda one, other: (max(one[0], other[0]), max(one[1], other[1])),
    "relax.floor_mod": _rest,
    "relax.floor_divide": _quotient,
}
