"""Skip padding instead of multiplying by it: products with padding zeros are not added, whole rows of them not visited.

Each step of a sum over padded data reads ``if_then_else(inside, data, 0)``. If the product is instead added under the condition, this can be
hoisted out of every loop that it does not depend on: the condition on rows out of the loops over a row's taps and outputs; those on
columns vanish (in TVM's simplifier) for all but the first and last unrolled outputs of a row. There are four requests:

    SKIP         on the innermost loop of a sum, or of a store whose elements outside are never read
    SOME_INSIDE  on a loop over a tile's pixels, whose padding may be read: a condition is hoisted in the weaker form that some pixel
                 needs the product, or the store
    SKIP_TILE    on a loop over tiles, each computed only to be stored: a tile is skipped if nothing of it is stored
    UNREAD       on the loop over a row's columns of a copy, if sums skip rows of padding: these are not copied

Conditions are hoisted where one of these is requested, or, of the function, HOIST, as for loops with conditions from splits that do not
divide an extent.

An infinity or NaN in a filter is therefore not always multiplied by padding.
"""

from __future__ import annotations

from functools import partial
from operator import mul
from typing import Any

from tvm import sym, tirx
from tvm.ir import Call

from ....algorithms.annotations import SKIP, SKIP_TILE, SOME_INSIDE, UNREAD
from ....algorithms.pairs import dot_of, multiply_pairs
from ...common.rewrites import IF_THEN_ELSE, asks_for, find_all, map_nodes, refuse, rewrite_loops, settle, substitute
from .tasks.cuts import is_in_piece


def skip_padding(body: Any) -> Any:
    """Return the statement with conditional sums over padded data where SKIP or UNREAD is requested, and conditions hoisted."""
    bounds: list[Any] = []  # conditions on padding; those of splits are never weakened
    body = rewrite_loops(rewrite_loops(body, SKIP, partial(_skipping, bounds)), UNREAD, _unread)
    return map_nodes(body, tirx.For, partial(_hoist, bounds))


def conjuncts(condition: Any) -> list[Any]:
    """Return the conjuncts of a condition."""
    if isinstance(condition, tirx.And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


def uses(value: Any, *variables: Any) -> bool:
    """Return whether `value` uses one of `variables`."""
    return any(var.same_as(each) for var in tirx.analysis.undefined_vars(value, []) for each in variables)


def _skipping(bounds: list[Any], loop: Any) -> Any:
    """``s = s + if_then_else(c1 and c2, x, 0)*f``: ``if c1: if c2: s = s + x*f``; of a copy ``s = if_then_else(c, x, 0)``."""

    def skipping(store: Any) -> Any:
        data, rest = _padded_read(store.value)
        if data is None:
            if _selects(store.value):
                refuse(loop, SKIP, f"padding is read, but neither copied nor a factor of a product: {store.value}")
            return store  # TVM knows that it reads no padding
        inside, value, _zero = data.args
        conditions = conjuncts(inside)
        bounds.extend(conditions)
        return _under(conditions, tirx.BufferStore(store.buffer, rest(value), store.indices))

    return settle(loop, SKIP, map_nodes(loop.body, tirx.BufferStore, skipping))


def _padded_read(value: Any) -> tuple[Any, Any]:
    """Return a stored value's padded read, and a function from the value inside to the value to store; None if there is none."""
    if _is_select(value):
        return value, lambda inside: inside
    if not isinstance(value, tirx.Add):
        return None, None
    total, product = value.a, value.b
    if isinstance(product, tirx.Mul) and _is_select(product.a):
        return product.a, lambda inside: total + mul(inside, product.b)
    if (dot := dot_of(product)) and _is_select(product.args[1]):
        return product.args[1], lambda inside: total + multiply_pairs(inside, product.args[2], dot)
    return None, None


def _is_select(value: Any) -> bool:
    return isinstance(value, Call) and value.op.same_as(IF_THEN_ELSE)


def _selects(value: Any) -> bool:
    return any(map(_is_select, find_all(value, Call)))


def _unread(loop: Any) -> Any:
    """``for column: copy = if_then_else(row and c, x, 0)``: ``if row: for column: copy = if_then_else(c, x, 0)``."""
    stores = find_all(loop.body, tirx.BufferStore)
    if len(stores) != 1:
        refuse(loop, UNREAD, f"it stores {len(stores)} times, not once")
    (store,) = stores
    if not _is_select(store.value):
        if _selects(store.value):
            refuse(loop, UNREAD, f"it copies something else than data or padding: {store.value}")
        return settle(loop, UNREAD)  # TVM knows that there is no padding
    inside, data, zero = store.value.args
    own = [each.loop_var for each in find_all(loop, tirx.For)]
    rows = [each for each in conjuncts(inside) if not uses(each, *own)]
    others = [each for each in conjuncts(inside) if uses(each, *own)]
    copied = tirx.if_then_else(tirx.all(*others), data, zero) if others else data
    copy = tirx.BufferStore(store.buffer, copied, store.indices)
    body = map_nodes(loop.body, tirx.BufferStore, lambda _: copy)
    return _under(rows, settle(loop, UNREAD, body))


def _under(conditions: list[Any], statement: Any) -> Any:
    for condition in reversed(conditions):
        statement = tirx.IfThenElse(condition, statement, None)
    return statement


def _hoist(bounds: list[Any], loop: Any) -> Any:
    """Hoist conditions out of a loop on which they do not depend."""
    inside: list[Any] = []
    outside: list[Any] = []
    body = loop.body
    if asks_for(loop, SKIP_TILE):
        body = _of_tile(bounds, loop)
    while isinstance(body, tirx.IfThenElse) and body.else_case is None:
        condition = body.condition
        weakens = asks_for(loop, SOME_INSIDE) and any(condition.same_as(bound) for bound in bounds)
        if weakens and uses(condition, loop.loop_var):
            condition = _in_some(condition, loop)
            bounds.append(condition)
        (inside if uses(condition, loop.loop_var) else outside).append(condition)
        body = body.then_case
    if not outside and not asks_for(loop, SOME_INSIDE) and not asks_for(loop, SKIP_TILE):
        return loop
    return _under(outside, settle(loop, (SOME_INSIDE, SKIP_TILE), _under(inside, body)))


def _of_tile(bounds: list[Any], loop: Any) -> Any:
    """Return the body of a loop over tiles under the bounds of its final store."""
    if not isinstance(loop.body, tirx.SeqStmt):
        refuse(loop, SKIP_TILE, f"it does not compute and then store: {loop.body}")
    *computed, store = loop.body.seq
    skipping: list[Any] = []
    others: list[Any] = []
    while isinstance(store, tirx.IfThenElse) and store.else_case is None:
        is_bound = any(store.condition.same_as(bound) for bound in bounds)
        (skipping if is_bound else others).append(store.condition)
        store = store.then_case
    return _under(skipping, tirx.SeqStmt([*computed, _under(others, store)]))


def _in_some(condition: Any, loop: Any) -> Any:
    """Return the condition that a bound holds in some iteration of a loop; for monotonic terms one end decides.

    For data of a single column, both bounds are one equality.
    """
    variable, ends = loop.loop_var, (loop.min, loop.min + loop.extent - 1)
    if is_in_piece(condition):
        name, axis, *iterations = condition.args
        reached = (substitute(each, {variable: end}) for each, end in zip(iterations, ends, strict=True))
        return tirx.call_pure_extern("bool", name, axis, *reached)
    if isinstance(condition, tirx.LT | tirx.LE | tirx.EQ):
        slack = condition.b - condition.a
    elif isinstance(condition, tirx.GT | tirx.GE):
        slack = condition.a - condition.b
    else:
        refuse(loop, SOME_INSIDE, f"{condition} is no bound")
    analyzer = sym.Analyzer()
    growth = analyzer.simplify(substitute(slack, {variable: variable + 1}) - slack)
    if not isinstance(growth, tirx.IntImm):
        refuse(loop, SOME_INSIDE, f"{condition} does not grow or shrink steadily")
    least, most = ends if int(growth) > 0 else ends[::-1]
    if isinstance(condition, tirx.EQ):
        return tirx.all(substitute(slack, {variable: least}) <= 0, substitute(slack, {variable: most}) >= 0)
    return substitute(condition, {variable: most})


def split_guard(value: Any, *variables: Any) -> tuple[Any, Any, Any]:
    """Return a value inside of its bounds, the bounds that do not use `variables`, and those that do; None for no bounds."""
    if not isinstance(value, Call) or not value.op.same_as(IF_THEN_ELSE):
        return value, None, None
    bounds = conjuncts(value.args[0])
    without, with_ = ([each for each in bounds if uses(each, *variables) == used] for used in (False, True))
    return value.args[1], *(tirx.all(*each) if each else None for each in (without, with_))


def inside(condition: Any, column: Any, extent: int) -> tuple[int, int]:
    """Return the range of columns for which a condition holds; (0, 0) if it depends on more than the column."""
    if condition is None:
        return 0, extent
    analyzer = sym.Analyzer()
    columns = [analyzer.simplify(substitute(condition, {column: x})) for x in range(extent)]
    if not all(hasattr(each, "value") for each in columns):
        return 0, 0
    held = [x for x, each in enumerate(columns) if each.value]
    return (held[0], held[-1] + 1) if held else (0, 0)
