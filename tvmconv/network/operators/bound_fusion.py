"""Bounds of the functions that FuseOps makes.

Schedules write what computes a value wherever it is read. Of ``x + r * (x * x - x)``, which reads x four times, each step
would make the function four times as large: eight in a row, as Zero-DCE has them, took hours to compile.
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

# Expressions of a function. A vector's polynomial, such as erf's, has some hundred; LLVM takes a second for as many as these.
MOST = 2048


def bound_fusion(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module that calls functions, of which FuseOps makes none of more than `MOST` expressions, unless one has more.

    What ends a function is bound to an output of its block.
    """
    sizes = {variable: size_of(each) for variable, each in mod.functions_items() if isinstance(each, tirx.PrimFunc)}
    return each_function(mod, lambda new, function: _Ending(new, _ends(function, sizes)), with_bindings=True)


@dataclass(frozen=True)
class Size:
    """Size of a function with everything inlined that can be: its expressions, and its reads.

    Attributes
    ----------
    own
        How many it has.
    reads
        How often it reads each of its arguments.
    repeats
        Whether they are written into what reads its answer, too.
    """

    own: int
    reads: tuple[int, ...]
    repeats: bool


def size_of(function: tirx.PrimFunc) -> Size:
    """Return the size of a function that has no schedule; that of one that is never fused is 1."""
    pattern, params = int((function.attrs or {}).get("op_pattern", OPAQUE)), list(function.params)
    if pattern >= OPAQUE:
        return Size(1, (0,) * len(params), False)
    # Values written to buffers that are read: expressions, and reads of each argument.
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
    """Return the variables that functions are to end with."""
    ends: set[Any] = set()
    # Expressions that are written where a variable is read.
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
        """Return the variable that stands for one: of an end one that may be read outside of its block."""
        if var not in self._ends:
            return super().visit_dataflow_var_def_(var)
        made = relax.Var(var.name, var.ty)
        self.set_var_remap(var, made)
        return made
