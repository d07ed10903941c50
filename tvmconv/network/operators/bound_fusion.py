"""Bounds on the size of the functions that FuseOps makes.

Schedules inline the computation of a value at each of its reads. ``x + r * (x * x - x)`` reads x four times, so each such step makes
the function four times as large: eight in a row, as in Zero-DCE, took hours to compile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.ir import Expr, TensorLoad
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...lowering.common.rewrites import find_all
from ..ir.mutator import each_function
from ..ir.quantizers import EIGHT_BITS
from ..schedule.stages import KEPT
from .elementwise import INJECTIVE, OPAQUE

# Expressions of a function, for which LLVM takes a second; a vector's polynomial, such as erf's, has some hundred.
MOST = 2048


def bound_fusion(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module of calls that FuseOps fuses into functions of at most `MOST` expressions, unless one has more by itself.

    A variable that ends a function becomes an output of its block.
    """
    sizes = {variable: size_of(each) for variable, each in mod.functions_items() if isinstance(each, tirx.PrimFunc)}
    return each_function(mod, lambda new, function: _Ending(new, _ends(function, sizes)), with_bindings=True)


@dataclass(frozen=True)
class Size:
    """Size of a function with all inlinable computations inlined.

    Attributes
    ----------
    own
        Number of its expressions.
    reads
        Number of its reads of each argument.
    repeats
        Whether it is inlined into the readers of its result.
    """

    own: int
    reads: tuple[int, ...]
    repeats: bool


def size_of(function: tirx.PrimFunc) -> Size:
    """Return the size of an unscheduled function; 1 if it is never fused."""
    pattern, params = int((function.attrs or {}).get("op_pattern", OPAQUE)), list(function.params)
    if pattern >= OPAQUE:
        return Size(1, (0,) * len(params), False)
    # Cost of a read of each buffer: expressions, and reads of each argument.
    costs = {each: [1, *(int(each.same_as(other)) for other in params)] for each in params}
    whole = [0] * (1 + len(params))
    for block in find_all(function.body, s_tir.SBlock):
        store = block.body
        if not isinstance(store, tirx.BufferStore):
            continue
        loads = [each.source for each in find_all(store.value, TensorLoad) if not each.source.same_as(store.buffer)]
        total = (
            [sum(each) for each in zip(*(costs[load] for load in loads), strict=True)] if loads else [0] * len(whole)
        )
        total[0] += len(find_all(store.value, Expr)) - len(loads)
        kept = block.init is not None or KEPT in block.annotations or store.buffer in params
        if kept:
            whole = [a + b for a, b in zip(whole, total, strict=True)]
        costs[store.buffer] = [1] + [0] * len(params) if kept else total
    return Size(whole[0], tuple(whole[1:]), pattern <= INJECTIVE)


def _ends(function: relax.Function, sizes: dict[Any, Size]) -> set[Any]:
    """Return the variables at which functions are to end."""
    ends: set[Any] = set()
    # Expressions inlined at a read of a variable.
    costs: dict[Any, int] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.TupleGetItem):
                costs[binding.var] = costs.get(value.tuple_value, 1)
            if getattr(getattr(value, "op", None), "name", "") != "relax.call_tir" or value.args[0] not in sizes:
                continue
            size, given = sizes[value.args[0]], list(value.args[1].fields)
            reads = {each: 0 for each in given if isinstance(each, relax.Var)}
            # A rounded value that is read as numbers ends a function: a text detector, some of whose functions had three
            # quantizers, took one core of a Zen 3 46.7 ms, and takes 42.9.
            if str(getattr(binding.var.ty, "dtype", "")).startswith("float"):
                rounded = [each for each in reads if str(each.ty.dtype) in EIGHT_BITS and each in costs]
                ends.update(rounded)
                costs.update(dict.fromkeys(rounded, 1))
            for each, count in zip(given, size.reads, strict=False):
                if each in reads:
                    reads[each] += count

            def total(reads: dict[Any, int] = reads, own: int = size.own) -> int:
                return own + sum(count * (costs.get(each, 1) - 1) for each, count in reads.items())

            while total() > MOST:
                most = max(reads, key=lambda each: reads[each] * (costs.get(each, 1) - 1))
                if costs.get(most, 1) == 1:
                    break
                ends.add(most)
                costs[most] = 1
            costs[binding.var] = total() if size.repeats else 1
    return ends


@mutator
class _Ending(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, ends: set[Any]) -> None:
        super().__init__(mod)
        self._ends = ends

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.Var:
        """Return the replacement of a variable: for an end, one that may be read outside of its block."""
        if var not in self._ends:
            return super().visit_dataflow_var_def_(var)
        made = relax.Var(var.name, var.ty)
        self.set_var_remap(var, made)
        return made
