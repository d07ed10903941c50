"""The steps of epilogues that are more than one operation get their arithmetic.

Definitions call operators of the steps' names (algorithms/epilogue.py), which schedules and TVM's passes take for one
operation on one value; once loops are vectors, arithmetic (step_arithmetic.py) takes the operators' place.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call

from ...algorithms.epilogue import is_short, narrowed, step_of
from ...algorithms.types import narrow
from ...errors import RewriteError
from .rewrites import IF_THEN_ELSE, found, mapped, sequence
from .short_arithmetic import ShortVector
from .step_arithmetic import Vector


def expand_steps() -> tvm.transform.Pass:
    """Return the pass that puts arithmetic in the place of epilogues' operators."""

    def expand(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        # Most functions have none; the tuner compiles many of them.
        return func.with_body(expanded(func.body)) if _operators(func.body) else func

    return tirx.transform.prim_func_pass(expand, opt_level=0, name="ExpandSteps")


def expanded(body: Any) -> Any:
    """Return the statement with what epilogues' operators compute before each store whose value has some.

    Raises
    ------
    RewriteError
        If an operator stands elsewhere.
    """
    body = mapped(body, tirx.BufferStore, _expanded)
    for call in _operators(body):
        raise RewriteError(f"a step of an epilogue is no part of what is stored: {call}")
    return body


def _operators(body: Any) -> list[Call]:
    """Return the calls of epilogues' operators."""
    return [call for call in found(body, Call) if step_of(call) or narrowed(call) is not None]


def _expanded(store: Any) -> Any:
    statements: list[Any] = []

    def answer(call: Any) -> Any:
        value, step = narrowed(call), step_of(call)
        if value is not None:
            vector = Vector(value, statements)
            return narrow(vector.x, "bf16")
        if step is None:
            return call
        vector_of = ShortVector if is_short(call) else Vector
        return vector_of(call.args[0], statements).step(step, *call.args[len(step.numbers) + 1 :])

    value = mapped(mapped(store.value, Call, _guarded), Call, answer)
    return sequence([*statements, tirx.BufferStore(store.buffer, value, store.indices)])


def _guarded(call: Any) -> Any:
    """Return a choice of two values whose operators take 0 where theirs is not chosen.

    What they take is computed before the store, and may lie outside an array: of a padded tensor.
    """
    if not call.op.same_as(IF_THEN_ELSE):
        return call
    condition, *values = call.args

    def guarded(value: Any, chosen: bool) -> Any:
        def guard(operator: Any) -> Any:
            if step_of(operator) is None and narrowed(operator) is None:
                return operator
            taken, *rest = operator.args
            zero = tirx.const(0, taken.ty.dtype)
            taken = tirx.if_then_else(condition, *((taken, zero) if chosen else (zero, taken)))
            return Call(operator.op, [taken, *rest], ret_ty=operator.ty)

        return mapped(value, Call, guard)

    return tirx.if_then_else(condition, guarded(values[0], True), guarded(values[1], False))
