"""Schedule of functions that read along one axis and write along another: squares are transposed in registers.

Otherwise vectors of the output would be gathered element by element, with a cache line fetched for each. Concatenations along the written
axis have squares for each part.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from ...lowering.common.rewrites import substitute
from ...lowering.cpu.rewrites.squares import SQUARE, crosses
from ...lowering.cpu.rewrites.transposing.copies import loads_of
from .concat import bounds_of, store_of
from .loops import choices, loop, one_stage, only_block, with_loops
from .stages import LEAST_PARALLEL

# Sides of a square: a vector of AVX-512, of AVX2, or of SSE.
_SIDES = (16, 8, 4)
# Side of a block of squares that one thread transposes, so that pages stay in the TLB until all their elements are read: 64x64 numbers.
_TOGETHER = 64
_TYPES = ("float32", "int32", "uint32", "float16", "bfloat16", "uint16", "int16")


class Transposes(dlight.ScheduleRule):  # type: ignore[misc]
    """Schedule, by squares, of functions that read along another axis than they write.

    Parameters
    ----------
    lanes
        Lanes of 32 bits in a vector.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> s_tir.Schedule | None:
        """Return the schedule of a function; None if it reads nothing along another axis."""
        sch = one_stage(func)
        body = None if sch is None else self._by_squares(only_block(sch))
        return None if sch is None or body is None else with_loops(sch, body)

    def _by_squares(self, block: Any) -> Any:
        store, variables = block.body, [each.var for each in block.iter_vars]
        extents = [int(each.dom.extent) for each in block.iter_vars]
        if not isinstance(store, tirx.BufferStore) or len(variables) < 2:
            return None
        bounds = bounds_of(store.value, variables[-1], extents[-1])
        if not store.indices[-1].same_as(variables[-1]) or bounds is None:
            return None
        parts = []
        for begin, end in pairwise(bounds):
            inside = tirx.Var("inside", str(variables[-1].ty.dtype))
            part = store_of(store, variables[-1], {}, begin + inside, {inside: end - begin})
            parts.append(self._part(part, [*variables[:-1], inside], [*extents[:-1], end - begin]))
        if any(part is None for part in parts):
            return None
        return tirx.SeqStmt(parts) if len(parts) > 1 else parts[0]

    def _part(self, store: Any, variables: list[Any], extents: list[int]) -> Any:
        """Return the loops of a part; None if it reads nothing along another axis."""
        if choices(store.value):  # a condition may guard a read beyond its data
            return None
        loads = [load for load in loads_of(store.value) if str(load.source.dtype) in _TYPES]
        for axis, (variable, extent) in enumerate(zip(variables[:-1], extents[:-1], strict=True)):
            most = min(self._lanes, extent, extents[-1])
            side = next((each for each in _SIDES if each <= most), 0)
            if side and any(crosses(load, variable, variables[-1], side) for load in loads):
                return self._loops(store, variables, extents, axis, side)
        return None

    def _loops(self, store: Any, variables: list[Any], extents: list[int], axis: int, side: int) -> Any:
        """Return the loops over squares of `axis` and the last axis."""
        integer = str(variables[0].ty.dtype)
        sides = (axis, len(variables) - 1)
        blocks = {at: -(-extents[at] // _TOGETHER) for at in sides}
        counts = [blocks.get(at, extent) for at, extent in enumerate(extents)]
        task = tirx.Var("task", integer)
        rest: Any = task
        places: dict[int, Any] = {}
        for at in reversed(range(len(counts))):
            places[at] = tirx.floormod(rest, counts[at])
            rest = tirx.floordiv(rest, counts[at])
        row, lane = tirx.Var("row", integer), tirx.Var("lane", integer)
        steps = {at: tirx.Var("step", integer) for at in sides}
        values = {variables[at]: place for at, place in places.items() if at not in sides}
        for at, inner in zip(sides, (row, lane), strict=True):
            start = places[at] * _TOGETHER + steps[at] * side
            if extents[at] % side:  # the last square ends with the axis, and may overlap the one before
                start = tirx.min(start, extents[at] - side)
            values[variables[at]] = start + inner
        inner = tirx.BufferStore(
            store.buffer, substitute(store.value, values), [substitute(index, values) for index in store.indices]
        )
        body = loop(lane, side, tirx.ForKind.VECTORIZED, inner)
        body = loop(row, side, tirx.ForKind.SERIAL, body, {SQUARE: 1})
        for at in reversed(sides):
            left = tirx.min(extents[at] - places[at] * _TOGETHER, tirx.const(_TOGETHER, integer))
            count = (
                tirx.floordiv(left + (side - 1), side)
                if extents[at] % _TOGETHER
                else tirx.const(_TOGETHER // side, integer)
            )
            body = loop(steps[at], count, tirx.ForKind.SERIAL, body)
        kind = tirx.ForKind.PARALLEL if prod(extents) >= LEAST_PARALLEL else tirx.ForKind.SERIAL
        return loop(task, prod(counts), kind, body)
