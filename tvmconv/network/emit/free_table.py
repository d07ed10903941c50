"""The part of a plan's table that depends on free extents: C code that computes shapes and sizes from each call's extents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Call

from ...errors import SourceError
from ..ir.free import Dims, symbols_in
from .network_plan import Array, NetworkPlan, Storage, item_bytes

_OPERATORS = {tirx.Add: "({} + {})", tirx.Sub: "({} - {})", tirx.Mul: "({} * {})"}
_OPERATORS |= {tirx.FloorDiv: "quotient({}, {})", tirx.FloorMod: "rest({}, {})"}
_OPERATORS |= {tirx.LT: "({} < {})", tirx.LE: "({} <= {})", tirx.GT: "({} > {})", tirx.GE: "({} >= {})"}
_OPERATORS |= {tirx.EQ: "({} == {})", tirx.NE: "({} != {})", tirx.And: "({} && {})", tirx.Or: "({} || {})"}
_OPERATORS |= {tirx.Min: "least({}, {})", tirx.Max: "most({}, {})"}
_HEAD = """\
#define FUNCTION __attribute__((unused)) static inline
/* Division by 0 gives a number whose extents the executor refuses. */
FUNCTION int64_t quotient(int64_t a, int64_t b) {
  return b == 0 ? INT32_MIN : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
FUNCTION int64_t rest(int64_t a, int64_t b) { return a - quotient(a, b) * b; }
FUNCTION int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
FUNCTION int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
FUNCTION int64_t times(int64_t a, int64_t b) {
  int64_t product;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}"""


class FreeTable:
    """Part of a plan that depends on free extents.

    Parameters
    ----------
    plan
        The plan; each of its symbols, or a multiple of it, is an extent of an input.
    """

    def __init__(self, plan: NetworkPlan) -> None:
        self._plan = plan
        self._symbols = symbols_of(plan.inputs)
        self._measures: list[Any] = []
        self._places: dict[str, int] = {}
        for each in plan.outputs:  # consecutive, as the executor returns them
            self._measures += each.shape

    def has(self, array: Array) -> bool:
        """Return whether an extent of an array is free."""
        return any(not isinstance(size, int) for size in array.shape)

    def number(self, storage: Storage) -> int:
        """Return the number of a storage: an input's or output's own, or, in the arena, its index among all storages."""
        slots = list(self._plan.slots)
        ends = len(self._plan.inputs) + len(self._plan.outputs)
        return ends + slots.index(storage) if storage in self._plan.slots else storage.number

    def at(self, dims: Dims) -> int:
        """Return the index of some extents among the measures."""
        key = ", ".join(map(self._text, dims))
        if key not in self._places:
            self._places[key] = len(self._measures)
            self._measures += dims
        return self._places[key]

    def lines(self) -> list[str]:
        """Return the C code; call it after all of :meth:`at`, which adds measures."""
        plan = self._plan
        ends = [(each.shape, each.dtype) for each in (*plan.inputs, *plan.outputs)]
        shapes = {step_array.storage: step_array for step in plan.steps for step_array in reversed(step.arguments)}
        stored = ends + [(shapes[each].shape, shapes[each].dtype) for each in plan.slots]
        body = [f"  measures[{at}] = {self._text(each)};" for at, each in enumerate(self._measures)]
        body += [f"  elements[{at}] = {self._product(shape)};" for at, (shape, _) in enumerate(stored)]
        counts = (len(self._symbols), len(self._measures), len(stored), max(plan.slots.values(), default=-1) + 1)
        return [
            _HEAD,
            "static void measure(const int64_t* given, int64_t* measures, int64_t* elements) {",
            "  (void)given, (void)measures;",
            *body,
            "}",
            f"static const uint8_t item_bytes[] = {{{', '.join(str(item_bytes(dtype)) for _, dtype in stored)}}};",
            f"static const int32_t slots[] = {{{', '.join(map(str, plan.slots.values())) or 0}}};",
            f"static const Free extents = {{{', '.join(map(str, counts))}, measure, item_bytes, slots, {plan.workspace_bytes}}};",
        ]

    def _product(self, shape: Dims) -> str:
        made = "INT64_C(1)"
        for each in shape:
            made = f"times({made}, {self._text(each)})"
        return made

    def _text(self, extent: Any) -> str:
        """Return an extent in C."""
        if isinstance(extent, (int, tirx.IntImm)):
            return f"INT64_C({int(extent)})"
        if isinstance(extent, tirx.Var):
            number = next((at for at, each in enumerate(self._symbols) if each.same_as(extent)), None)
            if number is not None:
                return f"given[{number}]"
        if isinstance(extent, tirx.Cast):
            return self._text(extent.value)
        if isinstance(extent, Call) and extent.op.name == "prim.if_then_else":
            return "({} ? {} : {})".format(*map(self._text, extent.args))
        operator = _OPERATORS.get(type(extent))
        if operator is None:
            raise SourceError(
                f"an extent of the network is {extent}, which inputs do not determine; give that size as a number"
            )
        return operator.format(self._text(extent.a), self._text(extent.b))


def symbols_of(inputs: Sequence[Array]) -> list[tirx.Var]:
    """Return the symbols of the inputs' extents, in order of appearance."""
    found: list[tirx.Var] = []
    for each in inputs:
        for size in each.shape:
            found += [symbol for symbol in symbols_in(size) if not any(symbol.same_as(other) for other in found)]
    return found
