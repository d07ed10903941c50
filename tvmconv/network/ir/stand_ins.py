"""Stand-ins: numbers in place of free extents, for code that divides and compares extents.

Each expression that is no product is represented by a prime of its own, larger than any fixed extent: if one stand-in divides, or equals,
another, so do the extents of every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from .free import Dims, dims_of, equal, simplify

_FIRST = 10**12


class StandIn(int):
    """A number that stands for an expression of extents that calls give."""

    expression: Any

    @classmethod
    def of(cls, number: int, expression: Any) -> StandIn:
        """Return a number that stands for an expression."""
        made = cls(number)
        made.expression = expression
        return made


def expression_of(number: int) -> Any:
    """Return the expression that a number stands for, or the number."""
    return number.expression if isinstance(number, StandIn) else number


def _combining(name: str, combine: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[[Any, Any], Any]:
    plain = getattr(int, name)

    def combined(self: StandIn, other: Any) -> Any:
        number = plain(self, other)
        pair = (expression_of(other), self.expression) if swapped else (self.expression, expression_of(other))
        made = simplify(combine(*pair))
        return made if isinstance(made, int) else StandIn.of(number, made)

    return combined


for _name, _combine in {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": tirx.floordiv,
}.items():
    setattr(StandIn, f"__{_name}__", _combining(f"__{_name}__", _combine))
    setattr(StandIn, f"__r{_name}__", _combining(f"__r{_name}__", _combine, swapped=True))


class StandIns:
    """Stand-ins for the extents of one function's values."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, int]] = []

    def shape(self, type_: Any) -> tuple[int, ...] | None:
        """Return a tensor's extents, numbers all of them; None: its type does not have them."""
        dims: Dims | None = dims_of(type_)
        return None if dims is None else tuple(map(self._number, dims))

    def _number(self, extent: Any) -> int:
        if isinstance(extent, int):
            return extent
        number = 1
        for factor in _factors(extent):
            number *= int(factor) if isinstance(factor, tirx.IntImm) else self._prime(factor)
        return StandIn.of(number, extent)

    def _prime(self, expression: Any) -> int:
        for known, prime in self._known:
            if equal(known, expression):
                return prime
        prime = _prime_from(max((prime for _, prime in self._known), default=_FIRST) * 3)
        self._known.append((expression, prime))
        return prime


def _factors(extent: Any) -> list[Any]:
    return [*_factors(extent.a), *_factors(extent.b)] if isinstance(extent, tirx.Mul) else [extent]


def _prime_from(number: int) -> int:
    """Return the first number from `number` on that passes Fermat's test to bases 2 and 3: probably prime, which suffices here."""
    while pow(2, number - 1, number) != 1 or pow(3, number - 1, number) != 1:
        number += 1
    return number
