"""Load neighbouring elements that lanes read in another order by one vector load and a shuffle.

Otherwise there would be a load for each lane. The order is part of an instruction, so unrolled loops on which it depends are unrolled
here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import sym, tirx
from tvm.ir import Call, TensorLoad

from ....algorithms.annotations import SHUFFLE
from ....algorithms.pairs import dot_of
from ...common.rewrites import (
    IF_THEN_ELSE,
    asks_for,
    find_all,
    map_nodes,
    refuse,
    rewrite_loops,
    sequence,
    settle,
    substitute,
    with_own_loops,
)
from .padding import uses


def by_shuffles(body: Any) -> Any:
    """Return the statement with loops that request SHUFFLE by shuffled vectors; sums of calls are left to `instructions`."""
    body = rewrite_loops(body, SHUFFLE, _reorder_copy)
    while loop := _ordering(body):
        body = map_nodes(body, tirx.For, partial(_instead, loop, _unroll(loop)))
    return rewrite_loops(body, SHUFFLE, _by_vector)


def _reorder_copy(loop: Any) -> Any:
    """Rewrite ``copy[lane] = f(data[order of lane])`` by vectors; sums stay."""
    store = loop.body
    if not isinstance(store, tirx.BufferStore) or isinstance(store.value, tirx.Add):
        return loop
    value, place = (lanes_of(each, loop) for each in (store.value, tirx.BufferLoad(store.buffer, store.indices)))
    if value is None or place is None:
        refuse(loop, SHUFFLE, f"the order of lanes depends on loops that are not unrolled: {store}")
    return tirx.BufferStore(store.buffer, value, place.indices)


def _unroll(loop: Any) -> Any:
    """Return the iterations in sequence, each with loops of its own."""
    values = range(int(loop.min), int(loop.min + loop.extent))
    return sequence([with_own_loops(substitute(loop.body, {loop.loop_var: value})) for value in values])


def _instead(loop: Any, statement: Any, each: Any) -> Any:
    return statement if each.loop_var.same_as(loop.loop_var) else each


def lanes_of(value: Any, loop: Any) -> Any:
    """Return the vector of `value` over a vectorized loop's lanes; None if a load's order is unknown.

    An element that all lanes read becomes a broadcast, contiguous lanes one load, others a shuffle of one load; operators are applied to
    their operands' vectors.
    """
    lane, count, analyzer = loop.loop_var, int(loop.extent), sym.Analyzer()
    if not uses(value, lane):
        return tirx.Broadcast(value, count)
    if isinstance(value, tirx.Cast):
        inner = lanes_of(value.value, loop)
        return None if inner is None else tirx.Cast(f"{value.ty.dtype}x{count}", inner)
    if isinstance(value, Call) and value.op.same_as(IF_THEN_ELSE) and not uses(value.args[0], lane):
        condition, *both = value.args
        vectors = [lanes_of(each, loop) for each in both]
        return None if any(each is None for each in vectors) else tirx.if_then_else(condition, *vectors)
    if not isinstance(value, TensorLoad):
        a, b = (lanes_of(each, loop) for each in (value.a, value.b))
        return None if a is None or b is None else type(value)(a, b)
    *outer, index = value.indices
    if any(uses(each, lane) for each in outer):
        return None
    first = substitute(index, {lane: 0})
    offsets = [analyzer.simplify(substitute(index, {lane: each}) - first) for each in range(count)]
    if not all(isinstance(offset, tirx.IntImm) for offset in offsets):
        return None
    order = [int(offset) for offset in offsets]
    least, extent = min(order), max(order) - min(order) + 1
    together = tirx.BufferLoad(value.source, [*outer, tirx.Ramp(analyzer.simplify(first + least), 1, extent)])
    if order == list(range(count)):
        return together
    # TVM's shuffle has at most as many indices as its vectors have lanes: repeat the vector.
    copies = -(-count // extent)
    return tirx.Shuffle([together] * copies, [tirx.const(each - least, "int32") for each in order])


def _ordering(body: Any) -> Any:
    """Return an unrolled loop on which an order of lanes depends; None if there is none."""
    loops = find_all(body, tirx.For)
    unordered = [loop for loop in loops if asks_for(loop, SHUFFLE) and lanes_of(_data(loop), loop) is None]
    indices = [_data(loop).indices[-1] for loop in unordered]
    unrolled = (loop for loop in loops if loop.kind == tirx.ForKind.UNROLLED)
    return next((loop for loop in unrolled if any(uses(index, loop.loop_var) for index in indices)), None)


def _data(loop: Any) -> Any:
    """Return the load of data in a vectorized loop's sum."""
    value = loop.body.value if isinstance(loop.body, tirx.BufferStore) else None
    if loop.kind == tirx.ForKind.VECTORIZED and isinstance(value, tirx.Add):
        data = value.b.a if isinstance(value.b, tirx.Mul) else value.b.args[1] if dot_of(value.b) else None
        if isinstance(data, TensorLoad):
            return data
    refuse(loop, SHUFFLE, f"it is no vectorized sum of products with data: {loop.body}")


def _by_vector(loop: Any) -> Any:
    """``sum[lane] = sum[lane] + data[order of lane] * weight[lane]``."""
    data, value = _data(loop), loop.body.value
    order = lanes_of(data, loop)
    if order is None:
        refuse(loop, SHUFFLE, f"the order of lanes depends on loops that are not unrolled: {data}")
    if not isinstance(value.b, tirx.Mul) or not isinstance(order, tirx.Shuffle):
        return settle(loop, SHUFFLE)
    sums, weights = (lanes_of(each, loop) for each in (value.a, value.b.b))
    if sums is None or weights is None:
        refuse(loop, SHUFFLE, f"sums or filter do not lie together: {value}")
    return tirx.BufferStore(loop.body.buffer, sums + order * weights, sums.indices)
