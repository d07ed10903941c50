"""Transpose planar and channels-last data in registers: between a channel's row and a pixel's channels.

Copying planar data to pixels (TO_PIXELS) reads a row of each channel and stores channels together; storing sums to planar output
(TO_PLANES) does the opposite; and of a transposed convolution's filter, what lies together is summed, and lanes lie apart. One of
reading and writing is then by single elements, at one or two a cycle. Here such a pair of loops is cut into square blocks, which are
read and written by vectors: within 128 bits four vectors are transposed in 8 shuffles, then the 128-bit parts of longer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import sym, tirx
from tvm.ir import Range, TensorLoad
from tvm_ffi.structural import structural_equal

from ....algorithms.annotations import (
    INTERLEAVE,
    PART,
    TO_PIXELS,
    TO_PIXELS_IF_WHOLE,
    TO_PLANES,
    TO_PLANES_IF_WIDE,
    TRANSPOSE,
    TRANSPOSED_LANES,
)
from ....algorithms.cpu.model.counts import lines_evict
from ....algorithms.pairs import ROUND, calls
from ...common.rewrites import find_all, map_nodes, refuse, rewrite_loops, sequence, settle, substitute
from .padding import inside, split_guard, uses
from .rounding import rounding

# Squares whose columns are of several axes: which element of each, is then known before. 25 taps of 16 channels are 25.
MOST_UNROLLED = 25
_ELEMENTS = ("float32", "int32", "uint32")  # of copies: uint32 is a pair of 16 bits or a quad of bytes


def transpose(body: Any) -> Any:
    """Return the statement with the copies that ask for TRANSPOSE by vectors on both sides."""

    def transposed(loop: Any) -> Any:
        if not isinstance(loop.extent, tirx.IntImm):
            refuse(loop, TRANSPOSE, f"it takes {loop.extent} iterations, of which the number is to be known")
        way = _WAYS.get(loop.annotations[TRANSPOSE])
        if way is None:
            refuse(loop, TRANSPOSE, f"it is none of {', '.join(_WAYS)}")
        return way(loop)

    return rounding(rewrite_loops(body, TRANSPOSE, transposed))


def _keep(loop: Any, condition: str, reason: str) -> Any:
    """Return a loop as it is, if that was allowed by the request."""
    if loop.annotations[TRANSPOSE] != condition:
        refuse(loop, TRANSPOSE, reason)
    return settle(loop, TRANSPOSE)


def _to_pixels(loop: Any) -> Any:
    """``for column: for lane in vectorized: pixels[.., column, lane] = plane[lane, .., column]``, 0 where outside.

    A pair or quad is made of elements of two or four planes, by vectors of them. Outside it is 0, or what padding holds.
    """
    lanes = loop.body
    if isinstance(lanes, tirx.IfThenElse) and lanes.else_case is None and uses(lanes.condition, loop.loop_var):
        return _keep(loop, TO_PIXELS_IF_WHOLE, f"some columns are not copied: {lanes.condition}")
    if (
        not isinstance(lanes, tirx.For)
        or lanes.kind != tirx.ForKind.VECTORIZED
        or int(lanes.extent) not in TRANSPOSED_LANES
    ):
        refuse(loop, TRANSPOSE, f"its body is no loop over 4, 8 or 16 lanes: {lanes}")
    store, count = lanes.body, int(lanes.extent)
    if (
        not isinstance(store, tirx.BufferStore)
        or store.buffer.dtype not in _ELEMENTS
        or store.buffer.scope() == "local"
    ):
        refuse(loop, TRANSPOSE, f"it stores no {' or '.join(_ELEMENTS)} in memory: {store}")
    column, lane, dtype = loop.loop_var, lanes.loop_var, store.buffer.dtype
    value, of_rows, of_columns = split_guard(store.value, column, lane)
    padding = tirx.const(0, dtype) if value.same_as(store.value) else store.value.args[2]
    loads = loads_of(value)
    if not loads:
        return settle(loop, TRANSPOSE)  # TVM knows that all of it is padding
    apart = [load for load in loads if not runs(load, column, int(loop.extent))]
    if not all(_runs_in_memory(load, column, int(loop.extent)) for load in apart):
        refuse(loop, TRANSPOSE, f"it reads something else than a row: {value}")
    if not runs(store, lane, count):
        refuse(loop, TRANSPOSE, f"lanes do not lie together: {store}")
    first, end = inside(of_columns, column, int(loop.extent))
    if end - first < PART:
        return _keep(
            loop, TO_PIXELS_IF_WHOLE, f"{end - first} columns are known to be inside, of at least {PART}: {of_columns}"
        )

    def stored(at: Any, vector: Any) -> Any:
        indices = [substitute(index, {column: at, lane: 0}) for index in store.indices]
        return tirx.BufferStore(store.buffer, vector, [*indices[:-1], tirx.Ramp(indices[-1], 1, count)])

    width = count if end - first >= count else PART

    def padded(start: int, extent: int) -> Any:
        each = tirx.Var("column", "int32")
        return tirx.For(each, 0, extent, tirx.ForKind.SERIAL, stored(start + each, tirx.Broadcast(padding, count)))

    steps = [padded(start, extent) for start, extent in ((0, first), (end, int(loop.extent) - end)) if extent]
    block = tirx.Var("square", "int32")
    # The last block is shifted inwards, to end with the row, and may repeat columns of the one before.
    start = tirx.min(first + block * width, end - width) if (end - first) % width else first + block * width
    rows = tirx.decl_buffer((count * width,), dtype, "rows", scope="local")
    row, x = tirx.Var("row", "int32"), tirx.Var("x", "int32")
    elements = {column: start} if apart else {column: start + x}
    element = substitute(value, {lane: row, **elements})
    if apart:  # a row of several axes: from its first element on, along the last
        element = map_nodes(
            element, TensorLoad, lambda load: tirx.BufferLoad(load.source, [*load.indices[:-1], load.indices[-1] + x])
        )
    read = tirx.BufferStore(rows, element, [row * width + x])
    vectors = [
        join_quarters([_vector(rows, (at + j) * width, width) for at in range(0, count, width)]) for j in range(width)
    ]
    block_body = [
        tirx.AllocBuffer(rows),
        _loop(row, count, tirx.ForKind.UNROLLED, _loop(x, width, tirx.ForKind.VECTORIZED, read)),
        *(stored(start + i, vector) for i, vector in enumerate(transposed_vectors(vectors, count))),
    ]
    blocks = -(-(end - first) // width)
    kind = tirx.ForKind.UNROLLED if apart and blocks <= MOST_UNROLLED else tirx.ForKind.SERIAL
    steps.append(tirx.For(block, 0, blocks, kind, tirx.SeqStmt(block_body)))
    blocked = sequence(steps)
    return blocked if of_rows is None else tirx.IfThenElse(of_rows, blocked, padded(0, int(loop.extent)))


def _to_planes(loop: Any) -> Any:
    """``for channel: for x: output[channel, .., x] = f(tile[.., x, channel])``, or elements of rows that lie apart."""
    columns = loop.body
    if not isinstance(columns, tirx.For):
        return _keep(loop, TO_PLANES_IF_WIDE, f"rows have a single column, of at least {PART}")
    if not isinstance(columns.extent, tirx.IntImm):
        refuse(loop, TRANSPOSE, f"rows have {columns.extent} columns, of which the number is to be known")
    store, width = columns.body, int(columns.extent)
    if isinstance(store, tirx.IfThenElse) and store.else_case is None:
        analyzer = sym.Analyzer()
        analyzer.bind(columns.loop_var, Range(0, width))
        if uses(condition := analyzer.simplify(store.condition), loop.loop_var, columns.loop_var):
            refuse(loop, TRANSPOSE, f"some channels or columns are not stored: {condition}")
        whole = _with_body(loop, settle(columns, TRANSPOSE, store.then_case))
        return tirx.IfThenElse(condition, _to_planes(whole), None)
    count = next((lanes for lanes in TRANSPOSED_LANES if int(loop.extent) % lanes == 0), 0)
    if not isinstance(store, tirx.BufferStore) or not count:
        refuse(loop, TRANSPOSE, f"it does not store vectors of channels: {store}")
    if width < PART:
        return _keep(loop, TO_PLANES_IF_WIDE, f"rows have {width} columns, of at least {PART}")
    channel, x = loop.loop_var, columns.loop_var
    # Not what stands in an index: the address of the tile itself.
    sums = [each for each in loads_of(store.value) if each.source.scope() == "local" and uses(each, channel, x)]
    tile = _only(sums)
    if tile is None or not runs(tile, channel, int(loop.extent)):
        refuse(loop, TRANSPOSE, f"it reads something else than the channels of a tile: {store.value}")
    together = runs(store, x, width)
    side = count if width >= count else PART
    block = tirx.Var("block", "int32")
    starts = [*range(0, width - side, side), width - side]
    # Else registers hold the sums of other parts meanwhile.
    groups = [starts] if _evict(store, channel, int(loop.extent)) else [[start] for start in starts]
    squares = [tirx.decl_buffer((count * side,), tile.source.dtype, "rows", scope="local") for _ in groups[0]]

    def transposed(start: int, rows: Any) -> list[Any]:
        indices = [
            [substitute(index, {channel: block * count, x: start + i}) for index in tile.indices] for i in range(side)
        ]
        columns = [tirx.BufferLoad(tile.source, [*at[:-1], tirx.Ramp(at[-1], 1, count)]) for at in indices]
        return [
            tirx.BufferStore(rows, _part(vector, part, side), [tirx.Ramp((part + j) * side, 1, side)])
            for j, vector in enumerate(transposed_vectors(columns, count))
            for part in range(0, count, side)
        ]

    def write(start: int, rows: Any, lane: Any) -> Any:
        each = tirx.Var("x", "int32")
        element = tirx.BufferLoad(rows, [lane * side + each])
        value = map_nodes(store.value, TensorLoad, lambda load: element if load.source.same_as(tile.source) else load)
        variables = {channel: block * count + lane, x: start + each}
        at = [substitute(index, variables) for index in store.indices]
        write_row = _write if together else _write_apart
        return write_row(store.buffer, substitute(value, variables), at, each, side)

    steps: list[Any] = [tirx.AllocBuffer(rows) for rows in squares]
    for group in groups:
        parts = list(zip(group, squares, strict=True))
        steps += [step for part in parts for step in transposed(*part)]
        lane = tirx.Var("lane", "int32")
        lines = sequence([write(*part, lane) for part in parts])
        steps.append(_loop(lane, count, tirx.ForKind.UNROLLED, lines))
    return _loop(block, int(loop.extent) // count, tirx.ForKind.UNROLLED, tirx.SeqStmt(steps))


def _evict(store: Any, channel: Any, count: int) -> bool:
    """Return whether the planes of `count` channels take more lines than the L1 sets that they map to have.

    Parts of a line that are stored one after the other then wait for it once.
    """
    first, second = (substitute(store.indices[-1], {channel: at}) for at in (0, 1))
    apart = sym.Analyzer().simplify(second - first)
    known = len(store.indices) == 1 and isinstance(apart, tirx.IntImm)
    return known and lines_evict(np.dtype(str(store.buffer.dtype)).itemsize * int(apart), count)


def _write(buffer: Any, value: Any, at: Sequence[Any], x: Any, count: int) -> Any:
    """Return the store of values of so many contiguous `x` at `at`; one instruction if that rounds them."""
    if not calls(value, ROUND):
        return _loop(x, count, tirx.ForKind.VECTORIZED, tirx.BufferStore(buffer, value, at))
    values = tirx.decl_buffer((count,), "float32", "rounded", scope="local")
    keep = _loop(x, count, tirx.ForKind.VECTORIZED, tirx.BufferStore(values, value.args[1], [x]))
    rounded = tirx.call_pure_extern(f"uint16x{count}", f"{ROUND}_{count}", _vector(values, 0, count))
    first = [substitute(index, {x: 0}) for index in at]
    stored = tirx.BufferStore(buffer, rounded, [*first[:-1], tirx.Ramp(first[-1], 1, count)])
    return tirx.SeqStmt([tirx.AllocBuffer(values), keep, stored])


def _write_apart(buffer: Any, value: Any, at: Sequence[Any], x: Any, count: int) -> Any:
    """Return the stores of values of so many `x`, computed by vectors, one by one at `at`."""
    row = tirx.decl_buffer((count,), buffer.dtype, "row", scope="local")
    each = tirx.Var("x", "int32")
    store = tirx.BufferStore(buffer, tirx.BufferLoad(row, [each]), [substitute(index, {x: each}) for index in at])
    elements = _loop(each, count, tirx.ForKind.UNROLLED, store)
    return tirx.SeqStmt([tirx.AllocBuffer(row), _write(row, value, [x], x, count), elements])


def _interleave(loop: Any) -> Any:
    """``for x in vectorized: output[.., x] = f(sums[x % phases, .., x // phases])``, all of it or nothing under a condition."""
    store, extent = loop.body, int(loop.extent)
    if isinstance(store, tirx.IfThenElse) and store.else_case is None:
        if uses(store.condition, loop.loop_var):
            refuse(loop, TRANSPOSE, f"some columns are not stored: {store.condition}")
        return tirx.IfThenElse(store.condition, _interleave(_with_body(loop, store.then_case)), None)
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(store, tirx.BufferStore):
        refuse(loop, TRANSPOSE, f"it is no vectorized loop around a store: {store}")
    load = _only([load for load in loads_of(store.value) if load.source.scope() == "local"])
    if load is None or not runs(store, loop.loop_var, extent):
        refuse(loop, TRANSPOSE, f"it does not store sums that lie together: {store}")
    column = tirx.Var("column", "int32")
    for phases in range(2, extent // PART + 1):
        of_phases = [substitute(load, {loop.loop_var: column * phases + phase}) for phase in range(phases)]
        if extent % phases == 0 and all(runs(at, column, extent // phases) for at in of_phases):
            break
    else:
        refuse(loop, TRANSPOSE, f"sums of a phase do not lie together: {load}")
    count = extent // phases
    firsts = [[substitute(index, {column: 0}) for index in each.indices] for each in of_phases]
    vectors = [tirx.BufferLoad(load.source, [*at[:-1], tirx.Ramp(at[-1], 1, count)]) for at in firsts]
    row = tirx.decl_buffer((extent,), "float32", "row", scope="local")
    together = [
        tirx.BufferStore(
            row,
            shuffle(vectors, [x % phases * count + x // phases for x in range(start, start + count)]),
            [tirx.Ramp(start, 1, count)],
        )
        for start in range(0, extent, count)
    ]
    part, lane = tirx.Var("part", "int32"), tirx.Var("lane", "int32")
    element = tirx.BufferLoad(row, [part * count + lane])
    value = map_nodes(store.value, TensorLoad, lambda each: element if each.source.same_as(load.source) else each)
    variables = {loop.loop_var: part * count + lane}
    stored = tirx.BufferStore(
        store.buffer, substitute(value, variables), [substitute(i, variables) for i in store.indices]
    )
    write = _loop(part, phases, tirx.ForKind.UNROLLED, _loop(lane, count, tirx.ForKind.VECTORIZED, stored))
    return tirx.SeqStmt([tirx.AllocBuffer(row), *together, write])


_WAYS = {
    TO_PIXELS: _to_pixels,
    TO_PIXELS_IF_WHOLE: _to_pixels,
    TO_PLANES: _to_planes,
    TO_PLANES_IF_WIDE: _to_planes,
    INTERLEAVE: _interleave,
}


def transposed_vectors(vectors: list[Any], lanes: int) -> list[Any]:
    """Return, from 4 or `lanes` vectors, the vectors of the elements at each position: of all, or within each part."""
    if len(vectors) > PART:
        # Parts first: LLVM would else compute the first stage for each part again, to spare the others' lanes.
        by_part = list(zip(*(_transposed_parts(vectors[i::PART]) for i in range(PART)), strict=True))
    else:
        by_part = [tuple(vectors)]
    return [each for quad in by_part for each in _transposed_within_parts(quad, lanes)]


def _transposed_within_parts(vectors: Sequence[Any], lanes: int) -> list[Any]:
    """Return four vectors whose parts are those of the given ones, transposed: unpcklps and its kin."""
    a, b, c, d = vectors
    low, high = (0, lanes, 1, lanes + 1), (2, lanes + 2, 3, lanes + 3)
    firsts, seconds = (0, 1, lanes, lanes + 1), (2, 3, lanes + 2, lanes + 3)

    def each_part(one: Any, other: Any, order: tuple[int, ...]) -> Any:
        return shuffle([one, other], [part + lane for part in range(0, lanes, PART) for lane in order])

    return [
        each_part(each_part(a, b, ends), each_part(c, d, ends), halves)
        for ends in (low, high)
        for halves in (firsts, seconds)
    ]


def _transposed_parts(vectors: list[Any]) -> list[Any]:
    """Return the vectors of all first parts, all second ones, and so on: vshuff32x4 takes two parts of each of two."""

    def parts(one: Any, other: Any, *order: int) -> Any:
        return shuffle([one, other], [part * PART + lane for part in order for lane in range(PART)])

    if len(vectors) == 2:
        return [parts(*vectors, 0, 2), parts(*vectors, 1, 3)]
    a, b, c, d = vectors
    halves = [(parts(a, b, *order), parts(c, d, *order)) for order in ((0, 1, 4, 5), (2, 3, 6, 7))]
    return [parts(*half, *order) for half in halves for order in ((0, 2, 4, 6), (1, 3, 5, 7))]


def join_quarters(vectors: list[Any]) -> Any:
    """Return quarters of a vector, of 128 bits each, as one."""
    if len(vectors) == 1:
        return vectors[0]
    return shuffle(vectors, list(range(len(vectors) * PART)))


def _part(vector: Any, part: int, lanes: int) -> Any:
    return shuffle([vector], list(range(part, part + lanes)))


def shuffle(vectors: list[Any], lanes: list[int]) -> Any:
    """Return a vector of some lanes of vectors, which are counted through."""
    return tirx.Shuffle(vectors, [tirx.const(lane, "int32") for lane in lanes])


def _vector(buffer: Any, start: int, lanes: int) -> Any:
    return tirx.BufferLoad(buffer, [tirx.Ramp(start, 1, lanes)])


def _loop(variable: Any, extent: int, kind: Any, body: Any) -> Any:
    return tirx.For(variable, 0, extent, kind, body)


def _with_body(loop: Any, body: Any) -> Any:
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations)


def loads_of(value: Any) -> list[Any]:
    """Return the loads of buffers in `value`."""
    return find_all(value, TensorLoad)


def _only(loads: list[Any]) -> Any:
    """Return the one load of which all are copies; None if there are none, or others."""
    return loads[0] if loads and all(structural_equal(load, loads[0]) for load in loads) else None


def runs(access: Any, variable: Any, extent: int) -> bool:
    """Return whether elements are contiguous as `variable` grows up to `extent`, along the last index alone.

    An axis with one element is no axis, unless padding around it is meant.
    """
    shape = (access.source if isinstance(access, TensorLoad) else access.buffer).shape
    pairs = zip(access.indices, shape, strict=True)
    indices = [at for at, size in pairs if not isinstance(size, tirx.IntImm) or int(size) > 1 or uses(at, variable)]
    analyzer = sym.Analyzer()
    analyzer.bind(variable, Range(0, extent))
    firsts = [substitute(index, {variable: 0}) for index in indices]
    beyond = [*[0] * (len(firsts) - 1), variable]
    return all(
        analyzer.can_prove_equal(index, first + by) for index, first, by in zip(indices, firsts, beyond, strict=True)
    )


def _runs_in_memory(access: Any, variable: Any, extent: int) -> bool:
    """Return whether elements are contiguous as `variable` grows up to `extent`, along several axes of a dense array."""
    if len(access.source.strides):
        return False
    offset: Any = 0
    for index, elements in zip(access.indices, access.source.shape, strict=True):
        offset = offset * elements + index
    analyzer = sym.Analyzer()
    analyzer.bind(variable, Range(0, extent))
    return bool(analyzer.can_prove_equal(offset, substitute(offset, {variable: 0}) + variable))
