"""Replace functions of one 8-bit number, such as a HardSwish between quantizers, by tables of their 256 values.

Operators between an 8-bit tensor and a quantizer of the same shape, other quantizers included, are evaluated here, each rounded to f32;
elementary functions are rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import mutator

from ...dtypes import ROWS
from ...epilogue import Step
from ...frontends.activations import FUNCTIONS
from ...reference import apply_step, quantize
from ..ir.constants import constant
from ..ir.elementwise import RelaxOperators
from ..ir.free import product, same_shape
from ..ir.graph import Graph, scalar
from ..ir.mutator import GraphMutator, each_function
from ..ir.quantizers import is_quantizer
from ..operators.quantize import QUANTIZED, step_of

FUNCTION = "tvmconv_network_lookup"
# A tensor, and the 256 values of a function of its numbers, in the order of their bits.
Table = tuple[relax.Var, npt.NDArray[Any]]


def tabulate(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with table lookups in place of quantized functions of one 8-bit tensor."""
    return each_function(mod, _Tabulating, with_bindings=True)


@mutator
class _Tabulating(GraphMutator):
    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod, function)
        self._tables = tables_of(self._graph)

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the lookup that replaces a quantizer."""
        if binding.var not in self._tables:
            return None
        leaf, values = self._tables[binding.var]
        return look_up(self.builder_, self.visit_expr(leaf), values)


def tables_of(graph: Graph) -> dict[relax.Var, Table]:
    """Return the tables of quantizers by their variables."""
    known: dict[Any, Table] = {}
    operators = RelaxOperators(graph)
    with np.errstate(all="ignore"):
        for variable in graph.values:
            made = _make(variable, graph, operators, known)
            if made is not None and same_shape(variable.ty, made[0].ty):
                known[variable] = made
    return {each: table for each, table in known.items() if is_quantizer(graph.call(each))}


def _make(variable: relax.Var, graph: Graph, operators: RelaxOperators, known: dict[Any, Table]) -> Table | None:
    """Return an operator's table; None if it is no function of one 8-bit tensor, or unknown."""
    call = graph.call(variable)
    if call is None:
        return None
    if call.op.name == "relax.dequantize":
        return _dequantize(call, known)
    if is_quantizer(call):
        step, taken = step_of(call), known.get(call.args[0])
        if step is None or taken is None:
            return None
        out = QUANTIZED[str(call.ty.dtype)]
        return taken[0], quantize(step, taken[1].astype(np.float64), out).astype(ROWS[out].numpy)
    found = operators.function(variable) if str(getattr(variable.ty, "dtype", "")) == "float32" else None
    if found is None:
        return None
    function, operands = found
    taken_of = [known[each] for each in operands if not isinstance(each, float) and each in known]
    numbers = sum(isinstance(each, float) for each in operands)
    if not taken_of or len(taken_of) + numbers < len(operands) or len({leaf for leaf, _ in taken_of}) > 1:
        return None
    args = [np.float32(each) if isinstance(each, float) else known[each][1] for each in operands]
    return taken_of[0][0], _compute(function, args).astype(np.float32)


def _compute(function: str | Step, args: Sequence[Any]) -> npt.NDArray[Any]:
    """Return a function of f32 arrays and numbers: arithmetic in f32, other functions in float64."""
    if isinstance(function, str) and function in FUNCTIONS:
        return np.asarray(FUNCTIONS[function](*args))
    step = Step(function) if isinstance(function, str) else function
    return apply_step(step, np.asarray(args[0], np.float64), {})


def _dequantize(call: relax.Call, known: dict[Any, Table]) -> Table | None:
    data, numbers = call.args[0], [scalar(constant(each)) for each in call.args[1:]]
    dtype = str(data.ty.dtype)
    if not isinstance(data, relax.Var) or dtype not in QUANTIZED or None in numbers or str(call.ty.dtype) != "float32":
        return None
    scale, zero = numbers
    leaf, integers = known.get(data, (data, np.arange(256, dtype=np.uint8).view(dtype)))
    return leaf, (integers.astype(np.int32) - int(zero or 0)).astype(np.float32) * np.float32(scale)


def look_up(builder: relax.BlockBuilder, data: relax.Var, values: npt.NDArray[Any]) -> relax.Expr:
    """Return the lookup of a tensor's 8-bit numbers in a table, by a C function (`tvmconv/lowering/native/operators/lookup.c`)."""

    def called(data: te.Tensor, table: te.Tensor) -> te.Tensor:
        count = product(list(data.shape))
        whole = tirx.const(count, "int64") if isinstance(count, int) else count

        def body(read: Any, written: Any) -> Any:
            return tirx.Evaluate(tirx.call_extern("void", FUNCTION, read[0].data, read[1].data, written[0].data, whole))

        return te.extern([data.shape], [data, table], body, dtype=str(values.dtype), name="lookup")

    return builder.call_te(called, data, relax.const(values.view(np.uint8)), primfunc_name_hint="lookup")
