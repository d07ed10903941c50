"""Operands that several readers emit with TVM's block builder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tvm import relax, tirx

from ..ir.bounds import bounds_of, is_within
from ..ir.free import dims_of, equal, is_one, simplify
from ..ir.number_table import number_table


def end_block(builder: relax.BlockBuilder) -> None:
    """End the block that an error left open, to avoid TVM's warning."""
    with suppress(Exception):  # where none is open
        builder._end_block()


def as_tensor(builder: relax.BlockBuilder, value: Any, dtype: str) -> relax.Expr:
    """Return a tensor in a type, or a number, which may be an expression of extents, as a tensor without axes.

    Raises
    ------
    ValueError
        If it is a number that was not computed.
    """
    if value is None:
        raise ValueError("one of its numbers is computed from extents in a way that networks do not support")
    if isinstance(value, (bool, int, float)):
        return relax.const(value, dtype)
    if isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType):
        return value if str(value.ty.dtype) == dtype else builder.emit(relax.op.astype(value, dtype))
    return number_table(builder, [value], dtype, ())


def from_start(builder: relax.BlockBuilder, indices: relax.Expr, extent: Any) -> relax.Expr:
    """Return indices along an axis with negative ones, which count from the end, replaced."""
    if bounds_of(indices, builder.lookup_binding)[0] >= 0:
        return indices
    dtype = str(indices.ty.dtype)
    counted = builder.emit(relax.op.add(indices, as_tensor(builder, extent, dtype)))
    is_below = builder.emit(relax.op.less(indices, relax.const(0, dtype)))
    return builder.emit(relax.op.where(is_below, counted, indices))


def where_within(
    builder: relax.BlockBuilder, place: relax.Expr, indices: Sequence[relax.Expr], extents: Sequence[Any]
) -> relax.Expr:
    """Return offsets along merged axes, -1 where an index is beyond its own axis, which the offset may not show."""
    dtype = str(place.ty.dtype)
    for index, extent in zip(indices, extents, strict=True):
        if is_within(bounds_of(index, builder.lookup_binding), 0, extent):
            continue
        above = builder.emit(relax.op.greater_equal(index, as_tensor(builder, extent, dtype)))
        below = builder.emit(relax.op.less(index, relax.const(0, dtype)))
        beyond = builder.emit(relax.op.logical_or(above, below))
        place = builder.emit(relax.op.where(beyond, relax.const(-1, dtype), place))
    return place


def take_first_of_sort(
    builder: relax.BlockBuilder, data: relax.Expr, count: Any, axis: int, is_falling: bool
) -> tuple[relax.Expr, relax.Expr]:
    """Return the first `count` numbers of a sort, an expression of extents, and their indices."""
    axis %= data.ty.ndim
    extent = (dims_of(data.ty) or ())[axis]
    count = simplify(tirx.min(count, tirx.const(0, "int64") + extent))
    places = builder.emit(relax.op.argsort(data, axis, is_falling, "int64"))
    places = builder.emit(relax.op.strided_slice(places, [axis], [0], [count], assume_inbound=True))
    return builder.emit(relax.op.gather_elements(data, places, axis)), places


def write_extents_alike(builder: relax.BlockBuilder, operands: list[Any]) -> bool:
    """Write equal extents of broadcast operands by the same expression, where TVM cannot prove them equal; return whether any changed."""
    differed, known = False, list[Any]()
    for at, each in enumerate(operands):
        dims = dims_of(getattr(each, "ty", None)) if isinstance(each, relax.Expr) else None
        if dims is None:
            continue
        known = [*[1] * (len(dims) - len(known)), *known]
        alike = list(dims)
        for axis, size in enumerate(dims, len(known) - len(dims)):
            if is_one(known[axis]):
                known[axis] = size
            elif known[axis] is not size and equal(known[axis], size):
                alike[axis - len(known)] = known[axis]
        if any(one is not other for one, other in zip(alike, dims, strict=True)):
            operands[at], differed = builder.emit(relax.op.reshape(each, alike)), True
    return differed
