"""ATen's operators that move numbers, with PyTorch's indexing: negative indices, and several axes at a time.

TVM's frontend (0.27) reads beyond the data for a negative index, and combines several indices in another order, or not at all. Known
positions are computed here, so that gathers have constant indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from tvm import relax

from ...ir.constants import static_shape
from ...ir.free import equal, is_below_zero, is_one
from ..builder import from_start, where_within
from .arguments import Converters, Given
from .constants import constants


def _index(given: Given) -> relax.Expr:
    """Return ``index.Tensor``: the indices' axes replace the indexed ones, at the place of the first if these are adjacent, else in front."""
    data, shape = given["self"], given.dims("self")
    axes = [axis for axis, index in enumerate(given["indices"]) if index is not None]
    begin, neighbours = axes[0], axes == list(range(axes[0], axes[-1] + 1))
    if not neighbours:
        begin = 0
        others = [axis for axis in range(len(shape)) if axis not in axes]
        data = given.emit(relax.op.permute_dims(data, [*axes, *others]))
        shape = tuple(shape[axis] for axis in (*axes, *others))
    extents = shape[begin : begin + len(axes)]
    place = linear(given, [given["indices"][axis] for axis in axes], extents)
    if len(axes) > 1:
        data = given.emit(relax.op.reshape(data, (*shape[:begin], prod(extents), *shape[begin + len(axes) :])))
    return given.emit(relax.op.take(data, place, begin))


def linear(given: Given, indices: Sequence[Any], extents: Sequence[Any]) -> Any:
    """Return the offsets of indices of adjacent axes along the merged axis."""
    found = [_from_start(given, index, extent) for index, extent in zip(indices, extents, strict=True)]
    place = found[0]
    for index, extent in zip(found[1:], extents[1:], strict=True):
        place = given.emit(relax.op.multiply(place, given.of_type(extent, "int64")))
        place = given.emit(relax.op.add(place, index))
    return where_within(given.builder, place, found, extents) if len(found) > 1 else place


def _from_start(given: Given, index: Any, extent: Any) -> Any:
    """Return indices with negative ones, which count from the end, replaced."""
    if str(index.ty.dtype) == "bool":
        raise ValueError("it is indexed by a mask, whose number of true elements is not fixed")
    return from_start(given.builder, given.of_type(index, "int64"), extent)


def _select(given: Given) -> relax.Expr:
    (axis,), index = given.axes(), given["index"]
    if not index.ty.ndim:
        index = given.emit(relax.op.reshape(index, [1]))  # the axis stays
    return given.emit(relax.op.take(given["self"], index, axis))


def _choose(given: Given) -> relax.Expr:
    """Return ``select.int``: one index of an axis, which is removed; the index may be negative, or data."""
    (axis,), index = given.axes(), given["index"]
    extent = given.dims("self")[axis]
    if isinstance(index, int) and not isinstance(extent, int):
        begin = index if index >= 0 else extent + index
        part = given.emit(relax.op.strided_slice(given["self"], [axis], [begin], [begin + 1]))
        return given.emit(relax.op.reshape(part, given.made_dims()))
    if isinstance(index, relax.Expr):
        at = _from_start(given, index, extent)
    elif isinstance(index, int):
        at = relax.const(index % extent, "int64")
    else:
        raise ValueError(f"the index {index} is not fixed")
    return given.emit(relax.op.take(given["self"], at, axis))


def _part(given: Given) -> relax.Expr:
    """Return ``slice.Tensor`` from its begin, with the number of elements that PyTorch computed."""
    (axis,), begin, step = given.axes(), given["start"], given["step"]
    extent, count = given.dims("self")[axis], given.made_dims()[axis]
    if equal(count, extent):
        return given["self"]
    begin = 0 if begin is None else begin
    if is_below_zero(begin):  # from the end
        begin = max(extent + begin, 0) if isinstance(extent, int) and isinstance(begin, int) else extent + begin
    end = begin + (count - 1) * step + 1
    return given.emit(relax.op.strided_slice(given["self"], [axis], [begin], [end], [step], assume_inbound=True))


def _take_rows(given: Given) -> relax.Expr:
    return given.emit(relax.op.take(given["weight"], given["indices"], 0))


def _concatenate(given: Given) -> relax.Expr:
    """Return ``cat.default``, with parts of several types; empty parts of any rank are dropped."""
    parts = [each for each in given["tensors"] if 0 not in (static_shape(each.ty) or ())]
    if not parts:
        return given["tensors"][0]
    typed = [given.of_type(each, given.dtype) for each in parts]
    return given.emit(relax.op.concat(typed, int(given["dim"]) % parts[0].ty.ndim))


def _stack(given: Given) -> relax.Expr:
    typed = [given.of_type(each, given.dtype) for each in given["tensors"]]
    return given.emit(relax.op.stack(typed, int(given["dim"]) % (typed[0].ty.ndim + 1)))


def _range(given: Given) -> relax.Expr:
    """Return ``arange`` between fixed numbers, or between integers computed from extents."""
    bounds = start, _, step = [given[name] for name in ("start", "end", "step")]
    if any(isinstance(bound, relax.Expr) for bound in bounds):
        if any(isinstance(bound, float) for bound in bounds):
            raise ValueError("its bounds are not fixed")
        return given.counted(lambda at: at * step + start, given.made_dims())
    return constants(torch.arange(*bounds, dtype=getattr(torch, given.dtype)))


def _fill(given: Given) -> relax.Expr:
    """Return a tensor full of one number, which may be an expression of extents; 0 if the call gives none."""
    value = given.get("fill_value")
    filled = given.of_type(0 if value is None else value, given.dtype)
    return given.emit(relax.op.broadcast_to(filled, given.made_dims()))


def _stride(given: Given) -> relax.Expr:
    """Return ``as_strided`` of a contiguous tensor as a gather, since elements may overlap."""
    data = given.nodes["self"].meta["val"]
    if not data.is_contiguous() or data.storage_offset():
        raise ValueError(f"its tensor is not contiguous, with strides {data.stride()}")
    place: Any = np.array(given["storage_offset"] or 0)
    for size, stride in zip(given["size"], given["stride"], strict=True):
        place = place[..., None] + np.arange(size) * stride
    flat = given.emit(relax.op.reshape(given["self"], [-1]))
    return given.emit(relax.op.take(flat, relax.const(place, "int64"), 0, mode="clip"))


def _squeeze(given: Given) -> relax.Expr:
    """Return ``squeeze``, which keeps axes longer than 1; without axes left a reshape, as ConvertLayout (0.27) fails in both cases."""
    shape = given.dims("self")
    axes = [axis for axis in given.axes() if shape and is_one(shape[axis])]
    if len(axes) == len(shape):
        return given.emit(relax.op.reshape(given["self"], ()))
    return given.emit(relax.op.squeeze(given["self"], axes)) if axes else given["self"]


def _pad(given: Given) -> relax.Expr:
    """Return ``constant_pad_nd``; pads computed from extents, which may crop, by a gather and a mask."""
    data, shape, made = given["self"], given.dims("self"), given.made_dims()
    pads, value, rank = given["pad"], given.get("value") or 0, len(shape)
    axes = {rank - 1 - at: (pads[2 * at], pads[2 * at + 1]) for at in range(len(pads) // 2)}
    known = {axis: pad for axis, pad in axes.items() if all(isinstance(each, int) for each in pad)}
    if any(map(any, known.values())) or len(known) == len(axes):
        width = [each for axis in range(rank) for each in known.get(axis, (0, 0))]
        data = given.emit(relax.op.nn.pad(data, width, "constant", value))
    for axis, (begin, _) in axes.items():
        if axis in known:
            continue
        places = given.counted(lambda at: at, [made[axis]], "int64")
        places = given.emit(relax.op.subtract(places, given.of_type(begin, "int64")))
        least, end = relax.const(0, "int64"), given.of_type(shape[axis], "int64")
        bounds = [given.emit(relax.op.less_equal(least, places)), given.emit(relax.op.less(places, end))]
        inside = given.emit(relax.op.logical_and(*bounds))
        inside = given.emit(relax.op.reshape(inside, [made[axis], *[1] * (rank - 1 - axis)]))
        data = given.emit(relax.op.take(data, places, axis, mode="clip"))
        data = given.emit(relax.op.where(inside, data, given.of_type(value, given.dtype)))
    return data


def _repeat(given: Given) -> relax.Expr:
    """Return ``repeat``, perhaps with free numbers of repeats, as a broadcast of axes inserted before each axis."""
    repeats = given["repeats"]
    dims = (*[1] * (len(repeats) - len(given.dims("self"))), *given.dims("self"))
    apart = given.emit(relax.op.reshape(given["self"], [each for extent in dims for each in (1, extent)]))
    wide = [each for pair in zip(repeats, dims, strict=True) for each in pair]
    return given.emit(relax.op.reshape(given.emit(relax.op.broadcast_to(apart, wide)), given.made_dims()))


def _split(given: Given) -> relax.Expr:
    """Return ``split_with_sizes``, perhaps with free extents."""
    (axis,), begin, parts = given.axes(), 0, []
    for size in given["split_sizes"]:
        part = relax.op.strided_slice(given["self"], [axis], [begin], [begin + size], assume_inbound=True)
        begin += size
        parts.append(given.emit(part))
    return relax.Tuple(parts)


MOVES: Converters = {
    "constant_pad_nd.default": _pad,
    "copy_strided.default": lambda given: given["a"],
    **{f"squeeze.{of}": _squeeze for of in ("default", "dim", "dims")},
    "as_strided.default": _stride,
    "full_like.default": _fill,
    "zeros_like.default": _fill,
    "index.Tensor": _index,
    "index_select.default": _select,
    "select.int": _choose,
    "slice.Tensor": _part,
    "split_with_sizes.default": _split,
    "embedding.default": _take_rows,
    "cat.default": _concatenate,
    "stack.default": _stack,
    "arange.start_step": _range,
}
