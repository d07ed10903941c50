"""Expand to arithmetic the epilogue steps of more than one operation, and elementary functions.

Definitions call operators of the steps' names (algorithms/epilogue.py), which schedules and TVM's passes treat as
one operation on one value; once loops are vectorized, arithmetic (step_arithmetic.py, elementary_arithmetic.py) replaces the operators.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm_ffi.structural import structural_equal

from ...algorithms.annotations import FIXED
from ...algorithms.epilogue import is_short, step_of, value_of_narrow
from ...algorithms.types import narrow
from ...errors import RewriteError
from ...isa import ISAS, native
from ...isa.isa import Isa
from .elementary_arithmetic import OPERATORS, compute_call, is_elementary
from .packed_rounding import Rounding, groups_of, pack, packing_of, whole_numbers
from .rewrites import IF_THEN_ELSE, find_all, map_nodes, sequence
from .short_arithmetic import ShortVector
from .step_arithmetic import Vector


def expand_steps() -> tvm.transform.Pass:
    """Return the pass that replaces epilogues' operators by arithmetic."""

    def expand(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        # Most functions have none, and the tuner compiles many functions.
        if not _operators(func.body):
            return func
        fused, saturates, packing = _is_fused(func), _saturates(func), packing_of(_isa(func), func.attrs["target"])
        return func.with_body(expand_operators(func.body, fused, saturates, packing))

    return tirx.transform.prim_func_pass(expand, opt_level=0, name="ExpandSteps")


def _is_fused(func: tirx.PrimFunc) -> bool:
    """Return whether a multiply-add is one operation, or rounded as if it were."""
    triple = func.attrs["target"].attrs.get("mtriple")
    return FIXED in func.attrs or all(isa.fused for isa in ISAS if isa.triple == triple)


def _saturates(func: tirx.PrimFunc) -> bool:
    """Return whether the function's instruction set narrows with saturation."""
    isa = _isa(func)
    return isa is not None and isa.saturates


def _isa(func: tirx.PrimFunc) -> Isa | None:
    """Return the function's instruction set; None: this project has none for its target."""
    own = native()
    triple = func.attrs["target"].attrs.get("mtriple", own and own.triple)
    return next((isa for isa in ISAS if isa.triple == triple), None)


def expand_operators(
    body: Any, fused: bool = True, saturates: bool = False, packing: tuple[int, str] | None = None
) -> Any:
    """Return the statement with arithmetic in place of the operators in stored values, and what it needs before each store.

    `fused` and `saturates` as for `Vector`; `packing` as `packing_of` returns it.

    Raises
    ------
    RewriteError
        If an operator stands elsewhere.
    """
    if packing is not None:
        body = map_nodes(body, tirx.SeqStmt, partial(_pack, packing=packing, fused=fused))
    body = map_nodes(body, tirx.BufferStore, partial(_expand, fused=fused, saturates=saturates))
    for call in _operators(body):
        raise RewriteError(f"an epilogue step is not part of a stored value: {call}")
    return body


def _operators(body: Any) -> list[Call]:
    """Return the calls of epilogues' operators, and of elementary functions."""
    return [call for call in find_all(body, Call) if _is_ours(call)]


def _is_ours(call: Call) -> bool:
    return bool(step_of(call)) or value_of_narrow(call) is not None or is_elementary(call)


def _pack(stores: Any, packing: tuple[int, str], fused: bool) -> Any:
    """Return a sequence of statements in which the stores that can be packed are."""
    bits, intrinsic = packing
    groups = groups_of(list(stores.seq), bits)
    made: list[Any] = []

    def whole(rounding: Rounding, statements: list[Any]) -> Any:
        x = _compute(rounding.call.args[0], statements, fused, saturates=True)
        return whole_numbers(rounding.call, x, statements, fused)

    for group in groups:
        made += [*pack(group, bits, intrinsic, made, whole)] if len(group) > 1 else group
    return sequence(made) if len(groups) < len(stores.seq) else stores


def _expand(store: Any, fused: bool, saturates: bool) -> Any:
    statements: list[Any] = []
    value = _compute(store.value, statements, fused, saturates)
    return sequence([*statements, tirx.BufferStore(store.buffer, value, store.indices)])


def _compute(value: Any, statements: list[Any], fused: bool, saturates: bool) -> Any:
    """Return a value with arithmetic in place of its operators; statements that must precede it are added to `statements`."""
    known: list[tuple[Call, Any]] = []  # a value that several operators read is fused into each of them

    def answer(call: Any) -> Any:
        value, step = value_of_narrow(call), step_of(call)
        if value is not None:
            return narrow(Vector(value, statements).x, "bf16")
        if is_elementary(call):
            made = next((made for other, made in known if structural_equal(other, call)), None)
            if made is None:
                made = compute_call(call, statements, fused)
                known.append((call, made))
            return made
        if step is None:
            return call
        vector_of = ShortVector if is_short(call) else Vector
        return vector_of(call.args[0], statements, fused, saturates).step(step, *call.args[len(step.numbers) + 1 :])

    return map_nodes(map_nodes(map_nodes(value, Call, _of_mish), Call, _guard), Call, answer)


def _of_mish(call: Any) -> Any:
    """Return the hyperbolic tangent of a softplus, as in mish, as one function: the two take one more exponential."""
    step = step_of(call)
    if step is None or step.name != "tanh" or not is_elementary(call.args[0], "softplus"):
        return call
    return Call(OPERATORS["tanh_softplus"], list(call.args[0].args), ret_ty=call.ty)


def _guard(call: Any) -> Any:
    """Return an if_then_else whose operators take 0 in the value that is not chosen.

    Their arguments are computed before the store, unconditionally, and may be reads outside an array: of a padded tensor.
    """
    if not call.op.same_as(IF_THEN_ELSE):
        return call
    condition, *values = call.args

    def guarded(value: Any, chosen: bool) -> Any:
        def guard(operator: Any) -> Any:
            if not _is_ours(operator):
                return operator

            def within(taken: Any) -> Any:
                zero = tirx.const(0, taken.ty.dtype)
                return tirx.if_then_else(condition, *((taken, zero) if chosen else (zero, taken)))

            first, *rest = operator.args
            # The other arguments of steps are numbers.
            args = map(within, operator.args) if is_elementary(operator) else (within(first), *rest)
            return Call(operator.op, list(args), ret_ty=operator.ty)

        return map_nodes(value, Call, guard)

    return tirx.if_then_else(condition, guarded(values[0], True), guarded(values[1], False))
