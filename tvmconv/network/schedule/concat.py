"""Schedule of concatenations along the last axis: a loop for each part, without conditions inside.

Operators after a concatenation test for each element which part it is in, which prevents vectorization. Here each row is a sequence of
loops, one over each part.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import tvm
from tvm import s_tir, sym, tirx
from tvm.ir import Range
from tvm.s_tir import dlight

from ...lowering.common.rewrites import substitute
from ...lowering.cpu.rewrites.padding import uses
from .loops import choices, loop, one_stage, only_block, with_loops
from .stages import LEAST_PARALLEL

_LANES = 16
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


class Segments(dlight.ScheduleRule):  # type: ignore[misc]
    """Schedule of functions whose last axis has parts: vectors along each part of a row."""

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> s_tir.Schedule | None:
        """Return the schedule of a function; None if its last axis has no parts."""
        sch = one_stage(func)
        if sch is None or not choices(func.body):
            return None
        body = _by_rows(only_block(sch))
        return None if body is None else with_loops(sch, body)


def _by_rows(block: Any) -> Any:
    """Return the loops of a block that stores rows with parts; None for other blocks."""
    store, variables = block.body, [each.var for each in block.iter_vars]
    extents = [int(each.dom.extent) for each in block.iter_vars]
    if not isinstance(store, tirx.BufferStore) or len(variables) < 2:
        return None
    if not store.indices[-1].same_as(variables[-1]):
        return None
    bounds = bounds_of(store.value, variables[-1], extents[-1])
    # Functions with fewer elements than a vector gain nothing.
    if bounds is None or len(bounds) < 3 or prod(extents) < _LANES:
        return None
    integer = str(variables[0].ty.dtype)
    row = tirx.Var("row", integer)
    places: dict[Any, Any] = {}
    rest: Any = row
    for variable, extent in zip(reversed(variables[:-1]), reversed(extents[:-1]), strict=True):
        places[variable] = tirx.floormod(rest, extent)
        rest = tirx.floordiv(rest, extent)
    parts = [part for begin, end in pairwise(bounds) for part in _part(store, variables[-1], places, begin, end)]
    rows = prod(extents[:-1])
    kind = tirx.ForKind.PARALLEL if prod(extents) >= LEAST_PARALLEL else tirx.ForKind.SERIAL
    return loop(row, rows, kind, tirx.SeqStmt(parts))


def bounds_of(value: Any, variable: Any, extent: int) -> list[int] | None:
    """Return the values at which conditions on a variable change, 0 and the extent included; None if a condition is no comparison."""
    bounds = {0, extent}
    for call in choices(value):
        condition = call.args[0]
        if not uses(condition, variable):
            continue  # the same for all of a row
        if not isinstance(condition, _COMPARISONS):
            return None
        numbers = [int(side) for side in (condition.a, condition.b) if isinstance(side, tirx.IntImm)]
        if len(numbers) != 1 or not any(side.same_as(variable) for side in (condition.a, condition.b)):
            return None
        first = condition.a.same_as(variable)
        # v < n and v >= n change at n, v <= n and v > n at n + 1; the reverse for n on the left.
        behind = isinstance(condition, (tirx.LE, tirx.GT)) if first else isinstance(condition, (tirx.LT, tirx.GE))
        bounds.add(min(max(numbers[0] + behind, 0), extent))
    return sorted(bounds)


def _part(store: Any, variable: Any, places: dict[Any, Any], begin: int, end: int) -> list[Any]:
    """Return the loops over a part of a row: whole vectors, then the rest."""
    whole, loops = (end - begin) // _LANES * _LANES, []
    dtype = str(variable.ty.dtype)
    if whole:
        step, lane = tirx.Var("step", dtype), tirx.Var("lane", dtype)
        at = begin + step * _LANES + lane
        inside = store_of(store, variable, places, at, {step: whole // _LANES, lane: _LANES})
        vector = loop(lane, _LANES, tirx.ForKind.VECTORIZED, inside)
        loops.append(loop(step, whole // _LANES, tirx.ForKind.SERIAL, vector))
    if begin + whole < end:
        one = tirx.Var("one", dtype)
        rest = end - begin - whole
        body = store_of(store, variable, places, begin + whole + one, {one: rest})
        loops.append(loop(one, rest, tirx.ForKind.SERIAL, body))
    return loops


def store_of(store: Any, variable: Any, places: dict[Any, Any], at: Any, extents: dict[Any, int]) -> Any:
    """Return the store of one element with its conditions simplified away."""
    analyzer = sym.Analyzer()
    for each, extent in extents.items():
        analyzer.bind(each, Range(0, extent))
    indices = [substitute(index, {**places, variable: at}) for index in store.indices]
    # Indices of rows are substituted later: the simplifier would merge them with the part's.
    value = substitute(analyzer.simplify(substitute(store.value, {variable: at})), places)
    return tirx.BufferStore(store.buffer, value, indices)
