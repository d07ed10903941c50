"""Numbers of ONNX's arithmetic on free extents (`sizes.py`): integers, expressions, and exact multiples of expressions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy.typing as npt
from tvm import relax, tirx
from tvm.ir import Expr

from ...ir.free import simplify
from ...ir.number_table import number_table

Array = npt.NDArray[Any]


class UnknownError(Exception):
    """Signals that a tensor's numbers are unknown."""


@dataclass(frozen=True)
class Multiple:
    """A floating-point number: an exact multiple of an expression."""

    expression: Any
    factor: Fraction = Fraction(1)

    def rounded(self, up: bool = False) -> Any:
        """Return the multiple rounded down, or up."""
        more = self.factor.denominator - 1 if up else 0
        return simplify(tirx.floordiv(self.expression * self.factor.numerator + more, self.factor.denominator))


@dataclass(frozen=True)
class Sizes:
    """A tensor of numbers of these kinds, with its type."""

    array: Array
    dtype: str

    @property
    def is_fixed(self) -> bool:
        """Return whether no number depends on free extents."""
        return not any(isinstance(each, (Multiple, Expr)) for each in self.array.flat)

    def as_value(self, builder: relax.BlockBuilder) -> relax.Expr:
        """Return the tensor as a Relax value: a constant, a shape, a number, or a tensor computed in each call."""
        shape = list(self.array.shape)
        if self.is_fixed:
            return relax.const(self.array.astype(self.dtype), self.dtype)
        if self.dtype == "int64" and len(shape) < 2:
            return relax.ShapeExpr(list(self.array)) if shape else relax.prim_value(self.array.item())
        return tensor_of(builder, self)


def tensor_of(builder: relax.BlockBuilder, sizes: Sizes) -> relax.Expr:
    """Return numbers as a tensor computed in each call."""
    flat = list(sizes.array.flat)
    factors = [float(each.factor) if isinstance(each, Multiple) else 1.0 for each in flat]
    numbers = [each.expression if isinstance(each, Multiple) else each for each in flat]
    scaled = factors if any(factor != 1 for factor in factors) else ()
    return number_table(builder, numbers, sizes.dtype, sizes.array.shape, scaled)


def as_multiple(number: Any) -> Multiple:
    """Return a number as a multiple of 1, or an expression as a multiple of itself."""
    if isinstance(number, Multiple):
        return number
    return Multiple(number) if isinstance(number, Expr) else Multiple(1, Fraction(number))


def number_of(factor: Fraction) -> int | float:
    """Return a factor as a Python number."""
    return int(factor) if factor.denominator == 1 else float(factor)
