"""A scheduled function's parameters in the shapes that callers give: the kernel's own arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm_ffi.structural import structural_map

from ...algorithms.definition import Definition, StoreIndex
from ...dtypes import DTYPE_BYTES
from ...problem import Problem


def bind_arguments(func: tirx.PrimFunc, definition: Definition, types: Mapping[str, str]) -> tirx.PrimFunc:
    """Replace the parameters by the kernel's: the problem's operands and the output, in their own shapes and `types`.

    Inputs keep their memory and only change shape. Every output buffer becomes a part of the one output: its stores go to
    where the definition places them.
    """
    *inputs, output = kernel_arguments(definition.problem, types).values()
    views = [view(old, new) for old, new in zip(func.params, inputs, strict=False)]
    body = tirx.SeqStmt([*views, *stored_in([func.body], func, definition, output)])
    return tirx.PrimFunc([*inputs, output], body, func.ret_type, func.attrs)


def kernel_arguments(problem: Problem, types: Mapping[str, str]) -> dict[str, Any]:
    """Return new buffers for a kernel's arguments, aligned to their elements alone, as callers' arrays may be."""
    return {
        name: tirx.decl_buffer(shape, types[dtype], name, data_alignment=DTYPE_BYTES[dtype])
        for name, (shape, dtype) in problem.arrays.items()
    }


def stored_in(
    statements: Iterable[tirx.Stmt], func: tirx.PrimFunc, definition: Definition, output: Any
) -> Sequence[tirx.Stmt]:
    """Return statements of a function whose stores to its output buffers go to the kernel's one `output`."""
    size = DTYPE_BYTES[definition.problem.types.output]
    flat = tirx.decl_buffer((prod(output.shape),), output.dtype, "output_flat", data_alignment=size)
    return [view(flat, output), *move_stores(statements, func, definition, definition.outputs, flat)]


def move_stores(
    statements: Iterable[tirx.Stmt],
    func: tirx.PrimFunc,
    definition: Definition,
    places: Sequence[StoreIndex],
    output: Any,
) -> list[tirx.Stmt]:
    """Return a function's statements with stores to its output buffers moved to `places` in one flat array."""
    outs = list(func.params)[len(definition.problem.operands) :]

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        for out, place in zip(outs, places, strict=True):
            if node.buffer.same_as(out):
                offset, inside = place(list(node.indices))
                stored = tirx.BufferStore(output, node.value, [offset])
                return stored if inside is None else tirx.IfThenElse(inside, stored, None)
        return node

    return [structural_map(each, (tirx.BufferStore, store)) for each in statements]


def view(old: Any, new: Any) -> tirx.Stmt:
    """Make the buffer `old` the memory of `new`, in another shape."""
    return tirx.DeclBuffer(old, data=tirx.buffer_data(new))
