"""Pack a transposed convolution's OIX filter with vector reads and writes; each output channel's taps are contiguous in it.

A packed vector has one tap of several output channels, which are rows apart in the filter: a load for each lane. Instead, rows of taps are
read by vectors, in squares, and transposed in registers (`transposing`); taps of phases may be in any order, and those of other windows are
left out. Few taps are read as vectors of all of them, from which shuffles extract each tap.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import sym, tirx
from tvm.ir import TensorLoad

from ....algorithms.annotations import PART, TAP_COLUMNS
from ...common.rewrites import element_at, map_nodes, refuse, rewrite_loops, settle, substitute
from .padding import split_guard, uses
from .transposing.copies import loads_of, loop_over
from .transposing.registers import join_quarters, shuffle, transposed_vectors, vector_at

# Functions: the load of a lane at an offset of taps from its first; the store of a tap's vector.
_Element = Callable[[Any, Any], Any]
_Stored = Callable[[int, Any], Any]
# Axes of the filter before its taps: input channels, and the output channels of a group.
_CHANNEL_AXES = 2


def lay_taps_apart(body: Any) -> Any:
    """Return the statement with copies that request TAP_COLUMNS by vectors."""
    return rewrite_loops(body, TAP_COLUMNS, _laid_apart)


def _laid_apart(loop: Any) -> Any:
    """``for tap: for lane in vectorized: pack[.., tap, .., lane] = filter[c, o + lane, f(tap)]``, 0 where there is no such channel.

    The loop stays where the taps that lanes read are unknown, or differ between lanes.
    """
    lanes = loop.body
    if not isinstance(lanes, tirx.For) or lanes.kind != tirx.ForKind.VECTORIZED:
        refuse(loop, TAP_COLUMNS, f"its body is no loop over lanes: {lanes}")
    store, tap, lane = lanes.body, loop.loop_var, lanes.loop_var
    if not isinstance(store, tirx.BufferStore):
        refuse(loop, TAP_COLUMNS, f"it stores nothing: {store}")
    value, of_block, of_lanes = split_guard(store.value, tap, lane)
    loads, count = loads_of(value), int(lanes.extent)
    places = _places(loads, tap, int(loop.extent), lane, count)
    if of_block is not None or not places or (of_lanes is not None and uses(of_lanes, tap)):
        return settle(loop, TAP_COLUMNS)
    taps = prod(int(extent) for extent in loads[0].source.shape[_CHANNEL_AXES:])
    first = places[0]

    def element(row: Any, offset: Any) -> Any:
        """Load the element `offset` taps after the one that is read first."""

        def at(load: Any) -> Any:
            *before, last = [substitute(index, {tap: 0, lane: row}) for index in load.indices]
            return tirx.BufferLoad(load.source, [*before, last + offset])

        read = map_nodes(value, TensorLoad, at)
        if of_lanes is None:
            return read
        return tirx.if_then_else(substitute(of_lanes, {lane: row}), read, tirx.const(0, store.buffer.dtype))

    def stored(t: int, vector: Any) -> Any:
        *before, last = [substitute(index, {tap: t, lane: 0}) for index in store.indices]
        return tirx.BufferStore(store.buffer, vector, [*before, tirx.Ramp(last, 1, count)])

    # Distance of each tap from the first.
    behind = {place - first: t for t, place in enumerate(places)}
    if taps <= PART and of_lanes is None and _together(loads, tap, lane, count, taps):
        return _shuffled_taps(taps, first, count, store.buffer.dtype, behind, element, stored)
    if taps < PART:
        return settle(loop, TAP_COLUMNS)
    width = count if taps >= count and 2 * len(behind) > count else PART
    last = taps - first - width  # largest begin of a square
    return _squares(last, width, count, store.buffer.dtype, behind, element, stored)


def _shuffled_taps(
    taps: int, first: int, lanes: int, dtype: str, behind: dict[int, int], element: _Element, stored: _Stored
) -> Any:
    """Return the copy of a few `taps` of contiguous lanes; `first` is the tap that is read first."""
    rows, steps = tirx.decl_buffer((lanes * taps,), dtype, "rows", scope="local"), []
    for part in range(0, lanes * taps, lanes):
        x = tirx.Var("x", "int32")
        read = tirx.BufferStore(rows, element(0, part - first + x), [part + x])
        steps.append(loop_over(x, lanes, tirx.ForKind.VECTORIZED, read))
    vectors = [vector_at(rows, part, lanes) for part in range(0, lanes * taps, lanes)]
    for each, t in sorted(behind.items()):
        steps.append(stored(t, shuffle(vectors, [row * taps + first + each for row in range(lanes)])))
    return tirx.SeqStmt([tirx.AllocBuffer(rows), *steps])


def _squares(
    last: int, width: int, lanes: int, dtype: str, behind: dict[int, int], element: _Element, stored: _Stored
) -> Any:
    """Return the copy by squares of `width` taps that begin at `last` at the latest; other taps in them are left out."""
    rows, steps = tirx.decl_buffer((lanes * width,), dtype, "rows", scope="local"), []
    left = sorted(behind)
    while left:
        start = min(left[0], last)
        row, x = tirx.Var("row", "int32"), tirx.Var("x", "int32")
        read = tirx.BufferStore(rows, element(row, start + x), [row * width + x])
        steps.append(loop_over(row, lanes, tirx.ForKind.UNROLLED, loop_over(x, width, tirx.ForKind.VECTORIZED, read)))
        parts = range(0, lanes, width)
        square = [join_quarters([vector_at(rows, (part + j) * width, width) for part in parts]) for j in range(width)]
        columns = transposed_vectors(square, lanes)
        steps += [stored(behind[each], columns[each - start]) for each in left if each < start + width]
        left = [each for each in left if each >= start + width]
    return tirx.SeqStmt([tirx.AllocBuffer(rows), *steps])


def _places(loads: list[Any], tap: Any, taps: int, lane: Any, lanes: int) -> list[int]:
    """Return the filter's tap that all lanes read in each iteration; none if it is unknown, or lanes differ."""
    analyzer = sym.Analyzer()
    places: list[list[int]] = []
    for row in range(lanes):
        of_lane = []
        for t in range(taps):
            found = {_tap(load, {tap: t, lane: row}, analyzer) for load in loads}
            place = found.pop() if len(found) == 1 else None
            if place is None:
                return []
            of_lane.append(place)
        places.append(of_lane)
    return places[0] if all(of_lane == places[0] for of_lane in places) else []


def _tap(load: Any, at: dict[Any, int], analyzer: Any) -> int | None:
    """Return the tap of a channel that a load reads; None if it is unknown."""
    place: Any = 0
    pairs = list(zip(load.indices, load.source.shape, strict=True))[_CHANNEL_AXES:]
    for index, extent in pairs:
        place = place * extent + substitute(index, at)
    place = analyzer.simplify(place) if not isinstance(place, int) else place
    return int(place) if isinstance(place, int | tirx.IntImm) else None


def _together(loads: list[Any], tap: Any, lane: Any, lanes: int, taps: int) -> bool:
    """Return whether lanes' taps are consecutive in memory."""
    analyzer = sym.Analyzer()
    for load in loads:
        places = [
            element_at(load.source, [substitute(i, {tap: 0, lane: row}) for i in load.indices]) for row in range(lanes)
        ]
        if not all(analyzer.can_prove_equal(at, places[0] + row * taps) for row, at in enumerate(places)):
            return False
    return True
