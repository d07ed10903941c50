"""Store a tile's sums before an approximated step of the epilogue, and process them vector by vector in a loop.

The arithmetic of 27 unrolled vectors is one basic block, whose instructions LLVM's scheduler interleaves: for SiLU, each vector was spilled
and reloaded seven times. In a loop, a vector is stored once and loaded once.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call

from ....algorithms.epilogue import step_of
from ....epilogue import APPROXIMATED
from ...common.rewrites import find_all, map_nodes, sequence, with_own_loops

# Least number of vectors to stage: a core overlaps the arithmetic of about so many by itself.
_LEAST_VECTORS = 4


def stage_sums(body: Any) -> Any:
    """Return the statement with sums stored first in unrolled loop nests with approximated steps."""
    nests = [loop for loop in find_all(body, tirx.For) if _is_unrolled(loop) and _chain(loop) is not None]
    inner = [each for loop in nests for each in find_all(loop.body, tirx.For)]
    outermost = [loop for loop in nests if not any(loop.same_as(each) for each in inner)]

    def staged(loop: Any) -> Any:
        return _stage(loop) if any(loop.same_as(each) for each in outermost) else loop

    return map_nodes(body, tirx.For, staged) if outermost else body


def _is_unrolled(loop: Any) -> bool:
    return bool(loop.kind == tirx.ForKind.UNROLLED)


def _chain(loop: Any) -> list[Any] | None:
    """Return the loops from this one down to a single store with an approximated step; None for other loops."""
    loops, statement = [], loop
    while True:
        if isinstance(statement, tirx.For) and isinstance(statement.extent, tirx.IntImm):
            loops.append(statement)
            statement = statement.body
        elif isinstance(statement, tirx.IfThenElse) and statement.else_case is None:
            statement = statement.then_case
        else:
            break
    if not isinstance(statement, tirx.BufferStore) or _approximated_call(statement.value) is None:
        return None
    kinds = [each.kind for each in loops]
    parts = [int(each.extent) for each in loops if _is_unrolled(each)]
    vectors = kinds.count(tirx.ForKind.VECTORIZED) == 1 and kinds[-1] == tirx.ForKind.VECTORIZED
    return loops if vectors and len(parts) == len(loops) - 1 and prod(parts) >= _LEAST_VECTORS else None


def _approximated_call(value: Any) -> Any:
    """Return the call of the first approximated step; None if there is none."""
    for call in find_all(value, Call):  # outer ones first
        step = step_of(call)
        if step is not None and step.name in APPROXIMATED:
            within = _approximated_call(call.args[0])
            return call if within is None else within
    return None


def _stage(loop: Any) -> Any:
    loops = _chain(loop)
    assert loops is not None
    (store,) = find_all(loop, tirx.BufferStore)
    sums = _approximated_call(store.value).args[0]
    extents = [int(each.extent) for each in loops]
    stage = tirx.decl_buffer((prod(extents),), "float32", "sums")
    at = tirx.const(0, "int32")
    for each, extent in zip(loops, extents, strict=True):
        at = at * extent + (each.loop_var - each.min)

    def from_stage(call: Any) -> Any:
        if not (call.args and call.args[0].same_as(sums)):
            return call
        return Call(call.op, [tirx.BufferLoad(stage, [at]), *call.args[1:]], ret_ty=call.ty)

    def to_output(statement: Any) -> Any:
        return tirx.BufferStore(statement.buffer, map_nodes(statement.value, Call, from_stage), statement.indices)

    def serial(each: Any) -> Any:
        kind = tirx.ForKind.SERIAL if _is_unrolled(each) else each.kind
        return tirx.For(each.loop_var, each.min, each.extent, kind, each.body, annotations=each.annotations)

    first = map_nodes(loop, tirx.BufferStore, lambda _: tirx.BufferStore(stage, sums, [at]))
    second = map_nodes(map_nodes(loop, tirx.BufferStore, to_output), tirx.For, serial)
    return sequence([tirx.AllocBuffer(stage), first, with_own_loops(second)])
