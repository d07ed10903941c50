"""Pixel shuffles: channels that become pixels, which frontends write as a reshape, a transposition and a reshape.

ConvertLayout would transpose the data twice, as it keeps the layout of reshaped tensors. A transposed convolution with a filter of
zeros and ones computes the same, and has a layout: :func:`marked_pixels` writes one as a mark before layouts are changed, and
:func:`moved_pixels` replaces it by a reshape, one transposition and a reshape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ...fills import numpy_dtype
from ..ir.constants import constant, static_shape
from ..ir.graph import Graph
from ..ir.operators import TRANSPOSED
from ..ir.problem_of import DTYPES, is_convolution

Order = npt.NDArray[np.int64]
# The most elements of a mark's filter; larger shuffles are not marked.
_MOST = 2**22


@dataclass(frozen=True)
class PixelShuffle:
    """A pixel shuffle.

    Attributes
    ----------
    order
        The data's channel for each channel of the result, and each position in the block of pixels that a pixel becomes.
    """

    data: Any
    order: Order


def pixel_shuffle(variable: Any, graph: Graph) -> PixelShuffle | None:
    """Return the pixel shuffle, with channels as the second axis, that a variable is bound to; None for anything else."""
    made, moved = graph.call(variable, "relax.reshape"), static_shape(variable.ty)
    axes = None if made is None else graph.call(made.args[0], "relax.permute_dims")
    cut = None if axes is None else graph.call(axes.args[0], "relax.reshape")
    if made is None or axes is None or cut is None or axes.attrs.axes is None or moved is None:
        return None
    given, parts, order = static_shape(cut.args[0].ty), static_shape(cut.ty), list(map(int, axes.attrs.axes))
    rank = len(moved) - 2
    alone = all(len(graph.readers(each.args[0])) == 1 for each in (made, axes))
    if given is None or parts is None or not 1 <= rank <= 3 or len(given) != rank + 2 or len(parts) != 2 * rank + 2:
        return None
    if not alone or not isinstance(cut.args[0], relax.Var) or parts[:1] + parts[rank + 2 :] != given[:1] + given[2:]:
        return None
    channel, places = order[1], order[3::2]
    if order[0] or order[2::2] != [*range(rank + 2, 2 * rank + 2)] or not 1 <= channel <= rank + 1:
        return None
    sizes = tuple(size * parts[place] for size, place in zip(given[2:], places, strict=True))
    if moved != (given[0], parts[channel], *sizes):
        return None
    numbers = np.arange(given[1]).reshape(parts[1 : rank + 2])
    return PixelShuffle(cut.args[0], numbers.transpose([at - 1 for at in (channel, *places)]))


def marked_pixels(shuffle: PixelShuffle, data: Any) -> Any:
    """Return the mark of a shuffle, a transposed convolution of data; None if its type has none, or the filter would be too large."""
    order, dtype = shuffle.order, str(data.ty.dtype)
    channels, *factors = order.shape
    # In groups, if the pixels of a channel come from contiguous channels.
    groups = channels if (order == np.arange(order.size).reshape(order.shape)).all() else 1
    if dtype not in DTYPES or order.size * channels // groups * order.size // channels > _MOST:
        return None
    filter_ = np.zeros((order.size, channels // groups, *factors), numpy_dtype(DTYPES[dtype]))
    for place in np.ndindex(order.shape):
        at = (order[place], place[0] % (channels // groups), *place[1:])
        filter_[at] = 1
    return TRANSPOSED[len(factors)](data, relax.const(filter_, dtype), strides=factors, groups=groups)


def moved_pixels(call: relax.Call, emit: Callable[[Any], Any]) -> Any:
    """Return the operators of a shuffle for its mark; None for other calls."""
    order = _order(call)
    shape, made = static_shape(call.args[0].ty) if call.args else None, static_shape(call.ty)
    if order is None or shape is None or made is None:
        return None
    # Factors of the channel axis in memory order, that with the largest stride first.
    steps = [int(np.diff(order, axis=axis).max(initial=0)) for axis in range(order.ndim)]
    lying = sorted(range(order.ndim), key=lambda axis: (-steps[axis], -order.shape[axis]))
    parts = [order.shape[axis] for axis in lying]
    if not (np.arange(order.size).reshape(parts).transpose(np.argsort(lying)) == order).all():
        return None
    rank, is_last = order.ndim - 1, str(call.attrs.data_layout).endswith("C")
    begin, first = (1 + rank, 1) if is_last else (1, 2 + rank)
    places = [begin + lying.index(axis) for axis in range(rank + 1)]
    pixels = [each for axis in range(rank) for each in (first + axis, places[1 + axis])]
    axes = [0, *pixels, places[0]] if is_last else [0, places[0], *pixels]
    sizes = shape[1:-1] if is_last else shape[2:]
    cut = emit(relax.op.reshape(call.args[0], [shape[0], *sizes, *parts] if is_last else [shape[0], *parts, *sizes]))
    return relax.op.reshape(emit(relax.op.permute_dims(cut, axes)), made)


def _order(call: relax.Call) -> Order | None:
    """Return the order of the shuffle that a transposed convolution computes; None if it computes something else."""
    if not is_convolution(call) or not call.op.name.endswith("transpose"):
        return None
    array, attrs = constant(call.args[1]), call.attrs
    if array is None or not str(attrs.kernel_layout).startswith("IO"):
        return None
    factors, groups = array.shape[2:], int(attrs.groups)
    plain = not any(map(int, (*attrs.padding, *attrs.output_padding))) and {*map(int, attrs.dilation)} == {1}
    if not plain or tuple(map(int, attrs.strides)) != factors or array.size > _MOST:
        return None
    channels = array.shape[1] * groups
    found = np.argwhere(array.astype(np.float32) == 1)
    if (
        len(found) != array.shape[0]
        or np.count_nonzero(array) != len(found)
        or len(found) != channels * np.prod(factors)
    ):
        return None
    order = np.full((channels, *factors), -1)
    for channel, output, *place in found:
        at = (channel // (array.shape[0] // groups) * array.shape[1] + output, *place)
        order[at] = channel
    return order if (np.sort(order.reshape(-1)) == np.arange(order.size)).all() else None
