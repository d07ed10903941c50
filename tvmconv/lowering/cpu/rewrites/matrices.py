"""Replace loops over a vector register's sums by matrix products of bf16.

A definition multiplies quads one by one (algorithms/pairs.py). A space marks, by MATRICES, the vectorized loop over the sums in a register:
each row has the quad of a pixel, each column the quad of an output channel. Quads of neighbouring rows, and of neighbouring columns, are
contiguous: one vector of each is loaded, and one call of a function imported by the space adds all products.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm.ir import TensorLoad

from ....algorithms.annotations import MATRICES
from ....algorithms.pairs import DOT, MATRIX, calls
from ...common.rewrites import map_nodes, refuse, rewrite_loops, substitute
from .padding import uses


def by_matrices(body: Any) -> Any:
    """Return the statement with marked loops replaced by calls of MATRIX."""
    return rewrite_loops(body, MATRICES, _sum_products)


def _sum_products(loop: Any) -> Any:
    """``sums[lane] = sums[lane] + DOT(data[lane // columns], weights[lane % columns])``, possibly under a condition."""
    stores: list[Any] = []

    def by_register(store: Any) -> Any:
        stores.append(store)
        value = store.value
        if not isinstance(value, tirx.Add) or not isinstance(value.a, TensorLoad) or not calls(value.b, DOT):
            refuse(loop, MATRICES, f"it adds no products of quads: {store}")
        lanes, (_, data, weights) = int(loop.extent), value.b.args
        columns = 1 + max(_offsets(loop, weights))
        sums = _vector(loop, value.a, list(range(lanes)))
        rows = _vector(loop, data, [lane // columns for lane in range(lanes)])
        added = tirx.call_pure_extern(
            f"float32x{lanes}", MATRIX, sums, rows, _vector(loop, weights, [lane % columns for lane in range(lanes)])
        )
        return tirx.BufferStore(store.buffer, added, sums.indices)

    body = map_nodes(loop.body, tirx.BufferStore, by_register)
    if loop.kind != tirx.ForKind.VECTORIZED or len(stores) != 1:
        refuse(loop, MATRICES, "it is no vectorized loop over the sums of a register")
    if uses(body, loop.loop_var):
        refuse(loop, MATRICES, "a condition is not the same for all of its lanes")
    return body


def _offsets(loop: Any, load: Any) -> list[int]:
    """Return the offset of each lane's element from the first lane's, along the last axis."""
    if not isinstance(load, TensorLoad):
        refuse(loop, MATRICES, f"it multiplies what lies in no array: {load}")
    *outer, index = load.indices
    analyzer = sym.Analyzer()
    for axis in outer:
        firsts = [substitute(axis, {loop.loop_var: lane}) for lane in range(int(loop.extent))]
        if not all(analyzer.can_prove_equal(each, firsts[0]) for each in firsts):
            refuse(loop, MATRICES, f"lanes lie apart in {load}")
    first = substitute(index, {loop.loop_var: 0})
    offsets = [analyzer.simplify(substitute(index, {loop.loop_var: lane}) - first) for lane in range(int(loop.extent))]
    if not all(isinstance(offset, tirx.IntImm) for offset in offsets):
        refuse(loop, MATRICES, f"lanes lie at no constant distance in {load}")
    return [int(offset) for offset in offsets]


def _vector(loop: Any, load: Any, order: list[int]) -> Any:
    """Return the vector load of the elements that lanes read in an `order`, each once; refuse other loads."""
    if _offsets(loop, load) != order:
        refuse(loop, MATRICES, f"neighbours of a matrix do not lie together in {load}")
    indices = [sym.Analyzer().simplify(substitute(index, {loop.loop_var: 0})) for index in load.indices]
    return tirx.BufferLoad(load.source, [*indices[:-1], tirx.Ramp(indices[-1], 1, 1 + max(order))])
