"""Merge transpositions, and move reshapes behind the epilogues of kernels.

Models written for channels last, such as segmentation transformers, transpose the rows of a product to channels first for a
convolution and back; ConvertLayout transposes once more for the kernel. Such transpositions are merged, also through reshapes that do
not separate axes that move together. A reshape after a convolution or product sinks below elementwise operators, so that these are
fused into the kernel's epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..ir.constants import constant, static_shape
from ..ir.moves import RESHAPES, name_of, order_of
from ..ir.mutator import GraphMutator, each_function, tidy
from ..ir.operators import BINARY
from ..ir.problem_of import is_convolution, is_product

Shape = tuple[int, ...]
_OF_ONE = tuple(
    f"relax.{name}"
    for name in [
        "abs",
        "ceil",
        "exp",
        "erf",
        "floor",
        "log",
        "negative",
        "rsqrt",
        "sigmoid",
        "sqrt",
        "tanh",
        "astype",
        "nn.relu",
        "nn.silu",
        "nn.gelu",
        "nn.gelu_tanh",
        "nn.leakyrelu",
    ]
)


def sink(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with merged transpositions, and with reshapes behind the operators that kernels fuse."""
    mod = each_function(mod, _Merging, with_bindings=True)
    return collapse(each_function(collapse(mod), lambda new, _: _Sinking(new), with_bindings=True))


def collapse(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module in which consecutive reshapes are merged."""
    return tidy(each_function(mod, lambda new, _: _Collapsing(new), with_bindings=True))


@mutator
class _Merging(GraphMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a transposition merged with an earlier one, perhaps through reshapes and activations; any other call unchanged."""
        call = self.visit_expr_post_order(call)
        axes = order_of(call)
        made = None if axes is None else self._merged(call.args[0], axes)
        return call if made is None else made

    def _merged(self, data: relax.Expr, axes: Sequence[int]) -> relax.Expr | None:
        """Return `data` with its axes in an order, without an additional transposition; None if it needs one."""
        shape = static_shape(data.ty)
        if shape is None or 0 in shape:
            return None
        long = [axis for axis in axes if shape[axis] > 1]
        if long == sorted(long):
            return relax.op.reshape(data, [shape[axis] for axis in axes])
        before: Any = self.lookup_binding(data) if isinstance(data, relax.Var) else None
        name = name_of(before)
        inner = order_of(before)
        if inner is not None:
            order = [inner[axis] for axis in axes]
            made = self._merged(before.args[0], order)
            return relax.op.permute_dims(before.args[0], order) if made is None else made
        if name in RESHAPES:
            given = static_shape(before.args[0].ty)
            found = None if given is None else _before_reshape(given, shape, axes)
            made = None if found is None else self._merged(before.args[0], found)
            return None if made is None else relax.op.reshape(self.builder_.emit(made), [shape[axis] for axis in axes])
        if name in _OF_ONE and len(self._graph.readers(data)) == 1:
            made = self._merged(before.args[0], axes)
            return None if made is None else relax.Call(before.op, [self.builder_.emit(made)], before.attrs)
        return None


@mutator
class _Sinking(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._known: dict[relax.Var, bool] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return an operator on a kernel's reshaped output as a reshape of the operator on the output; any other call unchanged."""
        call = self.visit_expr_post_order(call)
        shape = static_shape(call.ty)
        if name_of(call) not in (*_OF_ONE, *BINARY) or shape is None or 0 in shape:
            return call
        for arg in call.args:
            before = self._binding(arg)
            if name_of(before) not in RESHAPES or static_shape(arg.ty) != shape or not self._computed(before.args[0]):
                continue
            args = [self._unshaped(each, shape, before.args[0]) for each in call.args]
            if all(each is not None for each in args):
                return relax.op.reshape(self.builder_.emit(relax.Call(call.op, args, call.attrs)), shape)
        return call

    def _computed(self, data: relax.Expr) -> bool:
        """Return whether a value is a kernel's output, or computed elementwise from one."""
        if not isinstance(data, relax.Var):
            return False
        if data not in self._known:
            call = self._binding(data)
            if name_of(call) in (*_OF_ONE, *BINARY):
                self._known[data] = any(map(self._computed, call.args))
            else:
                is_kernel = isinstance(call, relax.Call) and (is_convolution(call) or is_product(call))
                self._known[data] = is_kernel and constant(self._binding(call.args[1])) is not None
        return self._known[data]

    def _unshaped(self, arg: relax.Expr, shape: Shape, data: relax.Expr) -> relax.Expr | None:
        """Return the argument for an operator on `data` instead of data reshaped to `shape`; None if there is none."""
        given, own, array = static_shape(data.ty), static_shape(arg.ty), constant(self._binding(arg))
        if given is None or own is None:
            return None
        if array is not None and array.size == 1:
            return relax.const(array.reshape(()), str(arg.ty.dtype))
        if own == shape:
            before = self._binding(arg)
            same = name_of(before) in RESHAPES and static_shape(before.args[0].ty) == given
            return before.args[0] if same else self.builder_.emit(relax.op.reshape(arg, given))
        # A vector along an axis that the data has, too.
        full = (1,) * (len(shape) - len(own)) + own
        long = [axis for axis, size in enumerate(full) if size > 1]
        found = [axes for axes, made in _groups(given, shape) if made == tuple(long)]
        if len(long) != 1 or not found or len(found[0]) != 1 or array is None or full[long[0]] != shape[long[0]]:
            return None
        wide = [size if axis in found[0] else 1 for axis, size in enumerate(given)]
        return relax.const(array.reshape(wide), str(arg.ty.dtype))

    def _binding(self, expr: relax.Expr) -> Any:
        return self.lookup_binding(expr) if isinstance(expr, relax.Var) else expr


@mutator
class _Collapsing(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a reshape of a reshape as one, or as the data if it has that shape."""
        call = self.visit_expr_post_order(call)
        if name_of(call) != "relax.reshape" or not isinstance(call.args[0], relax.Var):
            return call
        before, shape = self.lookup_binding(call.args[0]), static_shape(call.ty)
        data = before.args[0] if name_of(before) == "relax.reshape" else call.args[0]
        if shape is None:
            return call
        return data if shape == static_shape(data.ty) else relax.op.reshape(data, shape)


def _groups(given: Shape, made: Shape) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the smallest groups of axes longer than 1 of two shapes that have the same number of elements."""
    groups = []
    places = [[axis for axis, size in enumerate(shape) if size > 1] for shape in (given, made)]
    while places[0]:
        axes: tuple[list[int], list[int]] = ([places[0].pop(0)], [places[1].pop(0)])
        sizes = [given[axes[0][0]], made[axes[1][0]]]
        while sizes[0] != sizes[1]:
            fewer = sizes.index(min(sizes))
            axes[fewer].append(places[fewer].pop(0))
            sizes[fewer] *= (given, made)[fewer][axes[fewer][-1]]
        groups.append((tuple(axes[0]), tuple(axes[1])))
    return groups


def _before_reshape(given: Shape, made: Shape, axes: Sequence[int]) -> list[int] | None:
    """Return the order of the axes of `given` that, reshaped, is the order `axes` of `made`; None if that separates a group of axes."""
    groups = {made_axes[0]: (given_axes, made_axes) for given_axes, made_axes in _groups(given, made)}
    order = [axis for axis, size in enumerate(given) if size == 1]
    left = [axis for axis in axes if made[axis] > 1]
    while left:
        given_axes, made_axes = groups.get(left[0], ((), ()))
        if not made_axes or tuple(left[: len(made_axes)]) != made_axes:
            return None
        order += given_axes
        left = left[len(made_axes) :]
    return order
