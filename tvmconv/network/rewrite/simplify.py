"""Normalize Relax functions for later passes: constants folded, bounds written in one form.

TVM's own FoldConstant compiles each constant expression, in 20 ms or more; NumPy computes it directly. Frontends write a clip as an
operator, or as TE functions for its two bounds; ConvertLayout supports neither, but `maximum` and `minimum`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import TensorLoad
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...lowering.common.rewrites import find_all
from ..ir.constants import Array, constant, static_shape
from ..ir.mutator import each_function, tidy
from ..ir.operators import BINARY

# Functions of the arguments, the operator's attributes and the shape of its result.
_CONSTANT: Mapping[str, Callable[[list[Array], Any, list[int]], Array]] = {
    "relax.reshape": lambda arrays, attrs, shape: arrays[0].reshape(shape),
    "relax.expand_dims": lambda arrays, attrs, shape: arrays[0].reshape(shape),
    "relax.squeeze": lambda arrays, attrs, shape: arrays[0].reshape(shape),
    "relax.permute_dims": lambda arrays, attrs, shape: arrays[0].transpose(
        None if attrs.axes is None else [int(axis) for axis in attrs.axes]
    ),
    "relax.astype": lambda arrays, attrs, shape: arrays[0].astype(str(attrs.dtype)),
    "relax.isnan": lambda arrays, attrs, shape: np.isnan(arrays[0]),
    "relax.where": lambda arrays, attrs, shape: np.where(*arrays),
    "relax.zeros": lambda arrays, attrs, shape: np.zeros(shape, str(attrs.dtype)),
    "relax.ones": lambda arrays, attrs, shape: np.ones(shape, str(attrs.dtype)),
    "relax.less": lambda arrays, attrs, shape: arrays[0] < arrays[1],
    "relax.take": lambda arrays, attrs, shape: np.take(arrays[0], arrays[1], attrs.axis, mode=attrs.mode),
    "relax.add": lambda arrays, attrs, shape: arrays[0] + arrays[1],
    # Positions computed from ranges by PyTorch's operators.
    "relax.subtract": lambda arrays, attrs, shape: arrays[0] - arrays[1],
    "relax.maximum": lambda arrays, attrs, shape: np.maximum(*arrays),
    "relax.minimum": lambda arrays, attrs, shape: np.minimum(*arrays),
    "relax.less_equal": lambda arrays, attrs, shape: arrays[0] <= arrays[1],
    "relax.floor": lambda arrays, attrs, shape: np.floor(arrays[0]),
    # Filters computed by weight_norm, from torch.export.
    "relax.multiply": lambda arrays, attrs, shape: arrays[0] * arrays[1],
    "relax.sum": lambda arrays, attrs, shape: (
        arrays[0].sum(None if attrs.axis is None else tuple(map(int, attrs.axis)), dtype=arrays[0].dtype).reshape(shape)
    ),
    "relax.sqrt": lambda arrays, attrs, shape: np.sqrt(arrays[0]),
    "relax.abs": lambda arrays, attrs, shape: np.abs(arrays[0]),
    "relax.power": lambda arrays, attrs, shape: np.power(*arrays),
    "relax.divide": lambda arrays, attrs, shape: arrays[0] / arrays[1],
    "relax.full": lambda arrays, attrs, shape: np.full(shape, arrays[0], str(attrs.dtype or arrays[0].dtype)),
}
# Operators on integers that NumPy rounds in another way, or refuses.
_OF_FLOATS = ("relax.divide", "relax.power", "relax.sqrt")
# Modes of a take with the same meaning in NumPy.
_NUMPY_MODES = ("wrap", "clip")
_BOUNDS = {tirx.Max: relax.op.maximum, tirx.Min: relax.op.minimum}


def simplify(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose Relax functions compute nothing from constants alone, and write bounds as `maximum` or `minimum`."""
    return tidy(each_function(mod, lambda new, _: _Simplifier(new)))


@mutator
class _Simplifier(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a simplified call."""
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") == "relax.where":
            sloped = self._sloped(call)
            call = call if sloped is None else self.builder_.normalize(sloped)
        name = getattr(call.op, "name", "")
        if name == "relax.clip":
            return self._clipped(call)
        # Not a slope of 0, whose product with infinity is NaN.
        if name == "relax.nn.leakyrelu" and 0 < call.attrs.alpha <= 1:
            return self._sloping(call.args[0], call.attrs.alpha)
        if name == "relax.nn.layer_norm" and len(call.attrs.axes) > 1:
            return self._normalized(call)
        if name == "relax.squeeze" and call.attrs.axis is not None and call.args[0].ty.ndim > 0:
            # ConvertLayout reads a negative axis as a huge one: std::bad_alloc.
            rank = call.args[0].ty.ndim
            call = self.builder_.normalize(
                relax.op.squeeze(call.args[0], [int(axis) % rank for axis in call.attrs.axis])
            )
        if name == "relax.permute_dims" and any(int(axis) < 0 for axis in call.attrs.axes or ()):  # for the same reason
            axes = [int(axis) % call.ty.ndim for axis in call.attrs.axes]
            call = self.builder_.normalize(relax.op.permute_dims(call.args[0], axes))
        if name == "relax.split" and isinstance(
            call.ty, relax.TensorType
        ):  # into one part, at which ConvertLayout fails
            return call.args[0]
        if name == "relax.call_tir":
            bounded = self._bound(call)
            return call if bounded is None else bounded
        if name == "relax.shape_to_tensor":
            return self._sizes(call)
        if name == "relax.take" and call.attrs.mode not in _NUMPY_MODES:
            return call
        made = self._computed(call, name)
        if made is not None:
            return relax.const(np.array(made, order="C"), str(call.ty.dtype))  # without a type, int64 becomes int32
        return self._with_scalars(call) if name in BINARY else call

    def _computed(self, call: relax.Call, name: str) -> Array | None:
        """Return an operator's result for constants; None for other operands and unknown operators."""
        if name not in _CONSTANT or static_shape(call.ty) is None:
            return None
        given = [self._constant(arg) for arg in call.args if not isinstance(arg, relax.ShapeExpr)]
        arrays = [array for array in given if array is not None]
        if len(arrays) < len(given):
            return None
        if name in _OF_FLOATS and any(array.dtype.kind != "f" for array in arrays):
            return None
        with np.errstate(all="ignore"):  # infinity is an answer
            return _CONSTANT[name](arrays, call.attrs, list(static_shape(call.ty) or ()))

    def _sizes(self, call: relax.Call) -> relax.Expr:
        """Return a shape converted to a tensor, a constant if it is fixed; the ONNX frontend adds it to negative indices."""
        sizes = call.args[0].ty.values
        if sizes is None or not all(isinstance(size, tirx.IntImm) for size in sizes):
            return call
        return relax.const(np.array([int(size) for size in sizes]), str(call.ty.dtype))

    def _with_scalars(self, call: relax.Call) -> relax.Expr:
        """Return an operator on two tensors, with constants of one element as scalars, which have no layout."""
        rank = call.ty.ndim
        args = []
        for arg, other in zip(call.args, reversed(call.args), strict=True):
            array = self._constant(arg)
            if array is not None and array.ndim and array.size == 1 and getattr(other.ty, "ndim", -1) == rank:
                arg = relax.const(array.reshape(()), str(arg.ty.dtype))
            args.append(arg)
        return relax.Call(call.op, args, call.attrs, call.ty_args)

    def _clipped(self, call: relax.Call) -> relax.Expr:
        """Return a clip by its two bounds."""
        data, lo, hi = call.args
        dtype = str(data.ty.dtype)
        for bound, function in ((lo, relax.op.maximum), (hi, relax.op.minimum)):
            number = float(bound.value.value if hasattr(bound.value, "value") else bound.value)
            if np.isfinite(number):
                data = self.builder_.emit(function(data, relax.const(number, dtype)))
        return data

    def _normalized(self, call: relax.Call) -> relax.Expr:
        """Return a layer normalization of several axes by its formula, in f32.

        ConvertLayout moves these axes, but not those of the scale and shift, so the result would be wrong.
        """
        data, scale, shift = (self.builder_.emit(relax.op.astype(each, "float32")) for each in call.args)
        axes = [int(axis) for axis in call.attrs.axes]
        centered = self.builder_.emit(relax.op.subtract(data, relax.op.mean(data, axes, keepdims=True)))
        variance = relax.op.mean(relax.op.multiply(centered, centered), axes, keepdims=True)
        variance = self.builder_.emit(relax.op.add(variance, relax.const(float(call.attrs.epsilon), "float32")))
        total = self.builder_.emit(relax.op.divide(centered, relax.op.sqrt(variance)))
        if call.attrs.scale:
            total = self.builder_.emit(relax.op.multiply(total, scale))
        if call.attrs.center:
            total = self.builder_.emit(relax.op.add(total, shift))
        return relax.op.astype(total, str(call.ty.dtype))

    def _sloping(self, data: relax.Expr, slope: float) -> relax.Expr:
        """Return a leaky ReLU as a maximum, with the slope in f32, as in PyTorch and ONNX, whatever the data's type."""
        dtype = str(data.ty.dtype)
        narrow = dtype in ("float16", "bfloat16")
        wide = self.builder_.emit(relax.op.astype(data, "float32")) if narrow else data
        scaled = self.builder_.emit(relax.op.multiply(wide, relax.const(slope, str(wide.ty.dtype))))
        greater = relax.op.maximum(wide, scaled)
        return relax.op.astype(self.builder_.emit(greater), dtype) if narrow else greater

    def _sloped(self, call: relax.Call) -> relax.Call | None:
        """Return the PReLU that PyTorch's frontend writes as ``where(x > 0, x, slope * x)``; None for anything else."""
        condition, data, scaled = call.args
        compared, product = (self._value(each, name) for each, name in ((condition, "greater"), (scaled, "multiply")))
        if (
            compared is None
            or product is None
            or not (compared.args[0].same_as(data) and product.args[1].same_as(data))
        ):
            return None
        zero, slope = self._constant(compared.args[1]), self._constant(product.args[0])
        shape = static_shape(data.ty)
        if zero is None or zero.size != 1 or zero.any() or slope is None or shape is None:
            return None
        if slope.size == 1:
            return relax.op.nn.leakyrelu(data, float(slope.reshape(())))
        # TVM 0.27 has no PReLU of bf16.
        if slope.shape != (1, *shape[1:2], *[1] * (len(shape) - 2)) or str(data.ty.dtype) == "bfloat16":
            return None
        return relax.op.nn.prelu(data, relax.const(slope.reshape(-1)), axis=1)

    def _value(self, expr: relax.Expr, name: str) -> relax.Call | None:
        """Return the call of an operator that a variable is bound to; None for other values."""
        value = self.lookup_binding(expr) if isinstance(expr, relax.Var) else None
        return value if getattr(getattr(value, "op", None), "name", "") == f"relax.{name}" else None

    def _bound(self, call: relax.Call) -> relax.Expr | None:
        """Return the operator for a call of a TE function that bounds a tensor by a scalar; None for other functions."""
        function, given = self._mod[call.args[0]], call.args[1]
        # Free extents are arguments, too.
        args = (
            [each for each in given if isinstance(each.ty, relax.TensorType)] if isinstance(given, relax.Tuple) else []
        )
        if len(args) != 2:
            return None
        stores = list(find_all(function.body, tirx.BufferStore))
        value: Any = stores[0].value if len(stores) == 1 else None
        operator = _BOUNDS.get(type(value))
        if operator is None:
            return None
        data, bound = value.a, value.b
        if not isinstance(data, TensorLoad) or not _same(data.indices, stores[0].indices):
            return None
        if isinstance(bound, TensorLoad) and len(bound.indices) == 0:
            return operator(args[0], args[1])
        return None

    def _constant(self, expr: relax.Expr) -> Array | None:
        bound = self.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
        return constant(bound)


def _same(some: Any, others: Any) -> bool:
    return len(some) == len(others) and all(one.same_as(other) for one, other in zip(some, others, strict=True))
