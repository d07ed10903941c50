"""Free extents of programs: PyTorch's expressions of symbols as TVM's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from math import isinf
from operator import add, mul
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.utils._sympy import functions
from tvm import relax, tirx

from ....checks import LARGEST
from ....errors import SourceError
from ....family import Extent
from ...ir.free import product
from ..builder import as_tensor
from .decompose import decisions

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

# Denominators of factors that are exact in f64 and leave extents below 2^31 exact, too.
_MOST = 1 << 20
_FOLDED = {sympy.Add: add, sympy.Mul: mul}
_FOLDED |= dict.fromkeys((sympy.Max, functions.Max), tirx.max) | dict.fromkeys((sympy.Min, functions.Min), tirx.min)
_QUOTIENTS = {functions.FloorDiv: tirx.floordiv, functions.CleanDiv: tirx.floordiv}
_QUOTIENTS |= {functions.Mod: tirx.floormod, functions.PythonMod: tirx.floormod}
_ROUNDED = (functions.FloorToInt, functions.TruncToInt, functions.CeilToInt)


class ProgramExtents:
    """Free extents of a program's inputs.

    Parameters
    ----------
    program
        The program.
    names
        Names of extents by PyTorch's symbols; absent: ``input[axis]``.

    Attributes
    ----------
    extents
        The free extents in the order of the inputs.

    Raises
    ------
    SourceError
        If an extent of an input is neither a number nor a symbol nor a multiple of one.
    """

    def __init__(self, program: ExportedProgram, names: Mapping[str, str] | None = None) -> None:
        self.extents: list[Extent] = []
        self._symbols: dict[Any, tirx.Var] = {}
        self._decided = decisions(program)
        self._known = len(self._decided)
        multiples: dict[Any, int] = {}
        inputs = set(program.graph_signature.user_inputs)
        nodes = [node for node in program.graph.find_nodes(op="placeholder") if node.name in inputs]
        for node in nodes:
            for axis, size in enumerate(getattr(node.meta["val"], "shape", ())):
                if not isinstance(size, torch.SymInt):
                    continue
                multiple, symbol = size.node.expr.as_coeff_Mul()
                if not isinstance(symbol, sympy.Symbol) or multiples.setdefault(symbol, int(multiple)) != multiple:
                    raise SourceError(
                        f"extent {axis} of {node.name} is {size.node.expr}; allowed: numbers, a Dim or a multiple of one (2 * Dim), of one"
                        " Dim the same multiple everywhere"
                    )
                if symbol not in self._symbols:
                    name = (names or {}).get(str(symbol)) or f"{node.name}[{axis}]"
                    self._symbols[symbol] = tirx.Var(name, "int64")
                    self.extents.append(_extent(program.range_constraints.get(symbol), int(multiple), name))

    def decided(self) -> str:
        """Return PyTorch's decisions on free extents, made as for the example, since this object was created; else nothing."""
        return ", ".join(str(each.expr) for each in self._decided[self._known :])

    def of(self, size: Any) -> Any:
        """Return a number of a program: an integer, or an expression of TVM's.

        Raises
        ------
        ValueError
            If its expression has an operation that networks do not support.
        """
        if not isinstance(size, torch.SymInt):
            return size
        return product([self._expression(size.node.expr)])

    def _expression(self, given: Any) -> Any:
        kind = next((each for each in (*_FOLDED, *_QUOTIENTS, *_ROUNDED) if isinstance(given, each)), None)
        if isinstance(given, sympy.Integer):
            return int(given)
        if given in self._symbols:
            return self._symbols[given]
        if kind in _FOLDED:
            return reduce(_FOLDED[kind], map(self._expression, given.args))
        if kind in _QUOTIENTS:
            return _QUOTIENTS[kind](*map(self._expression, given.args))
        if kind in _ROUNDED:
            factor, rest = _split_factor(given.args[0])
            times = self._expression(rest) * factor.numerator
            up = factor.denominator - 1 if kind is functions.CeilToInt else 0  # extents are no less than 0
            return times if factor.denominator == 1 else tirx.floordiv(times + up, factor.denominator)
        if isinstance(given, sympy.Pow) and isinstance(given.exp, sympy.Integer) and given.exp > 0:
            return reduce(mul, [self._expression(given.base)] * int(given.exp))
        raise ValueError(f"networks cannot compute an extent as {given}")


def _split_factor(given: Any) -> tuple[Fraction, Any]:
    """Return a floating-point number's exact factor and the rest.

    Raises
    ------
    ValueError
        If it is no product of a factor and an integer, or the factor is not exact.
    """
    if isinstance(given, functions.ToFloat):
        return Fraction(1), given.args[0]
    if isinstance(given, (functions.FloatTrueDiv, functions.IntTrueDiv)) and given.args[1].is_number:
        factor, rest = Fraction(1) / Fraction(float(given.args[1])), given.args[0]
    else:
        number, rest = given.as_coeff_Mul()
        factor = Fraction(float(number))
    if isinstance(rest, functions.ToFloat):
        rest = rest.args[0]
    if factor.denominator > _MOST or rest.is_number or not rest.is_integer:
        raise ValueError(f"networks cannot compute an extent as {given}")
    return factor, rest


def _extent(known: Any, multiple: int, name: str) -> Extent:
    """Return the extent that is a multiple of a symbol with a known range."""
    low, high = (1, LARGEST) if known is None else (max(int(known.lower), 1), known.upper)
    most = LARGEST // multiple
    return Extent(low * multiple, (most if isinf(float(high)) else min(int(high), most)) * multiple, multiple, name)


_FLOATS = {
    "sym_float": lambda number: number, "neg": relax.op.negative, "_sym_sqrt": relax.op.sqrt, "pow": relax.op.power,
    "add": relax.op.add, "sub": relax.op.subtract, "mul": relax.op.multiply, "truediv": relax.op.divide,
}  # fmt: skip


def compute_float(builder: relax.BlockBuilder, node: Node, values: Sequence[Any]) -> relax.Expr | None:
    """Return a floating-point number computed from extents as a tensor without axes in f64; None if networks do not support it."""
    name = getattr(node.target, "__name__", "")
    if name not in _FLOATS or any(value is None for value in values):
        return None
    made = _FLOATS[name](*(as_tensor(builder, value, "float64") for value in values))
    return builder.emit(made)
