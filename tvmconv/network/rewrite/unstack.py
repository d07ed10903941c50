"""Compute sums and extremes over a stack of tensors by operators on its parts, without the stack.

A selective kernel stacks the outputs of its convolutions, sums them, and sums their products with a factor for each; a split attention
splits the channels of one convolution in this way. ConvertLayout has no layout for the stack, which would be transposed and copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ..ir.constants import static_shape
from ..ir.mutator import GraphMutator, each_function, tidy
from ..ir.operators import BINARY

# The most parts, as each is read by its own operator; more may be faster in one tensor.
_MOST = 8
_REDUCED = {
    "relax.sum": relax.op.add,
    "relax.mean": relax.op.add,
    "relax.max": relax.op.maximum,
    "relax.min": relax.op.minimum,
}
# Types that represent a mean's factor 1 / n, and sums of `_MOST` of their usual numbers.
_MEANS = ("float32", "float64", "bfloat16")
Shape = tuple[int, ...]


def unstack(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a simplified module without the stacks of which only reductions are read."""
    return tidy(each_function(mod, _Unstacking, with_bindings=True))


@mutator
class _Unstacking(GraphMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a reduction over a stack as operators on its parts; any other call unchanged."""
        combine = _REDUCED.get(getattr(call.op, "name", ""))
        shape = static_shape(call.args[0].ty) if combine else None
        if combine is None or shape is None or len(call.attrs.axis or ()) != 1 or call.attrs.keepdims:
            return super().visit_call_(call)
        if call.op.name == "relax.mean" and str(call.ty.dtype) not in _MEANS:
            return super().visit_call_(call)
        axis = int(call.attrs.axis[0]) % len(shape)
        is_stack = isinstance(self._stacked(call.args[0], axis, shape), list)
        if not is_stack and not (2 <= shape[axis] <= _MOST and self._is_stack(call.args[0], axis, shape)):
            return super().visit_call_(call)
        parts = [self._part(call.args[0], axis, shape, number) for number in range(shape[axis])]
        total, *others = sorted(parts, key=lambda part: static_shape(part.ty) != static_shape(call.ty))
        if static_shape(total.ty) != static_shape(call.ty):
            return super().visit_call_(call)
        for part in others:
            total = self.builder_.emit(combine(total, part))
        if call.op.name == "relax.mean":
            total = relax.op.multiply(total, relax.const(1 / shape[axis], str(call.ty.dtype)))
        return total

    def _is_stack(self, value: Any, axis: int, shape: Shape) -> bool:
        """Return whether a value is a stack along an axis, or computed elementwise from one, with one consumer."""
        if self._stacked(value, axis, shape) is not None:
            return True
        call = self._graph.call(value) if isinstance(value, relax.Var) else None
        if call is None or call.op.name not in BINARY or len(self._graph.readers(value)) != 1:
            return False
        return any(static_shape(each.ty) == shape and self._is_stack(each, axis, shape) for each in call.args)

    def _stacked(self, value: Any, axis: int, shape: Shape) -> Any:
        """Return a stack's parts, or the tensor whose axis is split into them; None for other values."""
        call = self._graph.call(value) if isinstance(value, relax.Var) else None
        if call is None:
            return None
        whole = shape[:axis] + shape[axis + 1 :]
        if call.op.name == "relax.stack" and int(call.attrs.axis or 0) % len(shape) == axis:
            return self._graph.fields(call.args[0]) or None
        if call.op.name != "relax.reshape" or axis + 1 == len(shape):
            return None
        before = static_shape(call.args[0].ty)
        if before != (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]):
            return None
        joined = self._graph.call(call.args[0], "relax.concat") if isinstance(call.args[0], relax.Var) else None
        if joined is not None and int(joined.attrs.axis or 0) % len(whole) == axis:
            fields = self._graph.fields(joined.args[0])
            if fields and all(static_shape(field.ty) == whole for field in fields):
                return fields
        return call.args[0]

    def _narrow(self, part: Any, shape: Shape) -> relax.Expr:
        """Return a part before a broadcast to `shape` that changed nothing, or of a constant of one element; else the part."""
        broadcast = self._graph.call(part, "relax.broadcast_to") if isinstance(part, relax.Var) else None
        source = part if broadcast is None else broadcast.args[0]
        array = self._graph.array(source)
        if array is not None and array.size == 1:
            return relax.const(array.reshape(()), str(source.ty.dtype))
        return self.visit_expr(source if static_shape(source.ty) == shape else part)

    def _part(self, value: Any, axis: int, shape: Shape, number: int) -> relax.Expr:
        """Return a part of a stack, or of a value broadcast to `shape` with it."""
        own = static_shape(value.ty) or ()
        at = axis - len(shape) + len(own)
        if at < 0:  # the value lacks this axis
            return self.visit_expr(value)
        rest = own[:at] + own[at + 1 :]
        stacked = self._stacked(value, axis, shape) if own == shape else None
        if isinstance(stacked, list):
            return self._narrow(stacked[number], rest)
        if stacked is not None:
            return self._cut(self.visit_expr(stacked), at, number * shape[axis + 1], shape[axis + 1], rest)
        call = self._graph.call(value) if isinstance(value, relax.Var) else None
        if own == shape and call is not None and self._is_stack(value, axis, shape):
            return self.builder_.emit(
                BINARY[call.op.name](*(self._part(each, axis, shape, number) for each in call.args))
            )
        return self._cut(self.visit_expr(value), at, number if own[at] > 1 else 0, 1, rest)

    def _cut(self, value: relax.Expr, axis: int, begin: int, extent: int, shape: Sequence[int]) -> relax.Expr:
        part = self.builder_.emit(relax.op.strided_slice(value, [axis], [begin], [begin + extent]))
        return part if static_shape(part.ty) == tuple(shape) else self.builder_.emit(relax.op.reshape(part, shape))
