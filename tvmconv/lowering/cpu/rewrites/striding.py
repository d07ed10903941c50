"""Deinterleave planar rows by vector loads and shuffles, so that every s-th column is contiguous.

Copies for strided convolutions gather every s-th column. Element by element, each takes a load and a store; in two copies, first padded and
then deinterleaved, the second would wait for the first's masked stores to reach the cache.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx

from ....algorithms.annotations import STRIDED, TRANSPOSED_LANES
from ...common.rewrites import refuse, rewrite_loops, sequence, settle, substitute
from .padding import inside, split_guard, uses
from .transposing.copies import loads_of


def deinterleave(body: Any) -> Any:
    """Return the statement with copies that request STRIDED by vectors."""
    return rewrite_loops(body, STRIDED, _deinterleave)


def _deinterleave(loop: Any) -> Any:
    """Deinterleave ``for phase: for x: copy[.., phase, x] = row[.., x * s + phase]``, 0 outside, by vectors.

    Integers are converted, and their zero point subtracted, in vectors. Refused are loops where the columns inside of data are unknown, or
    are fewer in a phase than a vector of 128 bits has.
    """
    columns = loop.body
    if not isinstance(columns, tirx.For) or not all(isinstance(each.extent, tirx.IntImm) for each in (loop, columns)):
        refuse(loop, STRIDED, f"it is no loop over so many phases of so many columns: {columns}")
    store, extent = columns.body, int(columns.extent)
    if not isinstance(store, tirx.BufferStore) or store.buffer.dtype not in ("float32", "int32"):
        refuse(loop, STRIDED, f"it stores neither f32 nor s32: {store}")
    phase, x = loop.loop_var, columns.loop_var
    value, of_rows, of_columns = split_guard(store.value, phase, x)
    loads = loads_of(value)
    if not loads:
        return settle(loop, STRIDED)  # TVM knows that all of it is padding
    if len(loads) != 1 or not _is_of(value, loads[0]):
        refuse(loop, STRIDED, f"it copies something else than columns: {value}")
    (load,) = loads
    step = _step(load.indices, x, extent)
    if step < 2 or int(loop.extent) > step:
        refuse(loop, STRIDED, f"columns are {step} apart, of {loop.extent} phases: {value}")

    def stored(p: int, start: Any, lanes: int) -> Any:
        *before, at = [substitute(index, {phase: p, x: start}) for index in store.indices]
        return tirx.BufferStore(
            store.buffer, _in_lanes(value, load, taken(p, start, lanes), lanes), [*before, tirx.Ramp(at, 1, lanes)]
        )

    def taken(p: int, start: Any, lanes: int) -> Any:
        """Return columns a step apart; the last vector that is read ends with the last of them."""
        *before, at = [substitute(index, {phase: p, x: start}) for index in load.indices]
        span = (lanes - 1) * step + 1
        firsts = [*range(0, span - lanes, lanes), span - lanes]
        vectors = [tirx.BufferLoad(load.source, [*before, tirx.Ramp(at + first, 1, lanes)]) for first in firsts]
        later = len(firsts) * lanes - span  # overlap of the last two vectors, by which lanes of the last one shift
        order = [column if column < firsts[-1] else column + later for column in range(0, span, step)]
        return tirx.Shuffle(vectors, [tirx.const(lane, "int32") for lane in order])

    zero, steps = tirx.const(0, store.buffer.dtype), []
    for p in range(int(loop.extent)):
        first, end = inside(None if of_columns is None else substitute(of_columns, {phase: p}), x, extent)
        lanes = next((lanes for lanes in TRANSPOSED_LANES if lanes <= end - first), 0)
        if not lanes:
            refuse(
                loop,
                STRIDED,
                f"its phase {p} has {max(end - first, 0)} columns inside of data, and vectors have 4: {value}",
            )
        steps += [
            tirx.BufferStore(store.buffer, zero, [substitute(index, {phase: p, x: at}) for index in store.indices])
            for at in (*range(first), *range(end, extent))
        ]
        # The last vector ends with the row, and may overlap the one before.
        vector, vectors = tirx.Var("vector", "int32"), -(-(end - first) // lanes)
        body = stored(p, tirx.min(first + vector * lanes, end - lanes), lanes)
        steps.append(tirx.For(vector, 0, vectors, tirx.ForKind.SERIAL, body))
    if of_rows is None:
        return sequence(steps)
    clear = tirx.BufferStore(store.buffer, zero, store.indices)
    zeros = tirx.For(phase, 0, loop.extent, tirx.ForKind.SERIAL, tirx.For(x, 0, extent, tirx.ForKind.SERIAL, clear))
    return tirx.IfThenElse(of_rows, sequence(steps), zeros)


def _is_of(value: Any, load: Any) -> bool:
    """Return whether a value is a load, possibly converted, with a constant added or subtracted."""
    if isinstance(value, tirx.Cast):
        return _is_of(value.value, load)
    if isinstance(value, (tirx.Add, tirx.Sub)):
        return isinstance(value.b, tirx.IntImm) and _is_of(value.a, load)
    return bool(value.same_as(load))


def _in_lanes(value: Any, load: Any, vector: Any, lanes: int) -> Any:
    """Return a value that `_is_of` a load with a vector in its place."""
    if value.same_as(load):
        return vector
    if isinstance(value, tirx.Cast):
        return tirx.Cast(f"{value.ty.dtype}x{lanes}", _in_lanes(value.value, load, vector, lanes))
    return type(value)(_in_lanes(value.a, load, vector, lanes), tirx.Broadcast(value.b, lanes))


def _step(indices: Any, x: Any, extent: int) -> int:
    """Return the stride of the last index in `x`; 0 if it is not constant, or other indices depend on `x`."""
    analyzer = sym.Analyzer()
    *before, last = indices
    if extent < 2 or any(uses(index, x) for index in before):
        return 0
    first = substitute(last, {x: 0})
    step = analyzer.simplify(substitute(last, {x: 1}) - first)
    if not isinstance(step, tirx.IntImm) or not analyzer.can_prove_equal(last, first + x * step):
        return 0
    return int(step)
