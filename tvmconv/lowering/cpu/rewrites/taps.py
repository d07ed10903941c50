"""Unroll several taps of a row together where none of a tile's pixels meets padding.

A long loop over the taps of a row, whose lanes have their own data, loads a vector of data for each multiply-add, and tests for each pixel
whether it meets padding. A space marks the loop (TAPS) with a number of taps. It is split: taps before and after, for which some pixel may
meet padding, keep the tests; those between, which meet data at all pixels, are unrolled by that number, so that neighbouring pixels share
loads; the remainder of these runs one by one.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx

from ....algorithms.annotations import TAPS
from ...common.rewrites import refuse, rewrite_loops, sequence, settle, substitute, with_own_loops


def take_taps_together(body: Any) -> Any:
    """Return the statement with loops over taps that request TAPS split."""
    return rewrite_loops(body, TAPS, _part)


def _part(loop: Any) -> Any:
    together, taps = int(loop.annotations[TAPS]), int(loop.extent)
    conditions, pixels, product = _open(loop)
    first, last = _met_by_all(loop, conditions, pixels)
    whole = tirx.For(pixels.loop_var, pixels.min, pixels.extent, pixels.kind, product, annotations=pixels.annotations)

    def run(start: Any, count: Any, statement: Any, step: int = 1) -> Any:
        k = tirx.Var(loop.loop_var.name, "int32")
        copies = [
            with_own_loops(substitute(statement, {loop.loop_var: start + k * step + each})) for each in range(step)
        ]
        return tirx.For(k, 0, count, tirx.ForKind.SERIAL, sequence(copies))

    count = last - first
    inside = [run(first, count // together, whole, together)]
    if together > 1:
        inside.append(run(first + count // together * together, count % together, whole))
    if not conditions:
        return sequence(inside)
    guarded = settle(loop, TAPS).body
    return sequence([run(0, first, guarded), *inside, run(last, taps - last, guarded)])


def _open(loop: Any) -> tuple[list[Any], Any, Any]:
    """Return the conditions of a product, the loop over a tile's pixels, and the innermost body."""
    conditions, pixels, statement = [], None, loop.body
    while True:
        if isinstance(statement, tirx.IfThenElse) and statement.else_case is None:
            conditions.append(statement.condition)
            statement = statement.then_case
        elif isinstance(statement, tirx.For) and pixels is None:
            pixels, statement = statement, statement.body
        else:
            break
    if pixels is None or not isinstance(pixels.extent, tirx.IntImm):
        refuse(loop, TAPS, "no loop over a tile's pixels is inside")
    return conditions, pixels, statement


def _met_by_all(loop: Any, conditions: list[Any], pixels: Any) -> tuple[Any, Any]:
    """Return the first tap for which all conditions hold at all pixels, and the end of such taps."""
    analyzer, taps = sym.Analyzer(), int(loop.extent)
    first: Any = tirx.const(0, "int32")
    last: Any = tirx.const(taps, "int32")
    for condition in conditions:
        slack = _slack(loop, condition)
        by_tap = _growth(loop, slack, loop.loop_var)
        by_pixel = _growth(loop, slack, pixels.loop_var)
        worst = pixels.min if by_pixel > 0 else pixels.min + pixels.extent - 1
        at_zero = analyzer.simplify(substitute(slack, {loop.loop_var: 0, pixels.loop_var: worst}))
        if by_tap > 0:
            first = tirx.max(first, (by_tap - 1 - at_zero) // by_tap)
        elif by_tap < 0:
            last = tirx.min(last, at_zero // -by_tap + 1)
        else:
            refuse(loop, TAPS, f"{condition} does not depend on the tap")
    first = tirx.min(first, taps)
    return analyzer.simplify(first), analyzer.simplify(tirx.max(first, last))


def _slack(loop: Any, condition: Any) -> Any:
    """Return an expression that is >= 0 where a bound holds."""
    if isinstance(condition, tirx.LE | tirx.LT):
        return condition.b - condition.a - isinstance(condition, tirx.LT)
    if isinstance(condition, tirx.GE | tirx.GT):
        return condition.a - condition.b - isinstance(condition, tirx.GT)
    refuse(loop, TAPS, f"{condition} is no bound")


def _growth(loop: Any, slack: Any, variable: Any) -> int:
    growth = sym.Analyzer().simplify(substitute(slack, {variable: variable + 1}) - slack)
    if not isinstance(growth, tirx.IntImm):
        refuse(loop, TAPS, f"{slack} does not grow or shrink steadily")
    return int(growth)
