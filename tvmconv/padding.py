"""Padding skipped instead of multiplied: a product with a padding zero is not added, and whole rows of them are not visited.

Where a space inlines the padded copy of data, each step of a sum reads ``if_then_else(inside, data, 0)``.
Adding such a product under the condition itself frees the condition to move out of every loop that it
does not depend on: the one on rows leaves the loops over a row's taps and outputs, and those on columns
fall away (in TVM's simplifier) for all but the first and last unrolled outputs of a row. A condition marked
`likely` may be ignored, for its padding is there to be read: out of an unrolled loop it moves in the weaker form
that some iteration needs the product. A filter's infinity or NaN therefore does not always meet the padding.
"""

from __future__ import annotations

from operator import mul
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op
from tvm_ffi.structural import structural_map

from .definitions.pairs import DOT, calls, multiply_pairs

_IF_THEN_ELSE = Op.get("prim.if_then_else")
_LIKELY = Op.get("prim.likely")


def skip_padding(body: Any) -> Any:
    """Return the statement with sums in registers over padded data made conditional."""
    body = structural_map(structural_map(body, (tirx.BufferStore, _conditional)), (tirx.For, _outwards))
    return structural_map(body, (Call, lambda call: call.args[0] if call.op.same_as(_LIKELY) else call))


def _unread(node: Any) -> Any:
    """``copy = if_then_else(likely(c1) and c2, x, 0)``, a row of padding unless c1: ``if c1: copy = if_then_else(c2, x, 0)``."""
    value = node.value
    if not (isinstance(value, Call) and value.op.same_as(_IF_THEN_ELSE)):
        return node
    inside, data, zero = value.args
    rows = [each for each in _conjuncts(inside) if _is_likely(each)]
    if not rows:
        return node
    others = [each for each in _conjuncts(inside) if not _is_likely(each)]
    copied = tirx.if_then_else(tirx.all(*others), data, zero) if others else data
    statement: Any = tirx.BufferStore(node.buffer, copied, node.indices)
    for condition in rows:
        statement = tirx.IfThenElse(condition, statement, None)
    return statement


def _conditional(node: Any) -> Any:
    """``s = s + if_then_else(c1 and c2, x, 0)*f``: ``if c1: if c2: s = s + x*f``."""
    if node.buffer.scope() != "local":
        return _unread(node)
    if not isinstance(node.value, tirx.Add):
        return node
    if isinstance(node.value.b, tirx.Mul):
        multiply, data, weight = mul, node.value.b.a, node.value.b.b
    elif calls(node.value.b, DOT):
        multiply, (_, data, weight) = multiply_pairs, node.value.b.args
    else:
        return node
    if not (isinstance(data, Call) and data.op.same_as(_IF_THEN_ELSE)):
        return node
    inside, value, _zero = data.args
    statement: Any = tirx.BufferStore(node.buffer, node.value.a + multiply(value, weight), node.indices)
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
        condition = _weaker(body.condition, loop)
        (inside if _uses(condition, loop.loop_var) else outside).append(condition)
        body = body.then_case
    if not outside:
        return loop
    for condition in reversed(inside):
        body = tirx.IfThenElse(condition, body, None)
    statement: Any = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations)
    for condition in reversed(outside):
        statement = tirx.IfThenElse(condition, statement, None)
    return statement


def _weaker(condition: Any, loop: Any) -> Any:
    """Return what holds if a `likely` condition does in some iteration of an unrolled loop; others as they are."""
    if not (_is_likely(condition) and loop.kind == tirx.ForKind.UNROLLED):
        return condition
    # ``x >= 0`` and ``x < inputs``, of which x grows with the loop.
    bound = condition.args[0]
    extreme = loop.min if isinstance(bound, tirx.LT) else loop.min + loop.extent - 1
    return tirx.likely(structural_map(bound, (tirx.Var, lambda var: extreme if var.same_as(loop.loop_var) else var)))


def _is_likely(condition: Any) -> bool:
    return isinstance(condition, Call) and condition.op.same_as(_LIKELY)


def _uses(expression: Any, var: Any) -> bool:
    return any(each.same_as(var) for each in tirx.analysis.undefined_vars(expression, []))
