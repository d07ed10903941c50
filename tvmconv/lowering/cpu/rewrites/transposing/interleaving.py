"""Store the sums of phases to a row (INTERLEAVE), read and written by vectors."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from .....algorithms.annotations import PART, TRANSPOSE
from ....common.rewrites import map_nodes, refuse, substitute
from ..padding import uses
from .copies import loads_of, loop_over, only, runs, with_body
from .registers import shuffle


def interleave(loop: Any) -> Any:
    """``for x in vectorized: output[.., x] = f(sums[x % phases, .., x // phases])``, possibly under a condition for all of it."""
    store, extent = loop.body, int(loop.extent)
    if isinstance(store, tirx.IfThenElse) and store.else_case is None:
        if uses(store.condition, loop.loop_var):
            refuse(loop, TRANSPOSE, f"some columns are not stored: {store.condition}")
        return tirx.IfThenElse(store.condition, interleave(with_body(loop, store.then_case)), None)
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(store, tirx.BufferStore):
        refuse(loop, TRANSPOSE, f"it is no vectorized loop around a store: {store}")
    load = only([load for load in loads_of(store.value) if load.source.scope() == "local"])
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
    write = loop_over(part, phases, tirx.ForKind.UNROLLED, loop_over(lane, count, tirx.ForKind.VECTORIZED, stored))
    return tirx.SeqStmt([tirx.AllocBuffer(row), *together, write])
