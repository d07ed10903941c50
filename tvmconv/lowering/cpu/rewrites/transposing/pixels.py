"""Copy rows of channels to pixels (TO_PIXELS), read and written by vectors."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from .....algorithms.annotations import PART, TO_PIXELS_IF_WHOLE, TRANSPOSE, TRANSPOSED_LANES
from ....common.rewrites import map_nodes, refuse, sequence, settle, substitute
from ..padding import inside, split_guard, uses
from .copies import keep, loads_of, loop_over, runs, runs_in_memory
from .registers import join_quarters, transposed_vectors, vector_at

# Most squares to unroll where columns span several axes, so that their indices are constants: 25 taps of 16 channels are 25 squares.
MOST_UNROLLED = 25
_ELEMENTS = ("float32", "int32", "uint32")  # of copies: uint32 is a pair of 16 bits or a quad of bytes


def to_pixels(loop: Any) -> Any:
    """``for column: for lane in vectorized: pixels[.., column, lane] = plane[lane, .., column]``, padding outside of the data.

    An element may be a pair or quad, computed by vectors from elements of two or four planes.
    """
    lanes = loop.body
    if isinstance(lanes, tirx.IfThenElse) and lanes.else_case is None and uses(lanes.condition, loop.loop_var):
        return keep(loop, TO_PIXELS_IF_WHOLE, f"some columns are not copied: {lanes.condition}")
    _check_pixel_store(loop)
    store, column, extent = lanes.body, loop.loop_var, int(loop.extent)
    value, of_rows, of_columns = split_guard(store.value, column, lanes.loop_var)
    loads = loads_of(value)
    if not loads:
        return settle(loop, TRANSPOSE)  # TVM knows that all of it is padding
    apart = [load for load in loads if not runs(load, column, extent)]
    if not all(runs_in_memory(load, column, extent) for load in apart):
        refuse(loop, TRANSPOSE, f"it reads something else than a row: {value}")
    if not runs(store, lanes.loop_var, int(lanes.extent)):
        refuse(loop, TRANSPOSE, f"lanes do not lie together: {store}")
    first, end = inside(of_columns, column, extent)
    if end - first < PART:
        return keep(
            loop, TO_PIXELS_IF_WHOLE, f"{end - first} columns are known to be inside, of at least {PART}: {of_columns}"
        )
    padding = tirx.const(0, store.buffer.dtype) if value.same_as(store.value) else store.value.args[2]
    pixels = _Pixels(loop, value, padding, bool(apart))
    steps = [pixels.pad(start, count) for start, count in ((0, first), (end, extent - end)) if count]
    blocked = sequence([*steps, pixels.copy(first, end)])
    return blocked if of_rows is None else tirx.IfThenElse(of_rows, blocked, pixels.pad(0, extent))


def _check_pixel_store(loop: Any) -> None:
    """Refuse a loop whose body is not a loop over lanes that stores elements to memory."""
    lanes = loop.body
    if (
        not isinstance(lanes, tirx.For)
        or lanes.kind != tirx.ForKind.VECTORIZED
        or int(lanes.extent) not in TRANSPOSED_LANES
    ):
        refuse(loop, TRANSPOSE, f"its body is no loop over 4, 8 or 16 lanes: {lanes}")
    store = lanes.body
    if (
        not isinstance(store, tirx.BufferStore)
        or store.buffer.dtype not in _ELEMENTS
        or store.buffer.scope() == "local"
    ):
        refuse(loop, TRANSPOSE, f"it stores no {' or '.join(_ELEMENTS)} in memory: {store}")


class _Pixels:
    """Columns that a loop stores as pixels: `value`, or padding.

    Parameters
    ----------
    apart
        Whether columns span several axes; they are then contiguous in memory, and indexed from the first along the last axis.
    """

    def __init__(self, loop: Any, value: Any, padding: Any, apart: bool) -> None:
        self._column, self._lane, self._count = loop.loop_var, loop.body.loop_var, int(loop.body.extent)
        self._store, self._value, self._padding, self._apart = loop.body.body, value, padding, apart

    def pad(self, start: int, extent: int) -> Any:
        """Return a loop over columns of padding."""
        each = tirx.Var("column", "int32")
        padding = tirx.Broadcast(self._padding, self._count)
        return tirx.For(each, 0, extent, tirx.ForKind.SERIAL, self._stored(start + each, padding))

    def copy(self, first: int, end: int) -> Any:
        """Return the loop over blocks of columns, each transposed in registers."""
        count, columns = self._count, end - first
        width = count if columns >= count else PART
        block = tirx.Var("square", "int32")
        # The last block is shifted to end with the row, and may overlap the one before.
        start = tirx.min(first + block * width, end - width) if columns % width else first + block * width
        rows = tirx.decl_buffer((count * width,), self._store.buffer.dtype, "rows", scope="local")
        row, x = tirx.Var("row", "int32"), tirx.Var("x", "int32")
        read = tirx.BufferStore(rows, self._element(start, row, x), [row * width + x])
        vectors = [
            join_quarters([vector_at(rows, (at + j) * width, width) for at in range(0, count, width)])
            for j in range(width)
        ]
        body = [
            tirx.AllocBuffer(rows),
            loop_over(row, count, tirx.ForKind.UNROLLED, loop_over(x, width, tirx.ForKind.VECTORIZED, read)),
            *(self._stored(start + i, vector) for i, vector in enumerate(transposed_vectors(vectors, count))),
        ]
        blocks = -(-columns // width)
        kind = tirx.ForKind.UNROLLED if self._apart and blocks <= MOST_UNROLLED else tirx.ForKind.SERIAL
        return tirx.For(block, 0, blocks, kind, tirx.SeqStmt(body))

    def _stored(self, at: Any, vector: Any) -> Any:
        indices = [substitute(index, {self._column: at, self._lane: 0}) for index in self._store.indices]
        return tirx.BufferStore(self._store.buffer, vector, [*indices[:-1], tirx.Ramp(indices[-1], 1, self._count)])

    def _element(self, start: Any, row: Any, x: Any) -> Any:
        """Return the value at a block's column `x` and lane `row`."""
        if not self._apart:
            return substitute(self._value, {self._lane: row, self._column: start + x})
        element = substitute(self._value, {self._lane: row, self._column: start})
        return map_nodes(
            element, TensorLoad, lambda load: tirx.BufferLoad(load.source, [*load.indices[:-1], load.indices[-1] + x])
        )
