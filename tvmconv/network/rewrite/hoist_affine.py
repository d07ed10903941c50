"""Move per-channel operators up to the convolution or product that computes the channels.

A batch normalization, or an operator with a fixed number for each channel, may follow a Linear behind a reshape or transposition, or
several convolutions behind their concatenation. Moved before these, it is folded into filters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.ir import TupleType
from tvm.relax.expr_functor import mutator

from ..ir.constants import static_shape
from ..ir.graph import scalar
from ..ir.moves import RESHAPES, order_of
from ..ir.mutator import GraphMutator, each_function, tidy
from ..ir.problem_of import is_convolution, is_product
from .sink_reshapes import collapse

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
_BINARY = {f"relax.{name}": getattr(relax.op, name) for name in ("add", "subtract", "multiply", "divide")}


@dataclass(frozen=True)
class _Scaling:
    """An operator on `data` with numbers for each channel, along `axis`.

    Attributes
    ----------
    vectors
        Vectors of numbers, one for each channel.
    apply
        Applies the operator to other data, given the axis of the channels there, and their vectors.
    """

    data: relax.Var
    axis: int
    vectors: tuple[Array, ...]
    apply: Callable[[relax.Expr, int, tuple[Array, ...]], relax.Expr]


def hoist(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose scales and shifts by channel directly follow the operators that compute the channels, where that is possible.

    Reshapes around them that now follow each other are merged.
    """
    return collapse(tidy(each_function(mod, _Hoisting, with_bindings=True)))


@mutator
class _Hoisting(GraphMutator):
    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return a scaled value with its scaling moved to the convolutions or products before; None if that is impossible."""
        found = self._scaling(binding.var)
        if found is None or self._computes(found.data, found.axis) or not self._reaches(found.data, found.axis):
            return None
        return self._moved(found, found.data, found.axis, found.vectors)

    def _scaling(self, variable: relax.Var) -> _Scaling | None:
        """Return the per-channel operator that a variable is bound to; None for others."""
        value = self._graph.values.get(variable)
        if isinstance(value, relax.TupleGetItem):
            return self._normalization(value)
        call = self._graph.call(variable)
        if call is None or call.op.name not in _BINARY:
            return None
        for place, (data, fixed) in enumerate((call.args, reversed(call.args))):
            array, shape = self._graph.array(fixed), static_shape(call.ty)
            if array is None or scalar(array) is not None or not isinstance(data, relax.Var):
                continue
            if shape is None or static_shape(data.ty) != shape or array.ndim > len(shape):
                continue
            axes = [axis + len(shape) - array.ndim for axis, size in enumerate(array.shape) if size != 1]
            if len(axes) == 1:
                return _Scaling(data, axes[0], (array.reshape(-1),), _binary(call, place))
        return None

    def _normalization(self, item: relax.TupleGetItem) -> _Scaling | None:
        found, call = self._graph.normalization(item), self._graph.call(item.tuple_value)
        if found is None or len(self._graph.readers(item.tuple_value)) != 1 or not isinstance(found.data, relax.Var):
            return None
        return _Scaling(found.data, found.axis, found.numbers, _batch_norm(call))

    def _computes(self, variable: relax.Var, axis: int) -> bool:
        """Return whether a convolution or product, perhaps with scalings, computes a variable's channels directly."""
        call, found = self._graph.call(variable), self._scaling(variable)
        if call is not None and (is_convolution(call) or is_product(call)):
            channels = call.ty.ndim - 1 if is_product(call) else 1
            return axis == channels and self._graph.array(call.args[1]) is not None
        return (
            found is not None and found.axis == axis and self._is_alone(found.data) and self._computes(found.data, axis)
        )

    def _reaches(self, variable: relax.Var, axis: int) -> bool:
        """Return whether operators on an axis of a variable can be moved to the operator that computes its channels."""
        if not self._is_alone(variable):
            return False
        if self._computes(variable, axis):
            return True
        return bool(parts := self._before(variable, axis)) and all(
            isinstance(data, relax.Var) and self._reaches(data, at) for data, at, _ in parts
        )

    def _is_alone(self, variable: relax.Var) -> bool:
        return len(self._graph.readers(variable)) == 1

    def _before(self, variable: relax.Var, axis: int) -> list[tuple[Any, int, Callable[[Array], Array]]]:
        """Return the operands of a move, each with the axis of the channels there, and a function that selects their numbers."""
        call = self._graph.call(variable)
        shape = None if call is None else static_shape(call.ty)
        if call is None or shape is None:
            return []
        if call.op.name in RESHAPES:
            return _reshape(call.args[0], shape, axis)
        axes = order_of(call)
        if axes is not None:
            return [(call.args[0], axes[axis], lambda vector: vector)]
        if call.op.name == "relax.concat" and call.attrs.axis is not None:
            return self._concatenated(call, axis, len(shape))
        return []

    def _concatenated(self, call: relax.Call, axis: int, rank: int) -> list[tuple[Any, int, Callable[[Array], Array]]]:
        fields = self._graph.fields(call.args[0])
        if int(call.attrs.axis) % rank != axis:
            return [(field, axis, lambda vector: vector) for field in fields]
        parts: list[tuple[Any, int, Callable[[Array], Array]]] = []
        begin = 0
        for field in fields:
            shape = static_shape(field.ty)
            if shape is None:
                return []
            parts.append((field, axis, partial(_part, begin=begin, end=begin + shape[axis])))
            begin += shape[axis]
        return parts

    def _moved(self, found: _Scaling, variable: relax.Var, axis: int, vectors: tuple[Array, ...]) -> relax.Expr:
        """Return a variable's value with the operator moved into it."""
        if self._computes(variable, axis):
            return found.apply(self.visit_expr(variable), axis, vectors)
        call = self._graph.call(variable)
        assert call is not None
        made = [
            self.builder_.emit(self._moved(found, data, at, tuple(map(part, vectors))))
            for data, at, part in self._before(variable, axis)
        ]
        first = relax.Tuple(made) if call.op.name == "relax.concat" else made[0]
        return relax.Call(call.op, [first, *call.args[1:]], call.attrs, call.ty_args)


def _reshape(data: Any, shape: Shape, axis: int) -> list[tuple[Any, int, Callable[[Array], Array]]]:
    """Return the operand of a reshape with the axis that contains the channels of `axis`, perhaps repeated; else nothing."""
    before = static_shape(data.ty)
    channels, outer = shape[axis], prod(shape[:axis])
    if before is None:
        return []
    for at, extent in enumerate(before):
        blocks, rest = divmod(outer, prod(before[:at]))
        # The axis consists of blocks of all channels, each channel repeated for the remaining elements.
        if not rest and blocks and not extent % (blocks * channels):
            return [(data, at, partial(_spread, near=extent // (blocks * channels), blocks=blocks))]
    return []


def _part(vector: Array, begin: int, end: int) -> Array:
    return vector[begin:end]


def _spread(vector: Array, near: int, blocks: int) -> Array:
    return np.tile(np.repeat(vector, near), blocks)


def _binary(call: relax.Call, place: int) -> Callable[[relax.Expr, int, tuple[Array, ...]], relax.Expr]:
    """Return the application of an operator on two tensors, with the data at position `place`."""

    def apply(data: relax.Expr, axis: int, vectors: tuple[Array, ...]) -> relax.Expr:
        numbers = vectors[0].reshape(-1, *[1] * (data.ty.ndim - 1 - axis))
        fixed = relax.const(numbers, str(call.ty.dtype))
        return _BINARY[call.op.name](*((data, fixed) if place == 0 else (fixed, data)))

    return apply


def _batch_norm(call: relax.Call) -> Callable[[relax.Expr, int, tuple[Array, ...]], relax.Expr]:
    """Return the application of a batch normalization."""
    fields = call.ty.fields if isinstance(call.ty, TupleType) else []
    dtype = str(fields[0].dtype)

    def apply(data: relax.Expr, axis: int, vectors: tuple[Array, ...]) -> relax.Expr:
        attrs = call.attrs
        made = relax.op.nn.batch_norm(
            data,
            *(relax.const(each, dtype) for each in vectors),
            axis=axis,
            epsilon=attrs.epsilon,
            center=attrs.center,
            scale=attrs.scale,
            training=False,
        )
        return relax.TupleGetItem(made, 0)

    return apply
