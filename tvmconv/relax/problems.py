"""Calls of Relax's convolutions as Problems."""

from __future__ import annotations

import re

from tvm import relax

from ..errors import InvalidProblemError
from ..problem import Problem
from .simplify import static_shape

DTYPES = {"float32": "f32", "float16": "f16"}
CONVOLUTION = re.compile(r"relax\.nn\.conv([123])d(_transpose)?")
_SPATIAL = "DHW"


class NotCoveredError(Exception):
    """Says why no kernel can compute a convolution."""


def is_convolution(call: relax.Call) -> bool:
    """Whether a call is one of Relax's convolutions."""
    return CONVOLUTION.fullmatch(getattr(call.op, "name", "")) is not None


def problem_of(call: relax.Call) -> Problem:
    """Return the Problem of a convolution, without bias and epilogue.

    Raises
    ------
    NotCoveredError
        If there is none, with the reason.
    """
    found = CONVOLUTION.fullmatch(call.op.name)
    assert found is not None
    rank, transposed, attrs = int(found[1]), bool(found[2]), call.attrs
    shapes = [static_shape(each.ty) for each in (*call.args, call)]
    if any(shape is None for shape in shapes):
        raise NotCoveredError("its shapes are not fixed")
    data, weights, output = (tuple(shape or ()) for shape in shapes)
    dtype = DTYPES.get(str(call.args[0].ty.dtype))
    if dtype is None or any(each.ty.dtype != call.args[0].ty.dtype for each in (call.args[1], call)):
        types = [str(each.ty.dtype) for each in (*call.args, call)]
        raise NotCoveredError(f"its types are {', '.join(types)}; kernels take {' or '.join(DTYPES)} throughout")
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
    try:
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
    except InvalidProblemError as error:
        raise NotCoveredError(str(error)) from error


def to_oix(call: relax.Call) -> list[int]:
    """Return the axes of a convolution's filter in the order OIX of its Problem.

    What Relax calls I of a transposed convolution, the channels of its input, a Problem calls O: its filter is that of the
    forward convolution.
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
