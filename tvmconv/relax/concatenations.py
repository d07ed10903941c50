"""Concatenations as copies of one part after the other.

TVM's is a nest of selects for each element, one for each part, and what follows is fused with that: in DenseNet-121, whose
concatenations have up to 25 parts, they moved 4.6 GB/s and took 36 % of the network (two threads of a Zen 4).
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relax, te
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .simplify import static_shape

# TVM's number for operators that FuseOps leaves alone.
_OPAQUE = 8
# Elements from which on threads pay, as of `tvmconv.relax.schedules`.
_LEAST_PARALLEL = 65536


def concatenate(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a concatenation of fixed shapes by copies; TVM's of others."""
    fields = _fields(builder, call.args[0])
    shapes = [static_shape(field.ty) for field in fields]
    if call.attrs.axis is None or any(shape is None for shape in shapes):
        return call.op.get_attr("FLegalize")(builder, call)
    attributes = {"op_pattern": _OPAQUE, "tirx.is_scheduled": 1}
    axis = int(call.attrs.axis) % call.ty.ndim
    return builder.call_te(_copied, fields, axis, primfunc_name_hint="concatenate", primfunc_attrs=attributes)


def _fields(builder: relax.BlockBuilder, parts: Any) -> list[relax.Expr]:
    bound = parts
    while isinstance(bound, relax.Var):
        found = builder.lookup_binding(bound)
        if not isinstance(found, (relax.Tuple, relax.Var)):
            break
        bound = found
    if isinstance(bound, relax.Tuple):
        return list(bound.fields)
    return [builder.emit(relax.TupleGetItem(parts, number)) for number in range(len(parts.ty.fields))]


def _copied(parts: list[te.Tensor], axis: int) -> te.Tensor:
    shape = [int(size) for size in parts[0].shape]
    shape[axis] = sum(int(part.shape[axis]) for part in parts)
    rows, chunks = prod(shape[:axis]), [prod(int(size) for size in part.shape[axis:]) for part in parts]
    total = sum(chunks)
    many = rows * total >= _LEAST_PARALLEL

    def code(inputs: Any, outputs: Any) -> tvm.tirx.Stmt:
        with IRBuilder() as builder:
            output = T.buffer_proxy(outputs[0])
            sources = [T.buffer_proxy(each) for each in inputs]
            with (T.parallel if many and rows > 1 else T.serial)(0, rows) as row:
                begin = 0
                for source, chunk in zip(sources, chunks, strict=True):
                    with (T.parallel if many and rows == 1 else T.serial)(0, chunk) as at:
                        output[row * total + begin + at] = source[row * chunk + at]
                    begin += chunk
            return builder.get()

    return te.extern([shape], parts, code, dtype=str(parts[0].dtype), name="concatenate")
