"""Replace marked loops by AMX's tile instructions.

A definition multiplies pairs of bf16, or quads of integers, one by one (algorithms/pairs.py). A space marks the loops of a block of tiles by
their ROLE: over tiles of pixels, their rows, tiles of outputs, their lanes, and the pairs that are summed. The nests that clear or
initialize the sums, add products, and store the sums become instructions on tile registers, with addresses and strides from the loops'
indices. Several products, of terms, may be added (algorithms/terms.py). A loop marked by CONFIGURE configures the tiles' shapes at its
begin, and releases the registers at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import sym, tirx
from tvm.ir import StringImm, TensorLoad
from tvm_ffi.structural import structural_equal, structural_map

from ....algorithms.annotations import CONFIGURE, LANES, PAIRS, ROLE, ROWS, TILES, VECTORS
from ....algorithms.pairs import DOT, DOT_QUADS, dot_of
from ....errors import RewriteError
from ....isa.x86.amx import TILES as AMX
from ....targets.cpus import LINE_BYTES
from ...common.rewrites import IMPORT, element_at, map_nodes, rewrite_loops, sequence, settle, substitute
from ..packing import elements

# Function: the first element of an array of sums that is aligned to a cache line.
LINE_BEGIN = "tvmconv_line_begin"
_TEXT = f"""{AMX.text}
define i32 @{LINE_BEGIN}(ptr %array) alwaysinline nounwind {{
  %address = ptrtoint ptr %array to i32
  %below = sub i32 0, %address
  %short = and i32 %below, 63
  %element = lshr i32 %short, 2
  ret i32 %element
}}
"""
_BYTES = 4  # of a sum, a pair and a quad
_MULTIPLY = {dot: AMX.multiply[types] for types, dot in {("bf16", "bf16"): DOT, **DOT_QUADS}.items()}


def by_tiles(body: Any) -> Any:
    """Return the statement with marked loops replaced by tile instructions.

    Raises
    ------
    RewriteError
        If marked loops have another form, which is an error of the space.
    """
    return rewrite_loops(body, CONFIGURE, _configure)


def _configure(loop: Any) -> Any:
    shapes: set[tuple[int, int, int, int]] = set()
    stored: list[Any] = []
    body = map_nodes(loop.body, tirx.For, partial(_instructions, shapes, stored))
    for buffer in stored:
        body = _align(buffer, body)
    if len(shapes) != 1:
        raise RewriteError(f"tiles of a task must have one shape, not {sorted(shapes)}")
    ((tiles, vectors, rows, depth),) = shapes
    configuration = tirx.decl_buffer((16,), "uint32", "tile_shapes", scope="local")
    words = _configuration(tiles, vectors, rows, depth)
    stores = [tirx.BufferStore(configuration, tirx.const(word, "uint32"), [i]) for i, word in enumerate(words)]
    refused = tirx.call_extern("int32", AMX.allow) != 0
    task = [
        tirx.IfThenElse(refused, tirx.Evaluate(tirx.tvm_throw_last_error()), None),
        tirx.AllocBuffer(configuration),
        *stores,
        _call(AMX.configure, tirx.address_of(tirx.BufferLoad(configuration, [0]))),
        body,
        _call(AMX.release),
    ]
    body = tirx.AttrStmt(tirx.const(0, "int32"), IMPORT, StringImm(_TEXT), tirx.SeqStmt(task))
    return settle(loop, CONFIGURE, body)


def _configuration(tiles: int, vectors: int, rows: int, depth: int) -> list[int]:
    """Return the words that configure the registers for sums, data and filter."""
    sums, lefts, registers = tiles * vectors, _lefts(tiles, vectors), range(AMX.registers)
    columns = [_BYTES * (depth if each in lefts else AMX.side) for each in registers]
    counts = [depth if each >= sums and each not in lefts else rows for each in registers]
    octets = AMX.configuration(list(zip(counts, columns, strict=True)))
    return [int.from_bytes(octets[i : i + 4], "little") for i in range(0, len(octets), 4)]


def _lefts(tiles: int, vectors: int) -> range:
    """Return the registers for data, after those for sums: one for each tile if data has no more tiles than the filter."""
    sums = tiles * vectors
    left = tiles if tiles <= vectors else AMX.registers - sums - vectors
    return range(sums, sums + min(left, tiles))


def _rights(tiles: int, vectors: int) -> range:
    return range(_lefts(tiles, vectors).stop, AMX.registers)


def _align(buffer: Any, body: Any) -> Any:
    """Align a buffer to which tiles are stored to a cache line: TVM aligns arrays on the stack to 16 bytes."""
    room = tirx.decl_buffer((elements(buffer) + LINE_BYTES // _BYTES,), buffer.dtype, buffer.name, scope="local")
    first = tirx.call_extern("int32", LINE_BEGIN, tirx.address_of(tirx.BufferLoad(room, [0])))

    def at(indices: Any) -> list[Any]:
        return [first + sym.Analyzer().simplify(element_at(buffer, indices))]

    def load(each: Any) -> Any:
        return tirx.BufferLoad(room, at(each.indices)) if each.source.same_as(buffer) else each

    def store(each: Any) -> Any:
        return tirx.BufferStore(room, each.value, at(each.indices)) if each.buffer.same_as(buffer) else each

    def allocation(each: Any) -> Any:
        return tirx.AllocBuffer(room) if each.buffer.same_as(buffer) else each

    return structural_map(body, [(TensorLoad, load), (tirx.BufferStore, store), (tirx.AllocBuffer, allocation)])


def _instructions(shapes: set[Any], stored: list[Any], loop: Any) -> Any:
    """Return the instructions for a nest of marked loops; add its tiles' shape to `shapes`, and a local buffer it stores to `stored`."""
    if loop.annotations.get(ROLE) != TILES:
        return loop
    loops, body = _nest(loop)
    if not isinstance(body, tirx.BufferStore):
        raise RewriteError(f"a nest of tiles must hold one store, not {body}")
    tiles, rows, vectors, lanes = (int(loops[role].extent) for role in (TILES, ROWS, VECTORS, LANES))
    if lanes != AMX.side:
        raise RewriteError(f"a tile has {AMX.side} lanes, not {lanes}")
    sums = [(a, v, a * vectors + v) for a in range(tiles) for v in range(vectors)]
    value = body.value.value if isinstance(body.value, tirx.Cast) else body.value
    if PAIRS not in loops and isinstance(value, TensorLoad) and value.source.scope() != "local":  # no sums
        first = _AmxTiles(value, loops, None, VECTORS, ROWS, LANES)
        return sequence([_call(AMX.load, _number(reg), *first.at(a, v)) for a, v, reg in sums])
    if PAIRS not in loops and isinstance(value, TensorLoad):
        if body.buffer.scope() == "local":  # a workspace is aligned already
            stored.append(body.buffer)
        target = _AmxTiles(body, loops, TILES, VECTORS, ROWS, LANES)
        return sequence([_call(AMX.store, _number(reg), *target.at(a, v)) for a, v, reg in sums])
    if PAIRS not in loops:
        return sequence([_call(AMX.zero, _number(reg)) for *_, reg in sums])
    depth = int(loops[PAIRS].extent)
    shapes.add((tiles, vectors, rows, depth))
    products = _products(body.value.b) if isinstance(body.value, tirx.Add) else []
    if not products:
        raise RewriteError(f"tiles multiply pairs, not {body.value}")
    multiplied = []
    for dot, left, right in products:
        data = _AmxTiles(left, loops, TILES, None, ROWS, PAIRS)
        multiplied.append((_MULTIPLY[dot], data, _AmxTiles(right, loops, None, VECTORS, PAIRS, LANES)))
    return tirx.SeqStmt(_multiply(tiles, vectors, multiplied))


def _products(value: Any) -> list[tuple[str, Any, Any]]:
    """Return the products that `value` sums, in order: name and both operands; none for other values."""
    if (dot := dot_of(value)) in _MULTIPLY:
        return [(dot, *value.args[1:])]
    parts = [_products(each) for each in (value.a, value.b)] if isinstance(value, tirx.Add) else []
    return [product for part in parts for product in part] if all(parts) else []


def _multiply(tiles: int, vectors: int, products: Sequence[tuple[str, _AmxTiles, _AmxTiles]]) -> list[Any]:
    """Return loads and multiplications: tiles of the operand with fewer are held in registers, each of the other's is loaded before its use.

    Each of several products is added to all sums before the next one, so that additions to a sum are far apart; the next product reuses
    held tiles if they are the same.
    """
    lefts, rights, few = _lefts(tiles, vectors), _rights(tiles, vectors), tiles <= vectors
    made: list[Any] = []
    held: _AmxTiles | None = None

    def load(tile: _AmxTiles, registers: range, a: int, v: int) -> Any:
        return _call(AMX.load, _number(registers[(a + v) % len(registers)]), *tile.at(a, v))

    for multiply, data, weights in products:
        if few:
            kept, firsts = data, [load(data, lefts, a, 0) for a in range(tiles)]
            pairs = [(a, v) for v in range(vectors) for a in range(tiles)]
        else:
            kept, firsts = weights, [load(weights, rights, 0, v) for v in range(vectors)]
            pairs = [(a, v) for a in range(tiles) for v in range(vectors)]
        made += [] if kept.same_as(held) else firsts
        held = kept
        for a, v in pairs:
            if few and a == 0:
                made.append(load(weights, rights, 0, v))
            if not few and v == 0:
                made.append(load(data, lefts, a, 0))
            numbers = (a * vectors + v, lefts[a % len(lefts)], rights[v % len(rights)])
            made.append(_call(multiply, *map(_number, numbers)))
    return [*made, tirx.Evaluate(tirx.call_extern("void", AMX.awake))]


class _AmxTiles:
    """Addresses of the tiles of a load or store."""

    def __init__(self, access: Any, loops: dict[str, Any], tile: str | None, vector: str | None, row: str, column: str):
        if not isinstance(access, (tirx.BufferStore, TensorLoad)):
            raise RewriteError(f"tiles are loaded from memory, not from {access}")
        self._access, self._loops = access, loops
        self._buffer = access.buffer if isinstance(access, tirx.BufferStore) else access.source
        self._of = (tile, vector)
        self._stride = self._distance(row)
        if int(loops[column].extent) > 1 and self._distance(column) != 1:
            raise RewriteError(f"columns of a tile must be neighbours in {access}")

    def same_as(self, other: _AmxTiles | None) -> bool:
        """Return whether `other` has the same tiles."""
        return other is not None and structural_equal(self._access, other._access)

    def at(self, tile: int, vector: int) -> tuple[Any, Any]:
        """Return the address of a tile, and the bytes between its rows."""
        values = {loop.loop_var: loop.min for loop in self._loops.values()}
        for role, number in zip(self._of, (tile, vector), strict=True):
            if role is not None:
                values[self._loops[role].loop_var] = number
        indices = [substitute(index, values) for index in self._access.indices]
        address = tirx.address_of(tirx.BufferLoad(self._buffer, indices))
        return address, tirx.const(self._stride * _BYTES, "int64")

    def _distance(self, role: str) -> int:
        """Return the distance in elements of neighbouring iterations' accesses, which must be a constant."""
        loop, analyzer = self._loops[role], sym.Analyzer()
        offset = element_at(self._buffer, self._access.indices)
        first, second = (substitute(offset, {loop.loop_var: value}) for value in (0, 1))
        distance = analyzer.simplify(second - first)
        constant = isinstance(distance, (int, tirx.IntImm))
        if not constant or not analyzer.can_prove_equal(offset - first, loop.loop_var * distance):
            raise RewriteError(f"the loop over {role} has no constant stride in {self._access}")
        return int(distance)


def _nest(loop: Any) -> tuple[dict[str, Any], Any]:
    """Return the marked loops from `loop` inwards by their roles, and the innermost body."""
    loops: dict[str, Any] = {}
    body = loop
    while isinstance(body, tirx.For):
        if ROLE not in body.annotations:
            raise RewriteError(f"an unmarked loop over {body.loop_var} in a nest of tiles")
        loops[str(body.annotations[ROLE])] = body
        body = body.body
    return loops, body


def _number(register: int) -> Any:
    return tirx.const(register, "int8")


def _call(name: str, *arguments: Any) -> Any:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", name, *arguments))
