"""Split the padding columns off a copy's loop, so that the other columns are copied without conditions.

A padded copy tests for each pixel whether it is in data: ``copy[x] = if_then_else(row and 1 <= x and x < 57, data[x - 1], 0)``. A space
marks the loop over columns (COLUMNS), whose conditions must be constants for each column. The loop is split into one for each run of
columns with equal conditions, under the condition of the row.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tvm import sym, tirx
from tvm.ir import Call

from ....algorithms.annotations import COLUMNS
from ...common.rewrites import (
    IF_THEN_ELSE,
    find_all,
    map_nodes,
    refuse,
    rewrite_loops,
    sequence,
    settle,
    substitute,
    with_own_loops,
)
from .padding import conjuncts, uses


def part_columns(body: Any) -> Any:
    """Return the statement with loops that request COLUMNS split at the padding."""
    return rewrite_loops(body, COLUMNS, _part)


def _part(loop: Any) -> Any:
    stores = find_all(loop.body, tirx.BufferStore)
    if len(stores) != 1:
        refuse(loop, COLUMNS, f"it is of {len(stores)} stores, not of one")
    value = stores[0].value
    if not isinstance(value, Call) or not value.op.same_as(IF_THEN_ELSE):
        return settle(loop, COLUMNS)  # TVM knows that it reads no padding
    condition, inside, zero = value.args
    inner = [each.loop_var for each in find_all(loop.body, tirx.For)]
    conditions = conjuncts(condition)
    columns = [each for each in conditions if uses(each, loop.loop_var)]
    others = [each for each in conditions if uses(each, *inner) and not uses(each, loop.loop_var)]
    rows = [each for each in conditions if not uses(each, loop.loop_var, *inner)]
    if others:
        inside = tirx.if_then_else(tirx.all(*others), inside, zero)

    def run(first: int, count: int, stored: Any) -> Any:
        """Return a loop over some columns, with variables of its own."""

        def store(each: Any) -> Any:
            return tirx.BufferStore(each.buffer, stored, each.indices)

        x = tirx.Var(loop.loop_var.name, "int32")
        body = with_own_loops(map_nodes(loop.body, tirx.BufferStore, store))
        return tirx.For(x, 0, count, loop.kind, substitute(body, {loop.loop_var: x + first}))

    known = [_holds(loop, columns, column) for column in range(int(loop.extent))]
    parts, first = [], 0
    for holds, run_of in groupby(known):
        count = len(list(run_of))
        parts.append(run(first, count, inside if holds else zero))
        first += count
    copied = sequence(parts)
    return tirx.IfThenElse(tirx.all(*rows), copied, run(0, first, zero)) if rows else copied


def _holds(loop: Any, conditions: list[Any], column: int) -> bool:
    """Return whether the conditions hold for column number `column`."""
    analyzer = sym.Analyzer()
    for each in conditions:
        known = analyzer.simplify(substitute(each, {loop.loop_var: column}))
        if not isinstance(known, tirx.IntImm):
            refuse(loop, COLUMNS, f"whether a column lies in data is not known: {each}")
        if not int(known):
            return False
    return True
