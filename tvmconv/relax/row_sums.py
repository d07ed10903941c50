"""A schedule for sums along rows: each in parts that are a vector, with what is computed of each element before.

dlight's rule for CPUs adds up one number after the other: the squares of 128 rows of 196 numbers took 19 us, and take 1 (two
threads of a Zen 4).
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import dlight
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm_ffi.structural import structural_equal

from ..lowering.common.rewrites import replaced
from ..lowering.cpu.transposing import loads_of, runs
from .loops import loop, with_loops

# Parts of a sum, and the vectors that what is left of a row is added by.
_LANES, _REST = 16, (8, 4, 1)


class RowSums(dlight.ScheduleRule):  # type: ignore[misc]
    """Compute sums along the last axes of what is read by vectors.

    Parameters
    ----------
    least_parallel
        From how many elements on rows are shared by threads.
    """

    def __init__(self, least_parallel: int) -> None:
        self._least_parallel = least_parallel

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool) -> s_tir.Schedule | None:
        """Return the schedule of a function; None if it is no sum along rows, and what is computed of it."""
        sch = s_tir.Schedule(func)
        stages = normalize_prim_func(sch)
        if not stages or not all(isinstance(extent, int) for stage in stages for extent in stage.dom()):
            return None
        sums = [at for at, stage in enumerate(stages) if "R" in stage.dom_kind()]
        if len(sums) != 1 or stages[sums[0]].dom_kind().lstrip("S").strip("R"):
            return None
        try:
            for stage in stages[: sums[0]]:
                sch.compute_inline(stage.block_rv)
        except s_tir.ScheduleError:
            return None  # an output
        rows = self._rows(sch.get(stages[sums[0]].block_rv))
        if rows is None:
            return None
        body = sch.mod["main"].body.block.body
        parts = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
        return with_loops(sch, tirx.SeqStmt([rows, *parts[1:]]) if parts[1:] else rows)

    def _rows(self, block: Any) -> Any:
        """Return the loops of a block that adds up rows; None: it does something else."""
        store, variables = block.body, [each.var for each in block.iter_vars]
        extents = [int(each.dom.extent) for each in block.iter_vars]
        if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
            return None
        kept = [each.iter_type == tirx.IterVar.DataPar for each in block.iter_vars]
        total, value, dtype = store.value.a, store.value.b, str(store.buffer.dtype)
        init, along, extent = block.init, variables[-1], extents[-1]
        is_sum = isinstance(total, TensorLoad) and total.source.same_as(store.buffer)
        zero = isinstance(init, tirx.BufferStore) and structural_equal(init.value, tirx.const(0, init.value.ty.dtype))
        if not is_sum or not zero or dtype not in ("float32", "float64") or extent < _LANES or kept[-1]:
            return None
        if not any(runs(load, along, extent) for load in loads_of(value) if len(load.indices)):
            return None
        integer = str(along.ty.dtype)
        row = tirx.Var("row", integer)
        places: dict[Any, Any] = {}
        rest: Any = row
        for variable, size in reversed([each for each, keep in zip(zip(variables, extents), kept) if keep]):  # noqa: B905
            places[variable] = tirx.floormod(rest, size)
            rest = tirx.floordiv(rest, size)
        parts = tirx.decl_buffer((_LANES,), dtype, "parts", scope="local")
        lane = tirx.Var("lane", integer)
        start = loop(lane, _LANES, tirx.ForKind.VECTORIZED, tirx.BufferStore(parts, tirx.const(0, dtype), [lane]))
        step = _added(parts, replaced(value, places), along, extent)
        for variable, size, keep in reversed(list(zip(variables[:-1], extents, kept))):  # noqa: B905
            if not keep:
                one = tirx.Var("one", integer)
                step = loop(one, size, tirx.ForKind.SERIAL, replaced(step, {variable: one}))
        sums = [tirx.BufferLoad(parts, [tirx.const(each, integer)]) for each in range(_LANES)]
        whole = tirx.BufferStore(store.buffer, _halved(sums), [replaced(index, places) for index in store.indices])
        inner = s_tir.SBlock([], [], [], "row", tirx.SeqStmt([start, step, whole]), None, [parts])
        kind = tirx.ForKind.PARALLEL if prod(extents) >= self._least_parallel else tirx.ForKind.SERIAL
        count = prod(size for size, keep in zip(extents, kept, strict=True) if keep)
        return loop(row, count, kind, s_tir.SBlockRealize([], tirx.const(True, "bool"), inner))


def _added(parts: Any, value: Any, along: Any, extent: int) -> Any:
    """Return loops that add the elements of a row to the parts of its sum."""
    integer, statements, begin = str(along.ty.dtype), [], 0
    for lanes in (_LANES, *_REST):
        count = (extent - begin) // lanes
        if not count:
            continue
        step, lane = tirx.Var("step", integer), tirx.Var("lane", integer)
        element = replaced(value, {along: begin + step * lanes + lane})
        store = tirx.BufferStore(parts, tirx.BufferLoad(parts, [lane]) + element, [lane])
        vector = loop(lane, lanes, tirx.ForKind.VECTORIZED if lanes > 1 else tirx.ForKind.SERIAL, store)
        statements.append(loop(step, count, tirx.ForKind.SERIAL, vector))
        begin += count * lanes
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]


def _halved(terms: list[Any]) -> Any:
    """Return a sum by halves, so that each waits for few others."""
    half = len(terms) // 2
    return terms[0] if len(terms) == 1 else _halved(terms[:half]) + _halved(terms[half:])
