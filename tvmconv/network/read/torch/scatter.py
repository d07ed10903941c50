"""ATen's operators that write parts of a tensor, at indices or by a mask.

TVM's frontend (0.27) does not support masks and negative indices, and merges two axes without an index. With constant indices, writes
become one gather of the old and new values, and additions a sum of gathers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ...ir.constants import constant
from ...ir.free import equal, number_of, product
from .arguments import Converter, Converters, Given
from .indexing import linear

# The most values added at one place by gathers; more are added one by one.
_MOST_GATHERS = 64
# TVM's names of a scatter's reductions, by PyTorch's names.
_TOGETHER = {
    "write": "update",
    **dict.fromkeys(("add", "sum"), "add"),
    **dict.fromkeys(("multiply", "prod"), "mul"),
    "amax": "max",
    "amin": "min",
}


def _put(given: Given) -> relax.Expr:
    """Return ``index_put`` at indices of some axes, or by a mask."""
    axes = [axis for axis, index in enumerate(given["indices"]) if index is not None]
    if str(given["indices"][axes[0]].ty.dtype) != "bool":
        return _put_at(given, axes)
    if len(axes) > 1:
        raise ValueError("it writes by several masks, whose number of true elements is not fixed")
    return _put_where(given, axes[0])


def _put_where(given: Given, axis: int) -> relax.Expr:
    """Return a tensor written by a mask of its axes from `axis` on, broadcast along all others."""
    data, mask = given["self"], given["indices"][axis]
    values, meta = given.of_type(given["values"], given.dtype), given.nodes["values"].meta["val"]
    rank, last = data.ty.ndim, data.ty.ndim - axis - mask.ty.ndim
    # Values have one axis for the masked ones: one value for each selected element, or one for all.
    shape = list(meta.shape)
    if len(shape) > last and shape[-last - 1] != 1:
        raise ValueError("it writes separate values by a mask, whose number of true elements is not fixed")
    if len(shape) > last:
        at = len(shape) - last - 1
        shape[at : at + 1] = [1] * mask.ty.ndim
        values = given.emit(relax.op.reshape(values, shape))
    mask = given.emit(relax.op.reshape(mask, [*[1] * axis, *given.dims_of(mask), *[1] * (rank - axis - mask.ty.ndim)]))
    if given["accumulate"]:
        values = given.emit(relax.op.add(data, values))
    return given.emit(relax.op.where(mask, values, data))


def _put_at(given: Given, axes: list[int]) -> relax.Expr:
    """Return a tensor written at indices of some axes, each a row of the others."""
    data, shape = given["self"], given.dims("self")
    others = [axis for axis in range(len(shape)) if axis not in axes]
    order = [*axes, *others]
    place = linear(given, [given["indices"][axis] for axis in axes], [shape[axis] for axis in axes])
    placed = given.dims_of(place)
    count, rest = product(placed), [shape[axis] for axis in others]
    # In PyTorch, the axes of indices replace the indexed ones if these are adjacent, else they come first.
    begin = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    values = given.of_type(given["values"], given.dtype)
    values = given.emit(relax.op.broadcast_to(values, [*rest[:begin], *placed, *rest[begin:]]))
    first = [*range(begin, begin + len(placed))]
    values = _permute(given, values, [*first, *(axis for axis in range(values.ty.ndim) if axis not in first)])
    values = given.emit(relax.op.reshape(values, [count, *rest]))
    rows = [product([shape[axis] for axis in axes]), *rest]
    data = given.emit(relax.op.reshape(_permute(given, data, order), rows))
    written = _write(given, data, given.emit(relax.op.reshape(place, [count])), values)
    written = given.emit(relax.op.reshape(written, [shape[axis] for axis in order]))
    return _permute(given, written, sorted(range(len(order)), key=order.__getitem__))


def _write(given: Given, data: Any, place: Any, values: Any) -> relax.Expr:
    """Return data with values written over rows, or added to them."""
    fixed, dims = constant(place), given.dims_of(data)
    count = dims[0]
    if not all(isinstance(extent, int) for extent in dims):
        wide = given.emit(relax.op.reshape(place, [-1, *[1] * (len(dims) - 1)]))
        places = given.emit(relax.op.broadcast_to(wide, given.dims_of(values)))
        how = "add" if given["accumulate"] else "update"
        return given.emit(relax.op.scatter_elements(data, places, values, axis=0, reduction=how))
    if fixed is not None and given["accumulate"]:
        return _add(given, data, fixed, values)
    if fixed is None:
        rows = given.emit(relax.op.expand_dims(place, [-1]))
        how = "add" if given["accumulate"] else "update"
        return given.emit(relax.op.scatter_nd(data, rows, values, how))
    source = np.arange(count)
    source[fixed] = count + np.arange(len(fixed))  # the last of equal places is written
    both = given.emit(relax.op.concat([data, values], 0))
    return given.emit(relax.op.take(both, relax.const(source, "int64"), 0, mode="clip"))


def _add(given: Given, data: Any, fixed: Any, values: Any) -> Any:
    """Return data with values added to its rows at constant places, by as many gathers as a row has values at most."""
    count, order = given.shape_of(data)[0], np.argsort(fixed, kind="stable")
    places = fixed[order]
    turn = np.arange(len(places)) - np.searchsorted(places, places)
    if len(places) and turn.max() >= _MOST_GATHERS:
        rows = given.emit(relax.op.expand_dims(relax.const(fixed, "int64"), [-1]))
        return given.emit(relax.op.scatter_nd(data, rows, values, "add"))
    nothing = relax.const(np.zeros([1, *given.shape_of(values)[1:]], "float32"), "float32")
    both = given.emit(relax.op.concat([values, given.of_type(nothing, given.dtype)], 0))
    for each in range(turn.max(initial=-1) + 1):
        source = np.full(count, len(places))
        source[places[turn == each]] = order[turn == each]
        data = given.emit(relax.op.add(data, relax.op.take(both, relax.const(source, "int64"), 0, mode="clip")))
    return data


def _permute(given: Given, data: Any, order: list[int]) -> Any:
    return data if order == sorted(order) else given.emit(relax.op.permute_dims(data, order))


def _scatter(default: str) -> Converter:
    """Return the converter of a scatter along an axis, which overwrites or combines."""

    def convert(given: Given) -> relax.Expr:
        how = _TOGETHER.get(given.get("reduce") or default)
        if how is None or given.get("include_self") is False:
            raise ValueError(f"it is a scatter by {given['reduce']}, with include_self={given.get('include_self')}")
        index, (axis,) = given["index"], given.axes()
        wanted = given.dims("index")
        if given.get("src") is None:
            source = given.emit(relax.op.full(wanted, relax.const(given["value"], given.dtype), given.dtype))
        else:
            source = given["src"]
        for each, extent in enumerate(wanted):  # only the source's elements with an index are read
            if not equal(number_of(source.ty.shape[each]), extent):
                source = given.emit(relax.op.strided_slice(source, [each], [0], [extent]))
        return given.emit(relax.op.scatter_elements(given["self"], index, source, axis=axis, reduction=how))

    return convert


WRITES: Converters = {
    "index_put.default": _put,
    **{f"scatter.{of}": _scatter("write") for of in ("src", "value", "reduce", "value_reduce")},
    **{name: _scatter("sum") for name in ("scatter_add.default", "scatter_reduce.two")},
}
