"""Moves, maximum pools and means of dequantized data, in 8 bits.

Models quantize the result of each operator. Moves and maximum pools commute with a dequantization by one scale, so integers are moved
before they are dequantized, and a quantization by the same scale then cancels. Quantizers are moved up through moves that do not shrink
data, to the kernel that rounds. Means become sums of integers.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ..ir.constants import constant, static_shape
from ..ir.graph import scalar
from ..ir.moves import RESHAPES, name_of
from ..ir.mutator import GraphMutator, each_function, tidy
from ..ir.quantizers import EIGHT_BITS, QUANTIZERS, is_quantizer, quantize
from .average_integers import Numbers, average
from .channel_quantizers import expand_by_channels

_DEQUANTIZE = "relax.dequantize"
# Operators that move elements of their first argument, or of all tensors in it.
_MOVES = (
    *RESHAPES,
    *(
        f"relax.{name}"
        for name in ("permute_dims", "strided_slice", "concat", "flip", "tile", "broadcast_to", "repeat")
    ),
)
_BOUNDS = {"relax.nn.relu": relax.op.maximum, "relax.maximum": relax.op.maximum, "relax.minimum": relax.op.minimum}
_GREATEST = tuple(f"relax.nn.max_pool{rank}d" for rank in (1, 2, 3))


def move_quantizers(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose moves between quantizers are of integers."""
    return tidy(each_function(tidy(each_function(mod, _Moving, with_bindings=True)), _Lifting, with_bindings=True))


class _OfIntegers(GraphMutator):
    def _binding(self, expr: Any) -> Any:
        return self.lookup_binding(expr) if isinstance(expr, relax.Var) else expr

    def _dequantized(self, expr: Any) -> tuple[Any, Numbers] | None:
        """Return the integers of data dequantized by one scale, and their numbers; None for other data."""
        call = self._binding(expr)
        numbers = _numbers(call) if name_of(call) == _DEQUANTIZE else None
        return None if numbers is None or str(call.ty.dtype) != "float32" else (call.args[0], numbers)

    def _quantize(self, values: Any, quantizer: relax.Call) -> relax.Expr:
        """Return f32 quantized by one scale: the integers that it was dequantized from, perhaps bounded, if scale and zero point match."""
        numbers = _numbers(quantizer)
        assert numbers is not None
        integers = self._bounded(values, numbers, QUANTIZERS[name_of(quantizer)])
        if integers is not None:
            return integers
        return quantize(name_of(quantizer), values, *_constants(numbers), 0, numbers[2])

    def _bounded(self, values: Any, numbers: Numbers, step: str) -> Any:
        """Return bounds on dequantized values as bounds on their integers; None for other operands."""
        found, call = self._dequantized(values), self._binding(values)
        if found is not None:
            return found[0] if found[1] == numbers else None
        name = name_of(call)
        bound = 0.0 if name == "relax.nn.relu" else scalar(constant(call.args[1])) if name in _BOUNDS else None
        inner = None if bound is None or np.isnan(bound) else self._bounded(call.args[0], numbers, step)
        if inner is None:
            return None
        scale, zero, dtype = numbers
        factor = np.float32(1) / np.float32(scale)
        steps = np.float32(bound) * factor if step == "q_reciprocal" else np.float32(bound) / np.float32(scale)
        least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
        level = int(np.clip(np.rint(steps) + zero, least, greatest))
        is_below = name != "relax.minimum"
        if level == (least if is_below else greatest):
            return inner
        return self.builder_.emit(_BOUNDS[name](inner, relax.const(np.dtype(dtype).type(level))))


@mutator
class _Moving(_OfIntegers):
    """Moves dequantizers down, below moves."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return an operator on dequantized data as the dequantized result of integers; any other call unchanged."""
        call = self.visit_expr_post_order(call)
        name = name_of(call)
        if is_quantizer(call) and _numbers(call) is not None:
            return self._quantize(call.args[0], call)
        if is_quantizer(call) or name == _DEQUANTIZE:
            expanded = expand_by_channels(self.builder_.emit, call)
            return call if expanded is None else expanded
        if name == "relax.concat":
            return self._concat(call)
        found = self._dequantized(call.args[0]) if call.args else None
        if found is None:
            return call
        data, numbers = found
        if name in (*_MOVES, *_GREATEST) or _is_nearest(call):
            return self._of(relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args), numbers)
        if name == "relax.nn.pad" and not call.attrs.pad_value:
            return self._of(relax.op.nn.pad(data, list(call.attrs.pad_width), call.attrs.pad_mode, numbers[1]), numbers)
        averaged = average(self.builder_.emit, call, data, numbers)
        return call if averaged is None else averaged

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        """Return a part of a split of dequantized data as the dequantized part of its integers."""
        item = self.visit_expr_post_order(item)
        call = self._binding(item.tuple_value)
        found = self._dequantized(call.args[0]) if name_of(call) == "relax.split" else None
        if found is None:
            return item
        parts = self.builder_.emit(relax.Call(call.op, [found[0]], call.attrs))
        return self._of(relax.TupleGetItem(parts, item.index), found[1])

    def _of(self, integers: relax.Expr, numbers: Numbers) -> relax.Expr:
        return relax.op.dequantize(self.builder_.emit(integers), *_constants(numbers), axis=0, out_dtype="float32")

    def _concat(self, call: relax.Call) -> relax.Expr:
        given = self._binding(call.args[0])
        found = [self._dequantized(each) for each in given.fields] if isinstance(given, relax.Tuple) else [None]
        parts = [each for each in found if each is not None]
        if len(parts) < len(found) or len({numbers for _, numbers in parts}) > 1:
            return call
        return self._of(relax.op.concat([data for data, _ in parts], call.attrs.axis), parts[0][1])


@mutator
class _Lifting(_OfIntegers):
    """Moves quantizers up, above moves."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a quantized move as the move of quantized data; any other call unchanged."""
        given = call.args[0] if call.args else None
        call = self.visit_expr_post_order(call)
        is_of_one = is_quantizer(call) and _numbers(call) is not None
        return self._lifted(given, call.args[0], call) if is_of_one else call

    def _lifted(self, before: Any, values: Any, quantizer: relax.Call) -> relax.Expr:
        """Return quantized f32; `before` is the variable of `values` in the original function."""
        move, old = self._binding(values), self._graph.call(before) if isinstance(before, relax.Var) else None
        emit = self.builder_.emit
        readers = self._graph.readers(before) if isinstance(before, relax.Var) else []
        if old is None or len(readers) != 1 or not _keeps_size(old):
            return self._quantize(values, quantizer)
        if name_of(move) == "relax.concat" and isinstance(given := self._binding(move.args[0]), relax.Tuple):
            olds = self._graph.fields(old.args[0])
            parts = [emit(self._lifted(*each, quantizer)) for each in zip(olds, given.fields, strict=True)]
            return relax.op.concat(parts, move.attrs.axis)
        if name_of(move) in _MOVES or _is_nearest(move):
            data = emit(self._lifted(old.args[0], move.args[0], quantizer))
            return relax.Call(move.op, [data, *move.args[1:]], move.attrs, move.ty_args)
        return self._quantize(values, quantizer)


def _numbers(call: relax.Call) -> Numbers | None:
    """Return the scale, zero point and integer type of a quantizer or dequantizer; None if these are several, or not fixed."""
    scale, zero = (scalar(constant(each)) for each in call.args[1:])
    dtype = str(call.ty.dtype if is_quantizer(call) else call.args[0].ty.dtype)
    return None if scale is None or zero is None or dtype not in EIGHT_BITS else (scale, int(zero), dtype)


def _constants(numbers: Numbers) -> tuple[relax.Expr, relax.Expr]:
    scale, zero, dtype = numbers
    return relax.const(np.float32(scale)), relax.const(np.dtype(dtype).type(zero))


def _is_nearest(call: Any) -> bool:
    """Return whether a call resizes to the nearest elements."""
    return name_of(call) == "relax.image.resize2d" and call.attrs.method == "nearest_neighbor"


def _keeps_size(call: relax.Call) -> bool:
    """Return whether an operator's result is at least as large as its operands, so that rounding these is no more work."""
    made = static_shape(call.ty)
    taken = [static_shape(each.ty) for each in call.args if isinstance(each.ty, relax.TensorType)]
    return made is not None and all(each is not None and prod(each) <= prod(made) for each in taken)
