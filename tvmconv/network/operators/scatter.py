"""Scatters along an axis, which overwrite or combine, and of rows at indices of several axes.

TVM's scatter (0.27) joins the axes before the scattered one, and those after, which is wrong where one that is not the first of them
is shorter in the indices than in the data, as PyTorch and ONNX allow. For indices beyond the data it writes outside of the array, and
so does its `scatter_nd`, which wakes all threads for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..ir.free import dims_of, number_of
from ..ir.ordering import greater, less
from ..schedule.stages import LEAST_PARALLEL
from .elementwise import INJECTIVE

# Combinations of the present element and the given one.
_COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda there, given: given,
    "add": lambda there, given: there + given,
    "mul": lambda there, given: there * given,
    "max": greater,
    "min": less,
}


def scatter_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a scatter that ignores indices beyond the data; TVM's for unknown shapes."""
    if any(dims_of(arg.ty) is None for arg in call.args):
        return call.op.get_attr("FLegalize")(builder, call)
    axis = int(call.attrs.axis) % call.ty.ndim
    return builder.call_te(_scatter, *call.args, axis, str(call.attrs.reduction), primfunc_name_hint="scatter_elements")


def _scatter(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str) -> te.Tensor:
    shape, given = ([number_of(extent) for extent in tensor.shape] for tensor in (data, indices))
    others = [each for each in range(len(shape)) if each != axis]
    rows = prod(given[each] for each in others)

    def write(places: Any, values: Any, out: Any) -> None:
        with _loop(rows, rows * given[axis]) as row:
            to, of, left = 0, 0, row
            for each in reversed(others):
                # Truncated, as nothing is below 0: for floors TVM would emit each part four times.
                place = tirx.truncmod(left, given[each])
                to += place * prod(shape[each + 1 :])
                of += place * prod(given[each + 1 :])
                left = tirx.truncdiv(left, given[each])
            # In order, as an index may occur twice.
            with T.serial(0, given[axis]) as step:
                element = of + step * prod(given[axis + 1 :])
                index = places[element]
                place = index + (index < 0) * shape[axis]
                with T.If(tirx.all(place >= 0, place < shape[axis])), T.Then():
                    at = to + place * prod(shape[axis + 1 :])
                    out[at] = _COMBINED[reduction](out[at], values[element])

    return _write_over(data, indices, updates, write, "scatter_elements")


def scatter_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a scatter of rows to indices of the first axes, which ignores those beyond the data; TVM's for unknown shapes."""
    if any(dims_of(arg.ty) is None for arg in call.args):
        return call.op.get_attr("FLegalize")(builder, call)
    return builder.call_te(_scatter_rows, *call.args, str(call.attrs.reduction), primfunc_name_hint="scatter_nd")


def _scatter_rows(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str) -> te.Tensor:
    shape, given = ([number_of(extent) for extent in tensor.shape] for tensor in (data, indices))
    axes, count = given[-1], prod(given[:-1])
    row = prod(shape[axes:])
    width = min(row, LEAST_PARALLEL) if isinstance(row, int) else LEAST_PARALLEL

    def write(places: Any, values: Any, out: Any) -> None:
        # In order, as an index may occur twice.
        with _loop(-(-row // width), count * row) as part, T.serial(0, count) as number:
            at, inside = 0, []
            for axis in range(axes):
                place = places[number * axes + axis]
                inside += [place >= 0, place < shape[axis]]
                at = at * shape[axis] + place
            with T.If(tirx.all(*inside)), T.Then(), T.serial(0, width) as column:
                element = part * width + column
                with T.If(element < row), T.Then():
                    there = out[at * row + element]
                    out[at * row + element] = _COMBINED[reduction](there, values[number * row + element])

    return _write_over(data, indices, updates, write, "scatter_nd")


def _write_over(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, write: Callable[..., None], name: str
) -> te.Tensor:
    """Return a copy of data modified by `write`, whose arguments are the indices, the updates and the copy."""

    def written(inputs: Any, outputs: Any) -> Any:
        source, places, values, out = (T.buffer_proxy(each) for each in (*inputs, *outputs))
        with IRBuilder() as builder:
            with T.seq_scope():
                with _loop(prod(number_of(each) for each in data.shape)) as element:
                    out[element] = source[element]
                write(places, values, out)
            return builder.get()

    return te.extern([data.shape], [data, indices, updates], written, dtype=str(data.dtype), name=name)


def slice_scatter(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return data with a slice replaced; TVM's reads indices from memory, and needs a fixed extent."""
    hints = {"primfunc_name_hint": "slice_scatter", "primfunc_attrs": {"op_pattern": INJECTIVE}}
    return builder.call_te(_replace_slice, *call.args, int(call.attrs.axis) % call.ty.ndim, **hints)


def _replace_slice(data: te.Tensor, given: te.Tensor, begin: Any, end: Any, step: Any, axis: int) -> te.Tensor:
    def element(*at: Any) -> Any:
        place = at[axis] - begin
        inside = tirx.all(place >= 0, at[axis] < end, tirx.floormod(place, step) == 0)
        new = given(*at[:axis], tirx.floordiv(place, step), *at[axis + 1 :])
        return tirx.if_then_else(inside, new, data(*at))

    return te.compute(data.shape, element, "slice_scatter")


def _loop(extent: Any, elements: Any = None) -> Any:
    many = extent if elements is None else elements
    return (T.serial if isinstance(many, int) and many < LEAST_PARALLEL else T.parallel)(0, extent)


OPERATORS = {
    "relax.scatter_elements": scatter_elements,
    "relax.scatter_nd": scatter_nd,
    "relax.slice_scatter": slice_scatter,
}
