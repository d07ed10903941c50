"""Choices that unrolling decides, left with one condition for all lanes.

``Select(a == 2, x, y)`` stands for the row of a matrix (algorithms/cpu/transforms/winograd_transforms.py): once the loop over ``a`` is
unrolled, one of the two is left. Where ``x`` and ``y`` are vectors, TVM makes the condition one as well, and does not fold
``Broadcast(1 == 2)``. LLVM does, to the same code, but was given all rows of each: 14 083 lines of IR for 5436, of a
Winograd kernel with six points.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from ....algorithms.annotations import CHOOSE_ONCE
from ...common.rewrites import find_all


def choose_once() -> tvm.transform.Pass:
    """Return the pass that does so in functions that ask for CHOOSE_ONCE, between those that vectorize and unroll."""

    def choose(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        if CHOOSE_ONCE not in func.attrs:
            return func
        return func.with_body(chosen_once(func.body)).without_attr(CHOOSE_ONCE)

    return tirx.transform.prim_func_pass(choose, opt_level=0, name="ChooseOnce")


def chosen_once(body: Any) -> Any:
    """Return the statement with scalar conditions decided where only variables of unrolled loops decide them."""
    unrolled = {loop.loop_var for loop in find_all(body, tirx.For) if loop.kind == tirx.ForKind.UNROLLED}

    def once(select: Any) -> Any:
        condition = select.condition
        if not isinstance(condition, tirx.Broadcast) or not unrolled.issuperset(find_all(condition, tirx.Var)):
            return select
        return tirx.Select(condition.value, select.true_value, select.false_value)

    return structural_map(body, (tirx.Select, once)) if unrolled else body
