"""Compute sums of two dequantized tensors that are quantized to 8 bits again by two multiply-adds of their integers.

Dequantizers, sum, bounds and quotient round five times. In most models, a linear function of both integers, with coefficients within a few
ulps of the exact ones, rounds to the same result for all 65,536 pairs. Candidates are checked on all pairs; if none is found, the
operators stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.expr_functor import mutator

from ...algorithms.epilogue import round_to_integer
from ...dtypes import ROWS
from ...epilogue import Step
from ...lowering.common.quotient_by_products import multiply_add
from ...reference import apply_step, quantize
from ..ir.constants import constant
from ..ir.elementwise import RelaxOperators
from ..ir.free import same_shape
from ..ir.graph import Graph, scalar
from ..ir.mutator import GraphMutator, each_function
from ..ir.quantizers import is_quantizer
from ..operators.quantize import QUANTIZED, step_of

Array = npt.NDArray[Any]
# Ulps added to each coefficient: 0 works for half of random scales, one of these for nearly all.
_MOVES = range(-5, 6)
# Distance from a tie beyond which candidates round as the exact function does.
_NEAR = 1e-3
_SIGNS = {"add": (1, 1), "subtract": (1, -1)}
_BOUNDS: Mapping[Any, Callable[..., Step]] = {
    "relu": lambda: Step("relu"),
    "maximum": lambda number: Step("clip", (number, inf)),
    "minimum": lambda number: Step("clip", (-inf, number)),
}


@dataclass(frozen=True)
class Addend:
    """A dequantized tensor, with its sign in the sum."""

    data: relax.Var
    scale: float
    zero_point: int
    sign: int

    @property
    def numbers(self) -> Array:
        """The f32 value of each integer, in the order of bits."""
        return self.sign * (self.integers - self.zero_point).astype(np.float32) * np.float32(self.scale)

    @property
    def integers(self) -> Array:
        """All integers, in the order of bits."""
        return np.arange(256, dtype=np.uint8).view(str(self.data.ty.dtype)).astype(np.int32)


@dataclass(frozen=True)
class RoundedSum:
    """A sum of two tensors, the bounds after it, and the step that rounds."""

    addends: tuple[Addend, Addend]
    bounds: tuple[Step, ...]
    step: Step
    out: str

    def table(self) -> Array:
        """Return the model's results for all pairs of integers, each operator rounded to f32."""
        first, second = (each.numbers for each in self.addends)
        total = (first[:, None] + second).astype(np.float64)
        for bound in self.bounds:
            total = apply_step(bound, total, {})
        return quantize(self.step, total, self.out).ravel()

    def coefficients(self) -> tuple[float, float, float] | None:
        """Return both factors and the shift of a function that gives the table's result for all pairs; None: none was found."""
        table, (least, greatest) = self.table(), ROWS[self.out].range or (0, 0)
        scale, zero = self.step.numbers
        exact = [each.sign * each.scale / scale for each in self.addends]
        exact.append(zero - sum(each.zero_point * factor for each, factor in zip(self.addends, exact, strict=True)))
        pairs = [each.ravel() for each in np.meshgrid(*(each.integers for each in self.addends), indexing="ij")]
        floats = [each.astype(np.float32) for each in pairs]
        value = pairs[0] * exact[0] + pairs[1] * exact[1] + exact[2]
        near = np.abs(value - np.floor(value) - 0.5) < _NEAR
        if (np.clip(np.rint(value), least, greatest) != table)[
            ~near
        ].any():  # tighter bounds, or a scale that overflows
            return None
        # First near ties, then on all pairs, with and without fused multiply-adds: code generation may fuse either.
        for moves in sorted(product(_MOVES, repeat=3), key=lambda each: sum(map(abs, each))):
            tried = tuple(_move(number, by) for number, by in zip(exact, moves, strict=True))
            if all(
                (np.clip(np.rint(made), least, greatest) == table[where]).all()
                for where in (near, slice(None))
                for made in _roundings(floats[0][where], floats[1][where], *tried)
            ):
                first, second, shift = map(float, tried)
                return first, second, shift
        return None


def round_sums(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose rounded sums of two 8-bit tensors are linear functions of their integers, where results are the same."""
    return each_function(mod, _Rounding, with_bindings=True)


@mutator
class _Rounding(GraphMutator):
    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod, function)
        self._operators = RelaxOperators(self._graph)

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the linear function that replaces a quantizer's sum."""
        found = sum_of(binding.var, self._graph, self._operators)
        with np.errstate(all="ignore"):
            coefficients = None if found is None else found.coefficients()
        if found is None or coefficients is None:
            return None
        data = [self.visit_expr(each.data) for each in found.addends]
        return self.builder_.call_te(_compute, *data, coefficients, found.out, primfunc_name_hint="round_sum")


def sum_of(variable: relax.Var, graph: Graph, operators: RelaxOperators) -> RoundedSum | None:
    """Return the sum that a quantizer, bound to a variable, rounds; None: there is none."""
    call = graph.call(variable)
    bounds: list[Step] = []
    if call is None or not is_quantizer(call) or (step := step_of(call)) is None:
        return None
    out, at = QUANTIZED[str(call.ty.dtype)], call.args[0]
    while len(graph.readers(at)) == 1 and (found := operators.function(at)) is not None:
        name, operands = found
        if name in _SIGNS:
            first, second = (
                _addend(each, graph, sign, call.ty) for each, sign in zip(operands, _SIGNS[name], strict=True)
            )
            both = None if first is None or second is None else (first, second)
            return RoundedSum(both, tuple(reversed(bounds)), step, out) if both else None
        numbers = [each for each in operands if isinstance(each, float)]
        if name not in _BOUNDS or len(operands) - len(numbers) != 1:
            return None
        bounds.append(_BOUNDS[name](*numbers))
        (at,) = (each for each in operands if not isinstance(each, float))
    return None


def _addend(operand: Any, graph: Graph, sign: int, alike: Any) -> Addend | None:
    """Return an operand that is an 8-bit tensor dequantized by one scale, of a type's shape; None for other operands."""
    call = graph.call(operand, "relax.dequantize") if isinstance(operand, relax.Var) else None
    if call is None or not isinstance(call.args[0], relax.Var) or str(call.ty.dtype) != "float32":
        return None
    data, (scale, zero) = call.args[0], (scalar(constant(each)) for each in call.args[1:])
    if scale is None or zero is None or str(data.ty.dtype) not in QUANTIZED or not same_shape(data.ty, alike):
        return None
    return Addend(data, scale, int(zero), sign)


def _move(number: float, by: int) -> np.float32:
    """Return the f32 number `by` ulps from a number, away from 0."""
    return np.float32((np.float32(number).view(np.int32) + np.int32(by)).view(np.float32))


def _roundings(
    first: Array, second: Array, factor: np.float32, other: np.float32, shift: np.float32
) -> Iterator[Array]:
    """Yield ``factor * first + (other * second + shift)`` with each of the two multiply-adds fused or not."""
    for inner in (second * other + shift, multiply_add(second, other, np.broadcast_to(shift, second.shape))):
        yield first * factor + inner
        yield multiply_add(first, factor, inner)


def _compute(first: te.Tensor, second: te.Tensor, coefficients: tuple[float, float, float], out: str) -> te.Tensor:
    factor, other, shift = (tirx.const(each, "float32") for each in coefficients)

    def element(*at: Any) -> Any:
        inner = second(*at).astype("float32") * other + shift
        return round_to_integer(Step("q", (1.0, 0.0)), first(*at).astype("float32") * factor + inner, out, True)

    return te.compute(first.shape, element, "round_sum", tag=topi.tag.ELEMWISE)
