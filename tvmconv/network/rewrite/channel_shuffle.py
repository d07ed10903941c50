"""Channel and pixel shuffles, which ConvertLayout would surround by transpositions: it keeps the layout of reshaped tensors.

A shuffle of channels is a reshape that splits their axis in two, a transposition of both, and a reshape back. Before layouts are
changed, these operators become a mark that ConvertLayout moves to another axis: a slice of all channels, whose end exceeds their
number by the number of groups. Afterwards the mark is written as a shuffle of its new axis. `pixel_shuffle.py` has the marks of pixel
shuffles.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..ir.constants import integers, static_shape
from ..ir.mutator import GraphMutator, each_function, tidy
from .pixel_shuffle import marked_pixels, moved_pixels, pixel_shuffle

_SLICE = "relax.strided_slice"


def mark_shuffles(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with marks in place of shuffles, and without slices that select everything."""
    # ConvertLayout does not look through a variable that is bound to another.
    return tidy(each_function(mod, _Marking, with_bindings=True))


def write_shuffles(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with shuffles in place of the marks of :func:`mark_shuffles`."""
    return each_function(mod, lambda new, _: _Writing(new))


@mutator
class _Marking(GraphMutator):
    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the mark of a pixel shuffle."""
        found = pixel_shuffle(binding.var, self._graph)
        return None if found is None else marked_pixels(found, self.visit_expr(found.data))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return the mark for the last operator of a shuffle, and the data for a slice of everything."""
        if _groups(call) is not None:
            return self.visit_expr(call.args[0])
        graph, shape = self._graph, static_shape(call.ty)
        if getattr(call.op, "name", "") != "relax.reshape" or shape is None or len(shape) < 3:
            return super().visit_call_(call)
        order = graph.call(call.args[0], "relax.permute_dims")
        cut = None if order is None else graph.call(order.args[0], "relax.reshape")
        parts = None if cut is None else static_shape(cut.ty)
        if cut is None or parts is None or order is None or static_shape(cut.args[0].ty) != shape:
            return super().visit_call_(call)
        swapped = [0, 2, 1, *range(3, len(parts))]
        if parts[:1] + parts[3:] != shape[:1] + shape[2:] or list(map(int, order.attrs.axes or ())) != swapped:
            return super().visit_call_(call)
        return relax.op.strided_slice(self.visit_expr(cut.args[0]), [1], [0], [shape[1] + parts[1]], [1])


@mutator
class _Writing(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return the operators of a shuffle for its mark; any other call unchanged."""
        call = self.visit_expr_post_order(call)
        found = _groups(call)
        if found is None:
            pixels = moved_pixels(call, self.builder_.emit)
            return call if pixels is None else pixels
        axis, groups = found
        shape = list(static_shape(call.ty) or ())
        parts = [*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]]
        order = [*range(axis), axis + 1, axis, *range(axis + 2, len(parts))]
        cut = self.builder_.emit(relax.op.reshape(call.args[0], parts))
        return relax.op.reshape(self.builder_.emit(relax.op.permute_dims(cut, order)), shape)


def _groups(call: Any) -> tuple[int, int] | None:
    """Return the axis of a slice of everything, and by how much its end exceeds the extent; None for other calls."""
    shape = None if call is None else static_shape(call.ty)
    if shape is None or getattr(call.op, "name", "") != _SLICE or static_shape(call.args[0].ty) != shape:
        return None
    axes, _, ends = map(integers, call.args[1:4])
    if not axes or not ends or len(axes) != 1 or ends[0] <= shape[axes[0]]:
        return None
    return axes[0], ends[0] - shape[axes[0]]
