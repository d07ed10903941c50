"""Quads of 8-bit integers in one uint32, of which an instruction multiplies and adds four: as which types, and what zero points make of it.

Data of the other sign than an instruction takes differs by 128 when its first bit is the other one, and its zero point does, too. Sums of
products with data as it is have the zero point times the sum of each channel's filter too much, modulo 2^32, if padding holds it as well:
that is made when the filter is packed.
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
# A byte in each of an element's.
_EACH = 0x01010101


@dataclass(frozen=True)
class QuadTypes:
    """Types as which quads of a problem are multiplied.

    Attributes
    ----------
    data, filter
        The types.
    zero_point
        Of data of that type. The filter has none.
    flips_data, flips_filter
        Whether the first bits of a problem's numbers are the others.
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
    """Return as which of the types of data and filter that `there` are products of quads of a problem are multiplied; None: as none."""
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
    """Return what is taken off numbers of a type whose first bits become the others."""
    least, _ = ROWS[dtype].range or (0, 0)
    return _FIRST_BIT if least == 0 else -_FIRST_BIT


def flip(value: Any, flips: bool) -> Any:
    """Return bytes, or an element of four, with their first bits as the others, if it `flips`."""
    dtype = str(value.ty.dtype)
    return value ^ tirx.const(_FIRST_BIT * (_EACH if dtype == "uint32" else 1), dtype) if flips else value
