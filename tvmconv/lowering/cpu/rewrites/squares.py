"""Transpose squares of elements in registers, read by vectors along one axis and used by vectors along another."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm_ffi.structural import structural_equal

from ...common.rewrites import map_nodes, rewrite_loops, substitute
from .transposing.copies import loads_of, runs
from .transposing.registers import transposed_vectors

# Marks a loop around a vectorized loop with the same extent that contains only a store.
SQUARE = "tvmconv.square"


def by_squares() -> tvm.transform.Pass:
    """Return the pass that reads squares, of an outer variable by lanes, by vectors along the outer variable."""

    def in_squares(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        return func.with_body(rewrite_loops(func.body, SQUARE, _square))

    return tirx.transform.prim_func_pass(in_squares, opt_level=0, name="BySquares")


def crosses(load: Any, outer: Any, inner: Any, extent: int) -> bool:
    """Return whether a load uses both variables, and is contiguous along the outer one, not the inner one."""
    used = [variable for index in load.indices for variable in tirx.analysis.undefined_vars(index, [])]
    both = all(any(variable.same_as(each) for each in used) for variable in (outer, inner))
    return both and runs(load, outer, extent) and not runs(load, inner, extent)


def _square(loop: Any) -> Any:
    lanes, row, side = loop.body, loop.loop_var, int(loop.extent)
    store, lane, integer = lanes.body, lanes.loop_var, str(loop.loop_var.ty.dtype)
    found: list[Any] = []
    for load in loads_of(store.value):
        if crosses(load, row, lane, side) and not any(structural_equal(load, other) for other in found):
            found.append(load)
    if not found:
        # After simplification, no load needs transposing, and TVM (0.27) cannot vectorize conditions that may be left.
        inner = tirx.For(lane, lanes.min, lanes.extent, tirx.ForKind.SERIAL, store)
        return tirx.For(row, loop.min, loop.extent, tirx.ForKind.SERIAL, inner)
    statements: list[Any] = []
    squares = []
    for load in found:
        dtype = load.source.dtype
        rows, square = (tirx.decl_buffer((side * side,), dtype, name, scope="local") for name in ("rows", "square"))
        at, x = tirx.Var("at", integer), tirx.Var("x", integer)
        read = substitute(load, {lane: at, row: x})
        vectors = [tirx.BufferLoad(rows, [tirx.Ramp(tirx.const(i * side, integer), 1, side)]) for i in range(side)]
        statements += [
            tirx.AllocBuffer(rows),
            tirx.AllocBuffer(square),
            _loop(
                at,
                side,
                tirx.ForKind.UNROLLED,
                _loop(x, side, tirx.ForKind.VECTORIZED, tirx.BufferStore(rows, read, [at * side + x])),
            ),
            *(
                tirx.BufferStore(square, vector, [tirx.Ramp(tirx.const(i * side, integer), 1, side)])
                for i, vector in enumerate(transposed_vectors(vectors, side))
            ),
        ]
        squares.append(tirx.BufferLoad(square, [row * side + lane]))

    def element(load: Any) -> Any:
        return next((at for each, at in zip(found, squares, strict=True) if structural_equal(load, each)), load)

    value = map_nodes(store.value, TensorLoad, element)
    written = tirx.BufferStore(store.buffer, value, store.indices)
    inner = tirx.For(lane, lanes.min, lanes.extent, tirx.ForKind.VECTORIZED, written)
    return tirx.SeqStmt([*statements, tirx.For(row, loop.min, loop.extent, tirx.ForKind.UNROLLED, inner)])


def _loop(variable: Any, extent: int, kind: Any, body: Any) -> Any:
    return tirx.For(variable, tirx.const(0, variable.ty.dtype), tirx.const(extent, variable.ty.dtype), kind, body)
