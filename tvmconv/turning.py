"""Planes and pixels turned into each other in registers: what lies along a row of a channel, and a pixel's channels.

Copying planar data to pixels reads a row of each channel and stores channels together; storing sums to planar output
does the opposite; and of a transposed convolution's filter, what lies together is summed, and lanes lie apart. One of
reading and writing is then by single elements, at one or two a cycle. Here such a pair of loops is cut
into squares, which are read and written by vectors: within 128 bits four vectors turn in 8 shuffles, and then the
128-bit parts of vectors that are longer do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import sym, tirx
from tvm.ir import Call, Op, Range, TensorLoad
from tvm_ffi.structural import structural_map

PART = 4  # floats in 128 bits, within which shuffles take one cycle on every x86
LANES = (16, 8, 4)
IF_THEN_ELSE = Op.get("prim.if_then_else")


def turn(body: Any) -> Any:
    """Return the statement with copies between planes and pixels by vectors on both sides."""

    def turned(loop: Any) -> Any:
        return (has_extent(loop) and (_to_pixels(loop) or _to_planes(loop) or _interleaved(loop))) or loop

    return structural_map(body, (tirx.For, turned))


def has_extent(loop: Any) -> bool:
    """Whether the number of iterations is known: not of a copy for the last of several parts, which is smaller."""
    return isinstance(loop.extent, tirx.IntImm)


def _to_pixels(loop: Any) -> Any:
    """``for column: for lane in vectorized: pixels[.., column, lane] = plane[lane, .., column]``, 0 where outside."""
    lanes = loop.body
    if loop.kind != tirx.ForKind.SERIAL or not isinstance(lanes, tirx.For):
        return None
    if lanes.kind != tirx.ForKind.VECTORIZED or int(lanes.extent) not in LANES:
        return None
    store, count = lanes.body, int(lanes.extent)
    if not isinstance(store, tirx.BufferStore) or store.buffer.dtype != "float32" or store.buffer.scope() == "local":
        return None
    column, lane = loop.loop_var, lanes.loop_var
    value, of_rows, of_columns = guarded(store.value, column, lane)
    loads = loads_of(value)
    if (
        len(loads) != 1
        or not _runs(loads[0].indices, column, int(loop.extent))
        or not _runs(store.indices, lane, count)
    ):
        return None
    first, end = inside(of_columns, column, int(loop.extent))
    if end - first < PART:
        return None

    def stored(at: Any, vector: Any) -> Any:
        indices = [replaced(index, {column: at, lane: 0}) for index in store.indices]
        return tirx.BufferStore(store.buffer, vector, [*indices[:-1], tirx.Ramp(indices[-1], 1, count)])

    width = count if end - first >= count else PART

    def zeros(start: int, extent: int) -> Any:
        each, zero = tirx.Var("column", "int32"), tirx.Broadcast(tirx.const(0, "float32"), count)
        return tirx.For(each, 0, extent, tirx.ForKind.SERIAL, stored(start + each, zero))

    steps = [zeros(start, extent) for start, extent in ((0, first), (end, int(loop.extent) - end)) if extent]
    square = tirx.Var("square", "int32")
    # The last square ends with the row, and may repeat columns of the one before.
    start = tirx.min(first + square * width, end - width) if (end - first) % width else first + square * width
    rows = tirx.decl_buffer((count * width,), "float32", "rows", scope="local")
    row, x = tirx.Var("row", "int32"), tirx.Var("x", "int32")
    read = tirx.BufferStore(rows, replaced(value, {lane: row, column: start + x}), [row * width + x])
    vectors = [
        _joined([_vector(rows, (part + j) * width, width) for part in range(0, count, width)]) for j in range(width)
    ]
    square_body = [
        tirx.AllocBuffer(rows),
        _loop(row, count, tirx.ForKind.UNROLLED, _loop(x, width, tirx.ForKind.VECTORIZED, read)),
        *(stored(start + i, vector) for i, vector in enumerate(_turned(vectors, count))),
    ]
    squares = -(-(end - first) // width)
    steps.append(tirx.For(square, 0, squares, tirx.ForKind.SERIAL, tirx.SeqStmt(square_body)))
    turned = steps[0] if len(steps) == 1 else tirx.SeqStmt(steps)
    return turned if of_rows is None else tirx.IfThenElse(of_rows, turned, zeros(0, int(loop.extent)))


def _to_planes(loop: Any) -> Any:
    """``for channel: for x: output[channel, .., x] = f(tile[.., x, channel])``."""
    columns = loop.body
    if loop.kind != tirx.ForKind.SERIAL or not isinstance(columns, tirx.For) or columns.kind != tirx.ForKind.SERIAL:
        return None
    if not has_extent(columns):
        return None
    store, width = columns.body, int(columns.extent)
    count = next((lanes for lanes in LANES if int(loop.extent) % lanes == 0), 0)
    if not isinstance(store, tirx.BufferStore) or not count or width < PART:
        return None
    channel, x = loop.loop_var, columns.loop_var
    tiles = [load for load in loads_of(store.value) if load.source.scope() == "local"]
    if len(tiles) != 1 or not _runs(tiles[0].indices, channel, int(loop.extent)) or not _runs(store.indices, x, width):
        return None
    (tile,) = tiles
    side = count if width >= count else PART
    block = tirx.Var("block", "int32")
    rows = tirx.decl_buffer((count * side,), "float32", "rows", scope="local")

    def square(start: int) -> list[Any]:
        lane, each = tirx.Var("lane", "int32"), tirx.Var("x", "int32")
        indices = [
            [replaced(index, {channel: block * count, x: start + i}) for index in tile.indices] for i in range(side)
        ]
        columns = [tirx.BufferLoad(tile.source, [*at[:-1], tirx.Ramp(at[-1], 1, count)]) for at in indices]
        parts = [
            tirx.BufferStore(rows, _part(vector, part, side), [tirx.Ramp((part + j) * side, 1, side)])
            for j, vector in enumerate(_turned(columns, count))
            for part in range(0, count, side)
        ]
        element = tirx.BufferLoad(rows, [lane * side + each])
        value = structural_map(
            store.value, (TensorLoad, lambda load: element if load.source.same_as(tile.source) else load)
        )
        variables = {channel: block * count + lane, x: start + each}
        moved = [replaced(index, variables) for index in store.indices]
        write = tirx.BufferStore(store.buffer, replaced(value, variables), moved)
        return [*parts, _loop(lane, count, tirx.ForKind.UNROLLED, _loop(each, side, tirx.ForKind.VECTORIZED, write))]

    starts = [*range(0, width - side, side), width - side]
    steps = [step for start in starts for step in square(start)]
    return _loop(
        block, int(loop.extent) // count, tirx.ForKind.UNROLLED, tirx.SeqStmt([tirx.AllocBuffer(rows), *steps])
    )


def _interleaved(loop: Any) -> Any:
    """``for x in vectorized: output[.., x] = f(sums[x % phases, .., x // phases])``."""
    store, extent = loop.body, int(loop.extent)
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(store, tirx.BufferStore):
        return None
    sums = [load for load in loads_of(store.value) if load.source.scope() == "local"]
    if len(sums) != 1 or not _runs(store.indices, loop.loop_var, extent):
        return None
    (load,) = sums
    column = tirx.Var("column", "int32")
    for phases in range(2, extent // PART + 1):
        of_phases = [
            [replaced(index, {loop.loop_var: column * phases + phase}) for index in load.indices]
            for phase in range(phases)
        ]
        if extent % phases == 0 and all(_runs(at, column, extent // phases) for at in of_phases):
            break
    else:
        return None
    count = extent // phases
    firsts = [[replaced(index, {column: 0}) for index in indices] for indices in of_phases]
    vectors = [tirx.BufferLoad(load.source, [*at[:-1], tirx.Ramp(at[-1], 1, count)]) for at in firsts]
    row = tirx.decl_buffer((extent,), "float32", "row", scope="local")
    together = [
        tirx.BufferStore(
            row,
            _shuffled(vectors, [x % phases * count + x // phases for x in range(start, start + count)]),
            [tirx.Ramp(start, 1, count)],
        )
        for start in range(0, extent, count)
    ]
    part, lane = tirx.Var("part", "int32"), tirx.Var("lane", "int32")
    element = tirx.BufferLoad(row, [part * count + lane])
    value = structural_map(
        store.value, (TensorLoad, lambda each: element if each.source.same_as(load.source) else each)
    )
    variables = {loop.loop_var: part * count + lane}
    moved = tirx.BufferStore(store.buffer, replaced(value, variables), [replaced(i, variables) for i in store.indices])
    write = _loop(part, phases, tirx.ForKind.UNROLLED, _loop(lane, count, tirx.ForKind.VECTORIZED, moved))
    return tirx.SeqStmt([tirx.AllocBuffer(row), *together, write])


def _turned(vectors: list[Any], lanes: int) -> list[Any]:
    """Return, of 4 or `lanes` vectors, what lies at each of so many positions: of all, or within each part."""
    if len(vectors) > PART:
        # Parts first: LLVM would else compute the first stage for each part anew, to spare the others' lanes.
        by_part = list(zip(*(_turned_whole(vectors[i::PART], lanes) for i in range(PART)), strict=True))
    else:
        by_part = [tuple(vectors)]
    return [each for quad in by_part for each in _turned_parts(quad, lanes)]


def _turned_parts(vectors: Sequence[Any], lanes: int) -> list[Any]:
    """Return four vectors whose parts are those of the given ones, turned: unpcklps and its kin."""
    a, b, c, d = vectors
    low, high = (0, lanes, 1, lanes + 1), (2, lanes + 2, 3, lanes + 3)
    firsts, seconds = (0, 1, lanes, lanes + 1), (2, 3, lanes + 2, lanes + 3)

    def each_part(one: Any, other: Any, places: tuple[int, ...]) -> Any:
        return _shuffled([one, other], [part + place for part in range(0, lanes, PART) for place in places])

    return [
        each_part(each_part(a, b, ends), each_part(c, d, ends), halves)
        for ends in (low, high)
        for halves in (firsts, seconds)
    ]


def _turned_whole(vectors: list[Any], lanes: int) -> list[Any]:
    """Return the vectors of all first parts, all second ones, and so on: vshuff32x4 takes two parts of each of two."""

    def parts(one: Any, other: Any, *places: int) -> Any:
        return _shuffled([one, other], [place * PART + lane for place in places for lane in range(PART)])

    if len(vectors) == 2:
        return [parts(*vectors, 0, 2), parts(*vectors, 1, 3)]
    a, b, c, d = vectors
    halves = [(parts(a, b, *places), parts(c, d, *places)) for places in ((0, 1, 4, 5), (2, 3, 6, 7))]
    return [parts(*half, *places) for half in halves for places in ((0, 2, 4, 6), (1, 3, 5, 7))]


def _joined(vectors: list[Any]) -> Any:
    if len(vectors) == 1:
        return vectors[0]
    return _shuffled(vectors, list(range(len(vectors) * PART)))


def _part(vector: Any, part: int, lanes: int) -> Any:
    return _shuffled([vector], list(range(part, part + lanes)))


def _shuffled(vectors: list[Any], places: list[int]) -> Any:
    return tirx.Shuffle(vectors, [tirx.const(place, "int32") for place in places])


def _vector(buffer: Any, start: int, lanes: int) -> Any:
    return tirx.BufferLoad(buffer, [tirx.Ramp(start, 1, lanes)])


def _loop(variable: Any, extent: int, kind: Any, body: Any) -> Any:
    return tirx.For(variable, 0, extent, kind, body)


def loads_of(value: Any) -> list[Any]:
    """Return what `value` reads of buffers."""
    found: list[Any] = []

    def keep(load: Any) -> Any:
        found.append(load)
        return load

    structural_map(value, (TensorLoad, keep))
    return found


def replaced(value: Any, variables: dict[Any, Any]) -> Any:
    """Return `value` with other expressions in place of variables."""

    def instead(var: Any) -> Any:
        for each, other in variables.items():
            if each.same_as(var):
                return tirx.const(other, "int32") if isinstance(other, int) else other
        return var

    return structural_map(value, (tirx.Var, instead))


def _runs(indices: Any, variable: Any, extent: int) -> bool:
    """Whether elements lie together as `variable` grows up to `extent`: the last index grows as it does, and no other."""
    analyzer = sym.Analyzer()
    analyzer.bind(variable, Range(0, extent))
    firsts = [replaced(index, {variable: 0}) for index in indices]
    beyond = [*[0] * (len(firsts) - 1), variable]
    return all(
        analyzer.can_prove_equal(index, first + by) for index, first, by in zip(indices, firsts, beyond, strict=True)
    )


def guarded(value: Any, *variables: Any) -> tuple[Any, Any, Any]:
    """Return what is read inside of some bounds; the bounds without `variables`, and those with, None where there are none."""
    if not isinstance(value, Call) or not value.op.same_as(IF_THEN_ELSE):
        return value, None, None
    bounds = _conjuncts(value.args[0])
    without, with_ = ([each for each in bounds if uses(each, *variables) == used] for used in (False, True))
    return value.args[1], *(tirx.all(*each) if each else None for each in (without, with_))


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def uses(value: Any, *variables: Any) -> bool:
    """Whether one of `variables` is in `value`."""
    return any(var.same_as(each) for var in tirx.analysis.undefined_vars(value, []) for each in variables)


def inside(condition: Any, column: Any, extent: int) -> tuple[int, int]:
    """Return the first column where the condition holds and the one after the last; (0, 0) if other things decide."""
    if condition is None:
        return 0, extent
    analyzer = sym.Analyzer()
    columns = [analyzer.simplify(replaced(condition, {column: x})) for x in range(extent)]
    if not all(hasattr(each, "value") for each in columns):
        return 0, 0
    held = [x for x, each in enumerate(columns) if each.value]
    return (held[0], held[-1] + 1) if held else (0, 0)
