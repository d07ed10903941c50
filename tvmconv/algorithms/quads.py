"""Quads of 8-bit integers in one uint32: the types that dot products multiply them as, and the treatment of zero points.

Flipping the highest bit converts data to the other signedness, which changes numbers and their zero point by 128. Sums of products with
data that includes its zero point, as padding then does, exceed the result by the zero point times the sum of an output channel's filter,
modulo 2^32; this product is computed when the filter is packed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ..dtypes import ROWS
from ..problem import Problem
from ..targets.target import CpuTarget

_OTHER = {"u8": "s8", "s8": "u8"}
_FIRST_BIT = 0x80
# 1 in each byte of an element.
_EACH = 0x01010101


@dataclass(frozen=True)
class QuadTypes:
    """Types that quads of a problem are multiplied as.

    Attributes
    ----------
    data, filter
        Types of the operands.
    zero_point
        Zero point of data in its type; the filter's is 0.
    flips_data, flips_filter
        Whether the highest bits of the problem's numbers are flipped.
    """

    data: str
    filter: str
    zero_point: int
    flips_data: bool
    flips_filter: bool

    @property
    def types(self) -> tuple[str, str]:
        """Both types."""
        return self.data, self.filter

    @property
    def padding(self) -> Any:
        """Return an element of padding."""
        return tirx.const((self.zero_point & 0xFF) * _EACH, "uint32")

    @property
    def padding_byte(self) -> Any:
        """Return a channel of padding."""
        return tirx.const(self.zero_point & 0xFF, "uint8")


def products_of(target: CpuTarget) -> dict[tuple[str, str], str]:
    """Return the mnemonics of a CPU's dot products of quads, by the types of data and filter."""
    return {
        types: each
        for feature, of in target.isa.quads.items()
        if feature in target.features
        for types, each in of.items()
    }


def quad_types(problem: Problem, there: Collection[tuple[str, str]]) -> QuadTypes | None:
    """Return the types that a problem's quads are multiplied as, among those of available products (`there`); None: no product fits."""
    data, given, *_ = problem.types
    if given not in _OTHER or data not in _OTHER:
        return None
    flips_filter = problem.filter_zero_point != 0
    filter_, apart = (_OTHER[given] if flips_filter else given), _shift(given)
    if flips_filter and problem.filter_zero_point != apart:
        return None
    for as_data, flips in ((data, False), (_OTHER[data], True)):
        if (as_data, filter_) in there:
            zero = problem.zero_point - flips * _shift(data)
            return QuadTypes(as_data, filter_, zero, flips, flips_filter)
    return None


def _shift(dtype: str) -> int:
    """Return the amount by which flipping the highest bit lowers the zero point of a type."""
    least, _ = ROWS[dtype].range or (0, 0)
    return _FIRST_BIT if least == 0 else -_FIRST_BIT


def flip(value: Any, flips: bool) -> Any:
    """Return a byte, or an element of four, with flipped highest bits if it `flips`."""
    dtype = str(value.ty.dtype)
    return value ^ tirx.const(_FIRST_BIT * (_EACH if dtype == "uint32" else 1), dtype) if flips else value
