"""Keep conditions scalar in selections that unrolling decides.

``Select(a == 2, x, y)`` chooses the row of a matrix (algorithms/cpu/transforms/winograd_transforms.py): once the loop over ``a`` is
unrolled, one of the two is left. Where ``x`` and ``y`` are vectors, TVM vectorizes the condition as well, and does not fold
``Broadcast(1 == 2)``. LLVM does, with the same code as a result, but from larger IR: 14 083 lines instead of 5436 for a Winograd kernel
with six points.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from ....algorithms.annotations import CHOOSE_ONCE
from ...common.rewrites import find_all


def choose_once() -> tvm.transform.Pass:
    """Return the pass for functions that request CHOOSE_ONCE, to run between vectorization and unrolling."""

    def choose(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        if CHOOSE_ONCE not in func.attrs:
            return func
        return func.with_body(chosen_once(func.body)).without_attr(CHOOSE_ONCE)

    return tirx.transform.prim_func_pass(choose, opt_level=0, name="ChooseOnce")


def chosen_once(body: Any) -> Any:
    """Return the statement with scalar conditions where they depend only on variables of unrolled loops."""
    unrolled = {loop.loop_var for loop in find_all(body, tirx.For) if loop.kind == tirx.ForKind.UNROLLED}

    def once(select: Any) -> Any:
        condition = select.condition
        if not isinstance(condition, tirx.Broadcast) or not unrolled.issuperset(find_all(condition, tirx.Var)):
            return select
        return tirx.Select(condition.value, select.true_value, select.false_value)

    return structural_map(body, (tirx.Select, once)) if unrolled else body
