"""Store the sums of a tile to planes (TO_PLANES), read and written by vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import sym, tirx
from tvm.ir import Range, TensorLoad

from .....algorithms.annotations import PART, TO_PLANES_IF_WIDE, TRANSPOSE, TRANSPOSED_LANES
from .....algorithms.cpu.model.counts import lines_evict
from .....algorithms.pairs import ROUND, calls
from ....common.rewrites import map_nodes, refuse, sequence, settle, substitute
from ..padding import uses
from .copies import keep, loads_of, loop_over, only, runs, with_body
from .registers import part_of, transposed_vectors, vector_at

_ROUNDED = ("uint8", "int8")


def to_planes(loop: Any) -> Any:
    """``for channel: for x: output[channel, .., x] = f(tile[.., x, channel])``; columns of the output may be strided."""
    columns = loop.body
    if not isinstance(columns, tirx.For):
        kept = keep(loop, TO_PLANES_IF_WIDE, f"rows have a single column, of at least {PART}")
        return _round_channels(kept, columns, [{}])
    if not isinstance(columns.extent, tirx.IntImm):
        refuse(loop, TRANSPOSE, f"rows have {columns.extent} columns, of which the number is to be known")
    store, width = columns.body, int(columns.extent)
    if isinstance(store, tirx.IfThenElse) and store.else_case is None:
        analyzer = sym.Analyzer()
        analyzer.bind(columns.loop_var, Range(0, width))
        if uses(condition := analyzer.simplify(store.condition), loop.loop_var, columns.loop_var):
            refuse(loop, TRANSPOSE, f"some channels or columns are not stored: {condition}")
        whole = with_body(loop, settle(columns, TRANSPOSE, store.then_case))
        return tirx.IfThenElse(condition, to_planes(whole), None)
    count = next((lanes for lanes in TRANSPOSED_LANES if int(loop.extent) % lanes == 0), 0)
    if not isinstance(store, tirx.BufferStore) or not count:
        refuse(loop, TRANSPOSE, f"it does not store vectors of channels: {store}")
    if width < PART:
        kept = keep(loop, TO_PLANES_IF_WIDE, f"rows have {width} columns, of at least {PART}")
        return _round_channels(kept, store, [{columns.loop_var: at} for at in range(width)])
    channel, x = loop.loop_var, columns.loop_var
    # Loads of sums, without those in indices.
    sums = [each for each in loads_of(store.value) if each.source.scope() == "local" and uses(each, channel, x)]
    tile = only(sums)
    if tile is None or not runs(tile, channel, int(loop.extent)):
        refuse(loop, TRANSPOSE, f"it reads something else than the channels of a tile: {store.value}")
    side = count if width >= count else PART
    starts = [*range(0, width - side, side), width - side]
    # Otherwise part by part: registers hold other sums meanwhile.
    groups = [starts] if _evict(store, channel, int(loop.extent)) else [[start] for start in starts]
    squares = [tirx.decl_buffer((count * side,), tile.source.dtype, "rows", scope="local") for _ in groups[0]]
    planes = _Planes(store, tile, channel, x, count, side, write=_write if runs(store, x, width) else _write_apart)
    steps: list[Any] = [tirx.AllocBuffer(rows) for rows in squares]
    for group in groups:
        parts = list(zip(group, squares, strict=True))
        steps += [step for part in parts for step in planes.transpose(*part)]
        lane = tirx.Var("lane", "int32")
        lines = sequence([planes.write_row(*part, lane) for part in parts])
        steps.append(loop_over(lane, count, tirx.ForKind.UNROLLED, lines))
    return loop_over(planes.block, int(loop.extent) // count, tirx.ForKind.UNROLLED, tirx.SeqStmt(steps))


class _Planes:
    """Squares of a tile, `count` channels by `side` columns, that are stored to the channels' planes.

    Parameters
    ----------
    store, tile
        The store of an element, and the tile's load in its value.
    channel, x
        The variables of channels and columns in both.
    write
        Function that stores a row's values: `_write` or `_write_apart`.
    """

    def __init__(
        self, store: Any, tile: Any, channel: Any, x: Any, count: int, side: int, write: Callable[..., Any]
    ) -> None:
        self._store, self._tile, self._channel, self._x = store, tile, channel, x
        self._count, self._side, self._write = count, side, write
        self.block = tirx.Var("block", "int32")

    def transpose(self, start: int, rows: Any) -> list[Any]:
        """Return the transposition of a square, of columns from `start` on, to the buffer `rows`."""
        indices = [
            [
                substitute(index, {self._channel: self.block * self._count, self._x: start + i})
                for index in self._tile.indices
            ]
            for i in range(self._side)
        ]
        columns = [tirx.BufferLoad(self._tile.source, [*at[:-1], tirx.Ramp(at[-1], 1, self._count)]) for at in indices]
        return [
            tirx.BufferStore(
                rows, part_of(vector, part, self._side), [tirx.Ramp((part + j) * self._side, 1, self._side)]
            )
            for j, vector in enumerate(transposed_vectors(columns, self._count))
            for part in range(0, self._count, self._side)
        ]

    def write_row(self, start: int, rows: Any, lane: Any) -> Any:
        """Return the store of one channel's row of a square to its plane."""
        each, tile = tirx.Var("x", "int32"), self._tile.source
        element = tirx.BufferLoad(rows, [lane * self._side + each])
        value = map_nodes(self._store.value, TensorLoad, lambda load: element if load.source.same_as(tile) else load)
        variables = {self._channel: self.block * self._count + lane, self._x: start + each}
        at = [substitute(index, variables) for index in self._store.indices]
        return self._write(self._store.buffer, substitute(value, variables), at, each, self._side)


def _round_channels(loop: Any, store: Any, columns: Sequence[dict[Any, int]]) -> Any:
    """Return a loop over channels that stores 8-bit numbers, rounded by vectors of channels, then stored one by one; other loops unchanged.

    `columns` has the values of variables for each column.
    """
    count = next((lanes for lanes in TRANSPOSED_LANES if int(loop.extent) % lanes == 0), 0)
    if not isinstance(store, tirx.BufferStore) or str(store.buffer.dtype) not in _ROUNDED or not count:
        return loop
    block = tirx.Var("block", "int32")

    def written(column: dict[Any, int]) -> Any:
        lane = tirx.Var("lane", "int32")
        variables = {loop.loop_var: block * count + lane, **column}
        at = [substitute(index, variables) for index in store.indices]
        return _write_apart(store.buffer, substitute(store.value, variables), at, lane, count)

    steps = sequence(list(map(written, columns)))
    return loop_over(block, int(loop.extent) // count, tirx.ForKind.UNROLLED, steps)


def _evict(store: Any, channel: Any, count: int) -> bool:
    """Return whether stores to the planes of `count` channels evict each other from the sets of L1 that they map to.

    All parts of a line are then stored in succession, so that the line is fetched once.
    """
    first, second = (substitute(store.indices[-1], {channel: at}) for at in (0, 1))
    apart = sym.Analyzer().simplify(second - first)
    known = len(store.indices) == 1 and isinstance(apart, tirx.IntImm)
    return known and lines_evict(np.dtype(str(store.buffer.dtype)).itemsize * int(apart), count)


def _write(buffer: Any, value: Any, at: Sequence[Any], x: Any, count: int) -> Any:
    """Return the vectorized store of `count` values at contiguous `x`; values that need ROUND are rounded by one instruction."""
    if not calls(value, ROUND):
        return loop_over(x, count, tirx.ForKind.VECTORIZED, tirx.BufferStore(buffer, value, at))
    values = tirx.decl_buffer((count,), "float32", "rounded", scope="local")
    keep = loop_over(x, count, tirx.ForKind.VECTORIZED, tirx.BufferStore(values, value.args[1], [x]))
    rounded = tirx.call_pure_extern(f"uint16x{count}", f"{ROUND}_{count}", vector_at(values, 0, count))
    first = [substitute(index, {x: 0}) for index in at]
    stored = tirx.BufferStore(buffer, rounded, [*first[:-1], tirx.Ramp(first[-1], 1, count)])
    return tirx.SeqStmt([tirx.AllocBuffer(values), keep, stored])


def _write_apart(buffer: Any, value: Any, at: Sequence[Any], x: Any, count: int) -> Any:
    """Return the stores, one by one, of `count` values computed by vectors."""
    row = tirx.decl_buffer((count,), buffer.dtype, "row", scope="local")
    each = tirx.Var("x", "int32")
    store = tirx.BufferStore(buffer, tirx.BufferLoad(row, [each]), [substitute(index, {x: each}) for index in at])
    elements = loop_over(each, count, tirx.ForKind.UNROLLED, store)
    return tirx.SeqStmt([tirx.AllocBuffer(row), _write(row, value, [x], x, count), elements])
