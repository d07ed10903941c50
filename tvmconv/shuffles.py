"""Lanes that read neighbouring elements in another order than their own: one load of them all, put in order in registers.

LLVM would be given a load for each lane. The order is part of an instruction, so an unrolled loop on which it depends is
unrolled here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm_ffi.structural import structural_map

from .definitions.pairs import DOT, calls
from .turning import replaced


def by_shuffles(body: Any) -> Any:
    """Return the statement with the orders of data in sums known; sums of products, not calls, are made vectors'."""
    while loop := _ordering(body):
        body = structural_map(body, (tirx.For, partial(_instead, loop, _unrolled(loop))))
    return structural_map(body, (tirx.For, _by_vector))


def _unrolled(loop: Any) -> Any:
    values = range(int(loop.min), int(loop.min + loop.extent))
    return tirx.SeqStmt([replaced(loop.body, {loop.loop_var: value}) for value in values])


def _instead(loop: Any, statement: Any, each: Any) -> Any:
    return statement if each.loop_var.same_as(loop.loop_var) else each


def lanes_of(value: Any, loop: Any) -> Any:
    """Return the vector of `value` in the lanes of a vectorized loop; None where a load's order is not known.

    What all lanes read is a broadcast, lanes that lie together are one load, and others a shuffle of one.
    """
    lane, count, analyzer = loop.loop_var, int(loop.extent), sym.Analyzer()
    if not any(lane.same_as(var) for var in tirx.analysis.undefined_vars(value, [])):
        return tirx.Broadcast(value, count)
    *outer, index = value.indices
    first = replaced(index, {lane: 0})
    offsets = [analyzer.simplify(replaced(index, {lane: each}) - first) for each in range(count)]
    if not all(isinstance(offset, tirx.IntImm) for offset in offsets):
        return None
    order = [int(offset) for offset in offsets]
    least, extent = min(order), max(order) - min(order) + 1
    together = tirx.BufferLoad(value.source, [*outer, tirx.Ramp(analyzer.simplify(first + least), 1, extent)])
    if order == list(range(count)):
        return together
    # To more lanes than there are: TVM's shuffle takes several vectors, not more indices.
    copies = -(-count // extent)
    return tirx.Shuffle([together] * copies, [tirx.const(each - least, "int32") for each in order])


def _ordering(body: Any) -> Any:
    """Return an unrolled loop on which an order of lanes depends; None: there is none."""
    unrolled: list[Any] = []
    orders: list[Any] = []

    def look(loop: Any) -> Any:
        data = _data(loop)
        if data is not None and lanes_of(data, loop) is None:
            orders.extend(tirx.analysis.undefined_vars(data.indices[-1], []))
        if loop.kind == tirx.ForKind.UNROLLED:
            unrolled.append(loop)
        return loop

    structural_map(body, (tirx.For, look))
    return next((loop for loop in unrolled if any(loop.loop_var.same_as(var) for var in orders)), None)


def _data(loop: Any) -> Any:
    """Return what the sum in a vectorized loop reads of data; None: it is no such loop."""
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, tirx.BufferStore):
        return None
    value = loop.body.value
    if not isinstance(value, tirx.Add):
        return None
    data = value.b.a if isinstance(value.b, tirx.Mul) else value.b.args[1] if calls(value.b, DOT) else None
    return data if isinstance(data, TensorLoad) else None


def _by_vector(loop: Any) -> Any:
    """``sum[lane] = sum[lane] + data[order of lane] * weight[lane]``."""
    if _data(loop) is None or not isinstance(loop.body.value.b, tirx.Mul):
        return loop
    value = loop.body.value
    sums, data, weights = (lanes_of(each, loop) for each in (value.a, value.b.a, value.b.b))
    if not isinstance(data, tirx.Shuffle):
        return loop
    return tirx.BufferStore(loop.body.buffer, sums + data * weights, sums.indices)
