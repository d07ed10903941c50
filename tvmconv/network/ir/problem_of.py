"""Problems of Relax's convolutions and products."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ...dtypes import FLOATS, ROWS, numpy_dtype
from ...errors import InvalidProblemError
from ...family import Extent
from ...problem import Problem
from ...runtime.arrays import KERNEL_TYPES
from .constants import static_shape
from .free import dims_of

DTYPES = {ROWS[name].numpy: name for name in FLOATS}
# Types of centred 8-bit data (minus its zero point) and of its sums; types of integer filters.
CENTRED = ("int16", "int32")
_FILTERS = {ROWS[name].numpy: name for name in ("s8", "u8", "s16")}
CONVOLUTION = re.compile(r"relax\.nn\.conv([123])d(_transpose)?")
_SPATIAL = "DHW"
# Extent that replaces a free one.
_FEW = 64
Shape = tuple[int, ...]


class NotCoveredError(Exception):
    """Reason why no kernel can compute a convolution."""


def is_convolution(call: relax.Call) -> bool:
    """Return whether a call is one of Relax's convolutions."""
    return CONVOLUTION.fullmatch(getattr(call.op, "name", "")) is not None


def is_product(call: relax.Call) -> bool:
    """Return whether a call is a product of rows and a matrix, which is a convolution with one tap."""
    return getattr(call.op, "name", "") == "relax.matmul" and getattr(call.args[1].ty, "ndim", -1) == 2


def problem_of(call: relax.Call) -> Problem:
    """Return the Problem of a convolution or product, without bias and epilogue.

    A product's problem has all rows on one axis. An integer convolution's has data of u8 without a zero point, which the graph has
    (`follow_integers`). Where extents are free, the problem is one of many, with few pixels (`free_extents`).

    Raises
    ------
    NotCoveredError
        If no kernel computes it, with the reason.
    """
    shapes = [static_shape(each.ty) for each in (*call.args, call)]
    if any(shape is None for shape in shapes):
        shapes = _some_of_many(call)
    types = [str(each.ty.dtype) for each in (*call.args, call)]
    if types[0] in DTYPES and len(set(types)) == 1:
        dtype = DTYPES[types[0]]
    elif (types[0], types[2]) == CENTRED and types[1] in _FILTERS:
        dtype = f"u8{_FILTERS[types[1]]}s32"
    else:
        cast = "; compile with --dtype f32" if "float64" in types else ""
        raise NotCoveredError(f"its types are {', '.join(types)}; kernels take {' or '.join(DTYPES)} throughout{cast}")
    try:
        build = _product if is_product(call) else _convolution
        return build(call, dtype, *(shape or () for shape in shapes))
    except InvalidProblemError as error:
        raise NotCoveredError(str(error)) from error


def free_extents(call: relax.Call) -> tuple[Extent, ...]:
    """Return the ranges of a convolution's or product's batch and spatial extents; none if all are fixed."""
    dims = dims_of(call.args[0].ty) or ()
    if all(isinstance(size, int) for size in dims):
        return ()
    extents = [Extent.of(size) if isinstance(size, int) else Extent() for size in dims]
    if is_product(call):
        return Extent.of(1), Extent()
    attrs, rank = call.attrs, len(dims) - 2
    spatial = extents[1:-1] if _channels_last(attrs.data_layout, rank) else extents[2:]
    taps = [(static_shape(call.args[1].ty) or ())[each] for each in to_oix(call)[2:]]
    spans = [int(step) * (size - 1) + 1 for step, size in zip(attrs.dilation, taps, strict=True)]
    # A family's fixed extents may not be less than a filter's span: such an extent, large enough only by pads, counts as free.
    return extents[0], *(Extent() if each.high < span else each for each, span in zip(spatial, spans, strict=True))


def _some_of_many(call: relax.Call) -> list[Shape | None]:
    """Return shapes of data, filter and output with small numbers in place of free extents."""
    given, weights, made = dims_of(call.args[0].ty), static_shape(call.args[1].ty), dims_of(call.ty)
    if given is None or weights is None or made is None:
        raise NotCoveredError("its shapes are not known")
    if is_product(call):
        data = [size if isinstance(size, int) else _FEW for size in given]
        return [tuple(data), weights, (*data[:-1], weights[1])]
    attrs, rank = call.attrs, len(given) - 2
    channel, first = (-1, 1) if _channels_last(attrs.data_layout, rank) else (1, 2)
    if not isinstance(given[channel], int) or not isinstance(made[channel], int):
        raise NotCoveredError("its channels are not fixed")
    data, output = list(given), list(made)
    data[0] = output[0] = given[0] if isinstance(given[0], int) else 1
    transposed, pads = "transpose" in call.op.name, [int(pad) for pad in attrs.padding]
    for axis, size in enumerate(weights[each] for each in to_oix(call)[2:]):
        stride, span = int(attrs.strides[axis]), int(attrs.dilation[axis]) * (size - 1) + 1
        at, padded = first + axis, pads[axis] + pads[rank + axis]
        if not isinstance(data[at], int):
            data[at] = max(_FEW, span)
        if transposed:
            output[at] = (data[at] - 1) * stride + span - padded + int(attrs.output_padding[axis])
        else:
            output[at] = (data[at] + padded - span) // stride + 1
    return [tuple(data), weights, tuple(output)]


def _convolution(call: relax.Call, dtype: str, data: Shape, weights: Shape, output: Shape) -> Problem:
    found = CONVOLUTION.fullmatch(call.op.name)
    assert found is not None
    rank, transposed, attrs = int(found[1]), bool(found[2]), call.attrs
    channels_last = _channels_last(attrs.data_layout, rank)
    if attrs.out_layout not in ("", attrs.data_layout):
        raise NotCoveredError(f"its output is {attrs.out_layout}, its input {attrs.data_layout}")
    channel, first = (-1, 1) if channels_last else (1, 2)
    spatial = slice(first, first + rank)
    pads = [int(pad) for pad in attrs.padding]
    ends = pads[rank:]
    if transposed:
        ends = [max(end - int(more), 0) for end, more in zip(ends, attrs.output_padding, strict=True)]
    kernel = tuple(weights[axis] for axis in to_oix(call)[2:])
    return Problem(
        op="convolution_backprop_data" if transposed else "convolution",
        batch=data[0],
        in_channels=data[channel],
        in_spatial=data[spatial],
        out_channels=output[channel],
        out_spatial=output[spatial],
        kernel=kernel,
        strides=tuple(map(int, attrs.strides)),
        dilations=tuple(map(int, attrs.dilation)),
        pads_begin=tuple(pads[:rank]),
        pads_end=tuple(ends),
        groups=int(attrs.groups),
        data_format="NXC" if channels_last else "NCX",
        filter_format="XIO" if channels_last else "OIX",
        dtype=dtype,
    )


def _product(call: relax.Call, dtype: str, data: Shape, weights: Shape, output: Shape) -> Problem:
    return pointwise(weights[0], weights[1], prod(data[:-1]), dtype)


def pointwise(
    depth: int, outputs: int, pixels: int, dtype: str, layout: str = "NXC", batch: int = 1, groups: int = 1
) -> Problem:
    """Return the convolution with one axis and one tap, from `depth` channels to `outputs` in each group.

    Raises
    ------
    InvalidProblemError
        If it is too large for 32-bit indices.
    """
    return Problem(
        op="convolution",
        batch=batch,
        in_channels=groups * depth,
        in_spatial=(pixels,),
        out_channels=groups * outputs,
        out_spatial=(pixels,),
        kernel=(1,),
        strides=(1,),
        dilations=(1,),
        pads_begin=(0,),
        pads_end=(0,),
        groups=groups,
        data_format=layout,
        filter_format="XIO" if layout == "NXC" else "OIX",
        dtype=dtype,
    )


def filter_of(call: relax.Call, array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return a call's filter with its axes permuted to the order OIX of its Problem."""
    ordered = array.T[..., None] if is_product(call) else np.transpose(array, to_oix(call))
    return ordered.astype(np.float64)


def plain_filter(filter_: npt.NDArray[np.float64], problem: Problem) -> npt.NDArray[Any]:
    """Return a filter in the order OIX as a kernel reads it in place, in the problem's format."""
    if problem.filter_format == "XIO":
        filter_ = np.moveaxis(filter_, (1, 0), (-2, -1))
    return elements(filter_, problem.types.filter)


def elements(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Return numbers in a kernel's type: bf16 as its bits."""
    return np.ascontiguousarray(array.astype(numpy_dtype(dtype))).view(KERNEL_TYPES[dtype])


def to_oix(call: relax.Call) -> list[int]:
    """Return the axes of a convolution's filter in the order OIX of its Problem.

    Of a transposed convolution, Relax calls the input's channels I, a Problem calls them O: its filter is the forward convolution's.
    """
    found = CONVOLUTION.fullmatch(call.op.name)
    assert found is not None
    return [
        call.attrs.kernel_layout.index(letter)
        for letter in ("IO" if found[2] else "OI") + _SPATIAL[3 - int(found[1]) :]
    ]


def _channels_last(layout: str, rank: int) -> bool:
    spatial = _SPATIAL[3 - rank :]
    if layout not in (f"N{spatial}C", f"NC{spatial}"):
        raise NotCoveredError(f"its layout is {layout}; kernels take N{spatial}C or NC{spatial}")
    return layout.endswith("C")
