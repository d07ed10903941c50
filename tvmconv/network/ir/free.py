"""Free extents, known only when a network is called: symbols in the shapes of a module's values."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

from tvm import relax, sym, tirx
from tvm.ir import Expr, Range

from ...checks import LARGEST
from .constants import static_shape
from .periods import equal_by_periods

Dims = tuple[Any, ...]


def dims_of(type_: Any) -> Dims | None:
    """Return a tensor's extents, numbers or expressions of symbols; None: its type has no shape."""
    shape = getattr(type_, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return tuple(number_of(size) for size in shape.values)


def number_of(extent: Any) -> Any:
    """Return a constant extent as a number, another as its expression."""
    return int(extent) if isinstance(extent, (int, tirx.IntImm)) else extent


def has_elements(type_: Any) -> bool:
    """Return whether a tensor's extents are known, and none is 0."""
    dims = dims_of(type_)
    return dims is not None and not any(isinstance(size, int) and size == 0 for size in dims)


def is_one(extent: Any) -> bool:
    """Return whether an extent is the number 1."""
    return isinstance(extent, (int, tirx.IntImm)) and int(extent) == 1


def is_free(type_: Any) -> bool:
    """Return whether an extent of a tensor is an expression of symbols."""
    return static_shape(type_) is None and dims_of(type_) is not None


def equal(one: Any, other: Any) -> bool:
    """Return whether two extents are equal for all values of the symbols."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    if sym.Analyzer().can_prove_equal(one, other):
        return True
    symbols = [*symbols_in(one), *symbols_in(other)]
    is_one = bool(symbols) and all(each.same_as(symbols[0]) for each in symbols)
    return is_one and equal_by_periods(one, other, symbols[0])


def is_below_zero(number: Any) -> bool:
    """Return whether a number is negative for all values of its symbols, which are extents.

    Raises
    ------
    ValueError
        If its sign depends on the symbols.
    """
    if isinstance(number, int):
        return number < 0
    analyzer = sym.Analyzer()
    for symbol in symbols_in(number):
        analyzer.bind(symbol, Range(1, LARGEST))
    if not analyzer.can_prove(number >= 0) and not analyzer.can_prove(number < 0):
        raise ValueError(f"{number} is negative at some extents and not at others")
    return bool(analyzer.can_prove(number < 0))


def same_shape(one: Any, other: Any) -> bool:
    """Return whether two tensors' types have the same shape for all values of the symbols."""
    left, right = dims_of(one), dims_of(other)
    return left is not None and right is not None and len(left) == len(right) and all(map(equal, left, right))


def is_known(type_: Any) -> bool:
    """Return whether a type is no tensor's, or has a shape: its extents follow from the inputs'."""
    return not isinstance(type_, relax.TensorType) or isinstance(type_.shape, relax.ShapeExpr)


def simplify(extent: Any) -> Any:
    """Return an extent simplified, as a number if it is constant."""
    return number_of(sym.Analyzer().simplify(extent)) if isinstance(extent, Expr) else extent


def product(extents: Sequence[Any]) -> Any:
    """Return a product of extents, simplified."""
    return simplify(prod(extents))


def quotient(extents: Sequence[Any], others: Sequence[Any]) -> Any:
    """Return a product of extents divided by another, which divides it, without common factors, so that equal quotients look alike."""
    factors, divisors = list(extents), []
    for other in others:
        same = next((at for at, each in enumerate(factors) if equal(each, other)), None)
        if same is None:
            divisors.append(other)
        else:
            del factors[same]
    number, divisor = (prod(each for each in some if isinstance(each, int)) for some in (factors, divisors))
    left, by = ([each for each in some if not isinstance(each, int)] for some in (factors, divisors))
    common = gcd(number, divisor)
    over, under = product([*left, number // common]), product([*by, divisor // common])
    return over if is_one(under) else product([tirx.floordiv(over, under)])


def symbols_in(extent: Any) -> list[tirx.Var]:
    """Return the symbols of an expression."""
    return [] if isinstance(extent, int) else list(tirx.analysis.undefined_vars(tirx.Evaluate(extent), []))
