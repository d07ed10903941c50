"""Bounds of integers, by the operators that made them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any, TypeGuard

from tvm import relax

from ...checks import LARGEST
from .constants import constant
from .free import dims_of, equal

# The least and the greatest number that indices may be; the greatest may be an expression of extents.
Bounds = tuple[Any, Any]
_ANY: Bounds = (-inf, inf)
# Operators between a value and the model's inputs that are looked at.
_DEEPEST = 12
ValueOf = Callable[[relax.Var], Any]
# Operators whose answer consists of their first argument's numbers.
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
    """Return whether numbers of such bounds are known to lie from `low` to below `end`, which are numbers or expressions of extents."""
    least, most = bounds
    if not isinstance(end, int):  # an extent, at least 1
        return bool(least >= 0 and (most == 0 if _is_number(most) else equal(most, end - 1)))
    return bool(_is_number(most) and low <= least and most < end)


def _is_number(bound: Any) -> TypeGuard[int | float]:
    return isinstance(bound, (int, float))


def bounds_of(expr: Any, value_of: ValueOf, left: int = _DEEPEST) -> Bounds:
    """Return between which numbers a value of integers lies, by what made it.

    Parameters
    ----------
    value_of
        Returns what a variable is bound to; None: it is an argument.
    """
    array, dtype = constant(value_of(expr) if isinstance(expr, relax.Var) else expr), str(getattr(expr.ty, "dtype", ""))
    if array is not None:
        return (int(array.min()), int(array.max())) if array.size and array.dtype.kind in "iu" else _ANY
    if dtype == "bool":
        return (0, 1)
    value = value_of(expr) if left and isinstance(expr, relax.Var) else None
    if isinstance(value, relax.TupleGetItem):
        made = _call(value_of, value.tuple_value)
        if made is not None and made.op.name == "relax.split":
            return bounds_of(made.args[0], value_of, left - 1)
        return _places(made) if made is not None and made.op.name == "relax.topk" and value.index == 1 else _ANY
    call = _call(value_of, expr) if value is not None else None
    if call is None or not dtype.startswith(("int", "uint")):
        return _ANY
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
        return (least, most) if _is_number(least) and _is_number(most) else _ANY
    if name in _ARITHMETIC:
        one, other = (bounds_of(each, value_of, left - 1) for each in call.args)
        if all(map(_is_number, (*one, *other))):
            return _small(_ARITHMETIC[name](one, other))
    return _ANY


def _places(call: relax.Call) -> Bounds:
    """Return the bounds of places along an axis."""
    dims, axis = dims_of(call.args[0].ty), call.attrs.axis
    if dims is None:
        return _ANY
    return (0, (prod(dims) if axis is None else dims[int(axis)]) - 1)


def _either(bounds: Sequence[Bounds]) -> Bounds:
    if not bounds or not all(_is_number(each) for pair in bounds for each in pair):
        return _ANY
    return (min(least for least, _ in bounds), max(most for _, most in bounds))


def _choose(call: relax.Call, value_of: ValueOf, left: int) -> Bounds:
    """Return the bounds of a choice, as of indices below 0 that are counted from the end, and the others."""
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
    return _either([_small((least + end[0], end[1] - 1)), (0, most)]) if isinstance(end[0], int) else _ANY


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


def _small(bounds: Bounds) -> Bounds:
    """Return bounds, without those beyond what any type of indices holds."""
    least, most = bounds
    return (least if abs(least) <= LARGEST else -inf, most if abs(most) <= LARGEST else inf)


def _products(one: Bounds, other: Bounds) -> Bounds:
    made = [a * b for a in one for b in other]
    return _ANY if any(abs(each) == inf for each in (*one, *other)) else (min(made), max(made))


def _rest(_: Bounds, divisor: Bounds) -> Bounds:
    return (0, divisor[1] - 1) if divisor[0] > 0 else _ANY


def _quotient(one: Bounds, divisor: Bounds) -> Bounds:
    if divisor[0] != divisor[1] or divisor[0] <= 0 or inf in map(abs, one):
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
