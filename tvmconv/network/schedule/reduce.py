"""Schedule of sums, maxima and minima along rows: a vector of partial results for each row, elementwise stages before it inlined.

dlight's rule for CPUs reduces scalars one after another, and uses few threads where there are few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import dlight
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm_ffi.structural import structural_equal

from ...lowering.common.rewrites import substitute
from ...lowering.cpu.rewrites.padding import uses
from ...lowering.cpu.rewrites.transposing.copies import loads_of, runs
from ..ir.free import number_of
from ..ir.ordering import greater, less
from .loops import loop, with_loops
from .stages import LEAST_PARALLEL, TASKS, are_last, inline, is_fixed, schedule

# Number of partial results, and lengths of the vectors for the tail of a row.
_LANES, _REST = 16, (8, 4, 1)
# Partial results combined as scalars at the end, a vector of 128 bits; from longer vectors LLVM would extract them by many shuffles.
LEAST_HALF = 4
_OPERATORS = (tirx.Add, tirx.Max, tirx.Min)
_TYPES = ("float32", "float64", "int32", "int64")
_Operation = tuple[Callable[[Any, Any], Any], Any]


class RowReductions(dlight.ScheduleRule):  # type: ignore[misc]
    """Schedule of reductions along the last axes of contiguous reads, by vectors."""

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> s_tir.Schedule | None:
        """Return the schedule of a function; None if it has another kind of reduction."""
        sch = s_tir.Schedule(func)
        stages = normalize_prim_func(sch)
        if not stages or not all(map(is_fixed, stages)) or all(stage.is_injective() for stage in stages):
            return None
        left = [each for each in stages if each is stages[-1] or not each.is_injective() or not inline(sch, each)]
        made = [None if each.is_injective() else _RowLoops.of(sch.get(each.block_rv)) for each in left]
        if any(each is None and not stage.is_injective() for each, stage in zip(made, left, strict=True)):
            return None
        for stage in left:
            if stage.is_injective():
                schedule(sch, stage, vectors=True)
        body = sch.mod["main"].body.block.body
        loops = [body] if len(left) == 1 else body.seq
        parts = [given if each is None else each.loops() for each, given in zip(made, loops, strict=True)]
        partial = [each.partial for each in made if each is not None and each.partial is not None]
        return with_loops(sch, parts[0] if len(parts) == 1 else tirx.SeqStmt(parts), partial)


@dataclass(frozen=True)
class _Axis:
    """A contiguous axis of reads, the fusion of `variables`."""

    variables: tuple[tuple[Any, int], ...]

    @property
    def extent(self) -> int:
        """Number of its elements."""
        return prod(extent for _, extent in self.variables)

    def places(self, index: Any) -> dict[Any, Any]:
        """Return the variables as functions of an index of the axis."""
        places, rest = {}, index
        for number, (variable, extent) in reversed(list(enumerate(self.variables))):
            places[variable] = tirx.floormod(rest, extent) if number else rest
            rest = tirx.floordiv(rest, extent)
        return places


class _RowLoops:
    """The loops of a block that reduces rows.

    Where rows are few and long, they are cut into chunks, whose partial results are combined at the end.
    """

    def __init__(
        self, store: Any, start: Any, operation: _Operation, rows: _Axis, outer: Sequence[Any], along: _Axis
    ) -> None:
        self._store, self._start, (self._combine, self._value) = store, start, operation
        self._rows, self._outer, self._along = rows, outer, along
        self._type, self._integer = str(store.buffer.dtype), str(along.variables[0][0].ty.dtype)
        self._parallel = rows.extent * prod(size for _, size in outer) * along.extent >= LEAST_PARALLEL
        # A chunk has iterations of the first outer loop, or whole vectors of a row.
        steps = outer[0][1] if outer else along.extent // _LANES
        self._size = -(-steps // min(-(-TASKS // rows.extent), steps)) if self._parallel else steps
        self._chunks = -(-steps // self._size) if outer else steps // self._size
        shape = (rows.extent, self._chunks, _LANES)
        self.partial = tirx.decl_buffer(shape, self._type, "partial") if self._chunks > 1 else None

    @classmethod
    def of(cls, block: Any) -> _RowLoops | None:
        """Return the loops of a block; None if it is no reduction along contiguous rows."""
        store, init = block.body, block.init
        axes = [(each.var, int(each.dom.extent), each.iter_type == tirx.IterVar.DataPar) for each in block.iter_vars]
        kept, given = ([(var, extent) for var, extent, keep in axes if keep == of] for of in (True, False))
        if not isinstance(store, tirx.BufferStore) or not isinstance(init, tirx.BufferStore):
            return None
        operation, dtype = _operation(store), str(store.buffer.dtype)
        if operation is None or dtype not in _TYPES:
            return None
        if isinstance(store.value, tirx.Add) and not structural_equal(init.value, tirx.const(0, dtype)):
            return None
        loads = [load for load in loads_of(operation[1]) if len(load.indices)]
        count = next((n for n in range(len(given), 0, -1) if all(_together(load, given[-n:]) for load in loads)), 1)
        along = _Axis(tuple(given[-count:]))
        if along.extent < _LANES or not any(runs(load, *given[-1]) for load in loads):
            return None
        return cls(store, init.value, operation, _Axis(tuple(kept)), given[:-count], along)

    def loops(self) -> Any:
        """Return the loops over rows, after those over their chunks."""
        row, extent = tirx.Var("row", self._integer), self._along.extent
        places = self._rows.places(row)
        if self.partial is None:
            return self._for_each(
                row,
                self._rows.extent,
                self._parallel,
                lambda parts: [self._reduced(parts, places, self._outer, 0, extent), self._whole(parts, places)],
            )
        done = extent if self._outer else self._chunks * self._size * _LANES
        chunk, task = tirx.Var("chunk", self._integer), tirx.Var("task", self._integer)

        def joined(parts: Any) -> list[Any]:
            join = self._combined(parts, lambda lane: tirx.BufferLoad(self.partial, [row, chunk, lane]), _LANES)
            rest = [self._reduced(parts, places, (), done, extent - done)] if done < extent else []
            return [loop(chunk, self._chunks, tirx.ForKind.SERIAL, join), *rest, self._whole(parts, places)]

        chunks = self._for_each(task, self._rows.extent * self._chunks, True, lambda parts: self._chunk(parts, task))
        return tirx.SeqStmt([chunks, self._for_each(row, self._rows.extent, False, joined)])

    def _chunk(self, parts: Any, task: Any) -> list[Any]:
        """Return the reduction of a chunk of a row, and the store of its partial results."""
        row, chunk = tirx.floordiv(task, self._chunks), tirx.floormod(task, self._chunks)
        places = self._rows.places(row)
        if self._outer:
            (variable, extent), *inner = self._outer
            step = tirx.Var("step", self._integer)
            at = chunk * self._size + step
            body = self._reduced(parts, {**places, variable: at}, inner, 0, self._along.extent)
            if extent % self._size:
                body = tirx.IfThenElse(at < extent, body, None)
            reduced = loop(step, self._size, tirx.ForKind.SERIAL, body)
        else:
            length = self._size * _LANES
            reduced = self._reduced(parts, places, (), chunk * length, length)
        lane = tirx.Var("lane", self._integer)
        kept = tirx.BufferStore(self.partial, tirx.BufferLoad(parts, [lane]), [row, chunk, lane])
        return [reduced, loop(lane, _LANES, tirx.ForKind.VECTORIZED, kept)]

    def _for_each(self, variable: Any, count: int, parallel: bool, fill: Callable[[Any], list[Any]]) -> Any:
        """Return a loop over the statements of `fill`, each iteration with partial results of its own."""
        parts = tirx.decl_buffer((_LANES,), self._type, "parts", scope="local")
        lane = tirx.Var("lane", self._integer)
        start = loop(lane, _LANES, tirx.ForKind.VECTORIZED, tirx.BufferStore(parts, self._start, [lane]))
        inner = s_tir.SBlock([], [], [], "row", tirx.SeqStmt([start, *fill(parts)]), None, [parts])
        kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL
        return loop(variable, count, kind, s_tir.SBlockRealize([], tirx.const(True, "bool"), inner))

    def _reduced(self, parts: Any, places: Any, outer: Sequence[Any], begin: Any, extent: int) -> Any:
        """Return loops that combine `extent` elements of a row from `begin` on, for all iterations of `outer`, with the partial results."""
        statements, done = [], 0
        for lanes in (_LANES, *_REST):
            count = (extent - done) // lanes
            if count:
                step, first = tirx.Var("step", self._integer), begin + done

                def element(lane: Any, first: Any = first, step: Any = step, lanes: int = lanes) -> Any:
                    return substitute(self._value, {**places, **self._along.places(first + step * lanes + lane)})

                statements.append(loop(step, count, tirx.ForKind.SERIAL, self._combined(parts, element, lanes)))
                done += count * lanes
        made = tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]
        for variable, size in reversed(outer):
            one = tirx.Var("one", self._integer)
            made = loop(one, size, tirx.ForKind.SERIAL, substitute(made, {variable: one}))
        return made

    def _combined(self, parts: Any, element: Callable[[Any], Any], lanes: int) -> Any:
        """Return the combination of a vector of elements with the first partial results."""
        lane = tirx.Var("lane", self._integer)
        value = self._combine(tirx.BufferLoad(parts, [lane]), element(lane))
        kind = tirx.ForKind.VECTORIZED if lanes > 1 else tirx.ForKind.SERIAL
        return loop(lane, lanes, kind, tirx.BufferStore(parts, value, [lane]))

    def _whole(self, parts: Any, places: Any) -> Any:
        """Return the combination of the partial results, by halves while they are vectors, and the store of the result."""
        halves, lanes = [], _LANES
        while lanes > LEAST_HALF:
            lanes //= 2
            halves.append(self._second_half(parts, lanes))
        terms = [tirx.BufferLoad(parts, [tirx.const(each, self._integer)]) for each in range(lanes)]
        at = [substitute(index, places) for index in self._store.indices]
        return tirx.SeqStmt([*halves, tirx.BufferStore(self._store.buffer, combine_halves(terms, self._combine), at)])

    def _second_half(self, parts: Any, lanes: int) -> Any:
        """Return the combination of the second `lanes` partial results with the first."""
        return self._combined(parts, lambda lane: tirx.BufferLoad(parts, [lane + lanes]), lanes)


def combine_halves(terms: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Return terms combined by halves, which gives short dependence chains, and vector operations on neighbours."""
    left = list(terms)
    while len(left) > 1:
        half = len(left) // 2
        left = [*map(combine, left[:half], left[half : 2 * half]), *left[2 * half :]]
    return left[0]


def _operation(store: Any) -> _Operation | None:
    """Return a block's combining operation, and the element that it combines with the result; None for other updates."""
    value, own, element = store.value, None, None
    combine: Callable[[Any, Any], Any] | None = None
    if isinstance(value, _OPERATORS):
        combine, own, element = type(value), value.a, value.b
    elif isinstance(value, tirx.Select) and isinstance(value.false_value, tirx.Select):
        own, element = value.true_value, value.false_value.false_value
        combine = next((each for each in (greater, less) if structural_equal(each(own, element), value)), None)
    is_own = isinstance(own, TensorLoad) and own.source.same_as(store.buffer)
    return (combine, element) if combine and is_own else None


def _together(load: Any, last: Sequence[tuple[Any, int]]) -> bool:
    """Return whether a load is independent of some variables, or has them as its last indices, over whole axes."""
    if not any(uses(index, *(variable for variable, _ in last)) for index in load.indices):
        return True
    sizes = [number_of(size) for size in load.source.shape]
    if not all(isinstance(size, int) for size in sizes):
        return False
    return are_last([(index, size) for index, size in zip(load.indices, sizes, strict=True) if size > 1], last)
