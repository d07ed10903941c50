"""Sums of many numbers as sums of blocks' sums.

An accumulator loses up to half of its last bit with each number added: in f32, a sum of ones stops at 16.8 million. The error of a
fixed tree of short sums, the same for all numbers of threads, grows with its depth.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..ir.constants import static_shape
from ..ir.mutator import each_function, tidy

# The most numbers added to one accumulator, and the accumulators of a row of at least as many numbers (`schedule/reduce.py`).
MOST, LANES = 4096, 16
# Approximate length of the blocks of a long axis; along rows, their number of vectors.
BLOCK = 256
_NARROW = "float16"
_TYPES = ("float32", "float64")
_WHOLE_POOLS = {f"relax.nn.adaptive_avg_pool{rank}d": rank for rank in (1, 2, 3)}
_SOFTMAX = ("relax.nn.softmax", "relax.nn.log_softmax")


def by_blocks(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose sums, means, variances and softmaxes add at most `MOST` numbers in one accumulator; f16 is summed in f32."""
    return tidy(each_function(tidy(mod), lambda new, _: _Blocks(new), with_bindings=True))


@mutator
class _Blocks(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a sum by its blocks, or the call."""
        call = self.visit_expr_post_order(call)
        name, shape = getattr(call.op, "name", ""), static_shape(call.args[0].ty) if call.args else None
        if not shape or 0 in shape:
            return call
        if name in _SOFTMAX:
            return self._softmax(call, shape)
        axes = self._axes(call, name, shape)
        dtype = str(call.ty.dtype) if axes else ""
        if dtype not in (*_TYPES, _NARROW) or (dtype != _NARROW and not _is_long(shape, axes)):
            return call
        data = self._emit(relax.op.astype(call.args[0], "float32")) if dtype == _NARROW else call.args[0]
        number = prod(shape[axis] for axis in axes)
        made = self._summed(data, axes)
        if name != "relax.sum":
            made = self._by(made, number)
        if name in ("relax.variance", "relax.std"):
            centered = self._emit(relax.op.subtract(data, made))
            made = self._by(self._summed(self._emit(relax.op.multiply(centered, centered)), axes), number)
        if name == "relax.std":
            made = self._emit(relax.op.sqrt(made))
        made = self._emit(relax.op.reshape(made, static_shape(call.ty) or ()))
        return relax.op.astype(made, dtype) if dtype == _NARROW else made

    def _axes(self, call: relax.Call, name: str, shape: tuple[int, ...]) -> list[int]:
        """Return the axes that a call sums along; none for other calls."""
        rank = len(shape)
        if name in ("relax.sum", "relax.mean", "relax.variance", "relax.std"):
            axes = call.attrs.axis
            return sorted({int(axis) % rank for axis in (range(rank) if axes is None else axes)})
        if name in _WHOLE_POOLS and str(call.attrs.layout) == str(call.attrs.out_layout):
            spatial = [axis for axis, letter in enumerate(str(call.attrs.layout)) if letter not in "NC"]
            output = static_shape(call.ty) or ()
            return spatial if output and all(output[axis] == 1 for axis in spatial) else []
        return []

    def _summed(self, data: Any, axes: list[int]) -> Any:
        """Return the sums along axes, which are kept with an extent of 1."""
        shape = static_shape(data.ty) or ()
        if not _is_long(shape, axes):
            return self._emit(relax.op.sum(data, axes, keepdims=True))
        if len(axes) > 1 and not _is_long(shape, axes[-1:]):
            # The most of the last axes that one accumulator can sum.
            last = next(axes[at:] for at in range(1, len(axes)) if not _is_long(shape, axes[at:]))
            return self._summed(self._emit(relax.op.sum(data, last, keepdims=True)), axes[: -len(last)])
        *_others, axis = axes
        extent = shape[axis]
        size = BLOCK * (LANES if axis == len(shape) - 1 else 1)
        block = next((each for each in (size, size * 2, size // 2, size * 4, size // 4) if extent % each == 0), size)
        whole = extent - extent % block
        parts = [self._cut(data, axis, 0, whole)] if whole < extent else [data]
        cut = self._emit(relax.op.reshape(parts[0], [*shape[:axis], whole // block, block, *shape[axis + 1 :]]))
        blocks = self._emit(relax.op.sum(cut, [axis + 1]))
        if whole < extent:
            rest = self._emit(relax.op.sum(self._cut(data, axis, whole, extent), [axis], keepdims=True))
            blocks = self._emit(relax.op.concat([blocks, rest], axis))
        return self._summed(blocks, axes)

    def _cut(self, data: Any, axis: int, begin: int, end: int) -> Any:
        return self._emit(relax.op.strided_slice(data, [axis], [begin], [end]))

    def _by(self, total: Any, number: int) -> Any:
        return self._emit(relax.op.divide(total, relax.const(number, str(total.ty.dtype))))

    def _softmax(self, call: relax.Call, shape: tuple[int, ...]) -> relax.Expr:
        data, axis = call.args[0], int(call.attrs.axis) % len(shape)
        if str(call.ty.dtype) not in _TYPES or not _is_long(shape, [axis]):
            return call
        below = self._emit(relax.op.subtract(data, self._emit(relax.op.max(data, axis, keepdims=True))))
        power = self._emit(relax.op.exp(below))
        total = self._summed(power, [axis])
        if call.op.name == "relax.nn.softmax":
            return relax.op.divide(power, total)
        return relax.op.subtract(below, self._emit(relax.op.log(total)))

    def _emit(self, expr: relax.Expr) -> Any:
        return self.builder_.emit(expr)


def _is_long(shape: tuple[int, ...], axes: list[int]) -> bool:
    """Return whether a sum along axes exceeds `MOST` numbers per accumulator."""
    in_vectors = axes and axes[-1] == len(shape) - 1 and shape[-1] >= LANES
    return prod(shape[axis] for axis in axes) > MOST * (LANES if in_vectors else 1)
