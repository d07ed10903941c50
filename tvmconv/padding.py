"""Padding skipped instead of multiplied: a product with a padding zero is not added, and whole rows of them are not visited.

Where a space inlines the padded copy of data, each step of a sum reads ``if_then_else(inside, data, 0)``.
Adding such a product under the condition itself frees the condition to move out of every loop that it
does not depend on: the one on rows leaves the loops over a row's taps and outputs, and those on columns
fall away (in TVM's simplifier) for all but the first and last unrolled outputs of a row. A filter's infinity
or NaN therefore meets no padding.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, Op
from tvm_ffi.structural import structural_map

_IF_THEN_ELSE = Op.get("prim.if_then_else")


def skip_padding(body: Any) -> Any:
    """Return the statement with sums in registers over padded data made conditional."""
    return structural_map(structural_map(body, (tirx.BufferStore, _conditional)), (tirx.For, _outwards))


def _conditional(node: Any) -> Any:
    """``s = s + if_then_else(c1 and c2, x, 0)*f``: ``if c1: if c2: s = s + x*f``."""
    if node.buffer.scope() != "local" or not isinstance(node.value, tirx.Add) or not isinstance(node.value.b, tirx.Mul):
        return node
    data, weight = node.value.b.a, node.value.b.b
    if not (isinstance(data, Call) and data.op.same_as(_IF_THEN_ELSE)):
        return node
    inside, value, _zero = data.args
    statement: Any = tirx.BufferStore(node.buffer, node.value.a + value * weight, node.indices)
    for condition in reversed(_conjuncts(inside)):
        statement = tirx.IfThenElse(condition, statement, None)
    return statement


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _outwards(loop: Any) -> Any:
    """Move the conditions of a loop's body that do not depend on the loop out of it."""
    inside: list[Any] = []
    outside: list[Any] = []
    body = loop.body
    while isinstance(body, tirx.IfThenElse) and body.else_case is None:
        (inside if _uses(body.condition, loop.loop_var) else outside).append(body.condition)
        body = body.then_case
    if not outside:
        return loop
    for condition in reversed(inside):
        body = tirx.IfThenElse(condition, body, None)
    statement: Any = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)
    for condition in reversed(outside):
        statement = tirx.IfThenElse(condition, statement, None)
    return statement


def _uses(expression: Any, var: Any) -> bool:
    return any(each.same_as(var) for each in tirx.analysis.undefined_vars(expression, []))
