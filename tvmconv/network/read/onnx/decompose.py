"""Decompositions of operators that TVM's ONNX frontend (0.27) lacks, and that ONNX does not define as functions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ....frontends.onnx.graph import attributes_of
from ....frontends.onnx.writer import NodeWriter, shape_array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Shape = tuple[int, ...]
# Function that writes a node, given its attributes, and the shapes of inputs and outputs.
_Write = Callable[[NodeWriter, dict[str, Any], "NodeProto", dict[str, Shape]], "list[NodeProto]"]


def decompose(node: NodeProto, shapes: dict[str, Shape], types: dict[str, int], model: ModelProto) -> list[NodeProto]:
    """Return the nodes for a node of :data:`DECOMPOSED`; their constants are added to the model.

    Raises
    ------
    ValueError
        If this use of the operator is not supported; the message continues "the node ...".
    """
    data = shapes.get(node.input[0], ())
    if node.op_type == "Col2Im" and data and not all(data):
        return [node]  # which `free_windows.py` reads
    if not data or (not all(data) and node.op_type not in _FREE):
        raise ValueError("takes data of unknown shape")
    return DECOMPOSED[node.op_type](NodeWriter(node, model, types[node.input[0]]), attributes_of(node), node, shapes)


def _normalize(write: NodeWriter, given: dict[str, Any], node: NodeProto, shapes: dict[str, Shape]) -> list[NodeProto]:
    """Write LpNormalization; rows of zeros stay 0, as in onnxruntime."""
    axes = shape_array(given.get("axis", -1))
    kind = "ReduceL1" if given.get("p", 2) == 1 else "ReduceL2"
    norm = write.reduce(kind, node.input[0], axes)
    zero, one = (np.array(each, write.dtype) for each in (0, 1))
    return write.finish(write.op("Div", node.input[0], write.op("Where", write.op("Equal", norm, zero), one, norm)))


def _reverse(write: NodeWriter, given: dict[str, Any], node: NodeProto, shapes: dict[str, Shape]) -> list[NodeProto]:
    """Write ReverseSequence as a gather of rows; those beyond a sequence's length stay."""
    shape, time = shapes[node.input[0]], given.get("time_axis", 0)
    steps, batch = shape[time], shape[1 - time]
    step = np.arange(steps, dtype=np.int64)[:, None]
    lengths = write.op("Cast", node.input[1], to=7)
    within = write.op("Less", step, lengths)
    mirrored = write.op("Sub", write.op("Sub", lengths, shape_array(1)), step)
    rows = write.op("Where", within, mirrored, step)  # steps by batch
    if time == 0:
        rows = write.op("Add", write.op("Mul", rows, shape_array(batch)), np.arange(batch, dtype=np.int64))
    else:
        rows = write.op("Add", rows, np.arange(batch, dtype=np.int64) * steps)
        rows = write.op("Transpose", rows, perm=[1, 0])
    flat = write.op("Reshape", node.input[0], shape_array(steps * batch, *shape[2:]))
    taken = write.op("Gather", flat, write.op("Reshape", rows, shape_array(-1)), axis=0)
    return write.finish(write.op("Reshape", taken, shape_array(*shape)))


def _columns(write: NodeWriter, given: dict[str, Any], node: NodeProto, shapes: dict[str, Shape]) -> list[NodeProto]:
    """Write Col2Im as a transposed convolution with a tap for each row of a column."""
    image, block = (write.fixed(place) for place in (1, 2))
    assert image is not None and block is not None
    rank, (batch, rows, _) = len(image), shapes[node.input[0]]
    pads = given.get("pads", [0] * (2 * rank))
    strides, dilations = (given.get(name, [1] * rank) for name in ("strides", "dilations"))
    spans = [dilation * (int(tap) - 1) + 1 for tap, dilation in zip(block, dilations, strict=True)]
    padded = [int(size) + begin + end for size, begin, end in zip(image, pads, pads[rank:], strict=False)]
    outputs = [(size - span) // step + 1 for size, span, step in zip(padded, spans, strides, strict=True)]
    more = [
        size - (count - 1) * step - span
        for size, count, step, span in zip(padded, outputs, strides, spans, strict=True)
    ]
    taps = prod(int(tap) for tap in block)
    channels = rows // taps
    data = write.op("Reshape", node.input[0], shape_array(batch * channels, taps, *outputs))
    filter_ = np.eye(taps, dtype=write.dtype).reshape(taps, 1, *(int(tap) for tap in block))
    made = write.op(
        "ConvTranspose",
        data,
        filter_,
        pads=[*pads[:rank], *(end - extra for end, extra in zip(pads[rank:], more, strict=True))],
        strides=strides,
        dilations=dilations,
    )
    return write.finish(write.op("Reshape", made, shape_array(batch, channels, *(int(size) for size in image))))


def _waves(size: int, bins: int) -> tuple[Any, Any]:
    """Return the cosines and sines of a discrete Fourier transform, elements by bins."""
    angles = 2 * np.pi / size * (np.arange(size)[:, None] * np.arange(bins) % size)
    return np.cos(angles), np.sin(angles)


def _fourier(write: NodeWriter, given: dict[str, Any], node: NodeProto, shapes: dict[str, Shape]) -> list[NodeProto]:
    """Write DFT as products with cosines and sines; in an inverse of half a spectrum, each complex bin counts twice."""
    shape = shapes[node.input[0]]
    axis = (
        write.number(2, -2)
        if "axis" not in given and len(node.input) > 2
        else given.get("axis", 1 if write.opset < 20 else -2)
    )
    axis %= len(shape)
    if not shape[axis]:
        raise ValueError("transforms along an axis of free extent")
    inverse, half = given.get("inverse", 0), given.get("onesided", 0)
    real_numbers = inverse and half
    size = write.number(1, 2 * (shape[axis] - 1) if real_numbers else shape[axis])
    cosines, sines = _waves(size, size // 2 + 1 if half and not inverse else size)
    taken = min(size // 2 + 1 if real_numbers else size, shape[axis])  # elements beyond are padding, or dropped
    scale = np.full((taken, 1), 1 / size if inverse else 1)
    if real_numbers:
        scale[1 : (size + 1) // 2] *= 2
    cosines, sines = ((each[:taken] * scale).astype(write.dtype) for each in (cosines, sines if inverse else -sines))
    parts = [write.op("Gather", node.input[0], shape_array(at), axis=-1) for at in range(shape[-1])]
    parts = [write.op("Squeeze", each, shape_array(-1)) for each in parts]
    order = [at for at in range(len(shape) - 1) if at != axis] + [axis]
    moved = [write.op("Transpose", each, perm=order) for each in parts]
    if taken < shape[axis]:
        moved = [write.op("Gather", each, np.arange(taken), axis=-1) for each in moved]
    both = []
    for of_real, add, of_imaginary in ((cosines, "Sub", sines), (sines, "Add", cosines))[: 1 if real_numbers else 2]:
        part = write.op("MatMul", moved[0], of_real)
        if len(moved) > 1:
            part = write.op(add, part, write.op("MatMul", moved[1], of_imaginary))
        part = write.op("Transpose", part, perm=[order.index(at) for at in range(len(order))])
        both.append(write.op("Unsqueeze", part, shape_array(-1)))
    return write.finish(write.op("Concat", *both, axis=-1))


def _frames(write: NodeWriter, given: dict[str, Any], node: NodeProto, shapes: dict[str, Shape]) -> list[NodeProto]:
    """Write STFT as a convolution with windowed cosines and sines as filters."""
    if shapes[node.input[0]][2:] not in ((), (1,)):
        raise ValueError("takes complex numbers")
    step, window = write.number(1), write.fixed(2)
    size = write.number(3, 0 if window is None else len(window))
    bins = size // 2 + 1 if given.get("onesided", 1) else size
    cosines, sines = _waves(size, bins)
    filters = np.concatenate([cosines, -sines], 1).T * (1 if window is None else window.astype(np.float64))
    signal = write.op("Reshape", node.input[0], shape_array(0, 1, -1))
    made = write.op("Conv", signal, filters[:, None].astype(write.dtype), strides=[step])
    made = write.op("Reshape", made, shape_array(0, 2, bins, -1))
    return write.finish(write.op("Transpose", made, perm=[0, 3, 2, 1]))


def _places(write: NodeWriter, given: dict[str, Any], node: NodeProto, shapes: dict[str, Shape]) -> list[NodeProto]:
    """Write a MaxPool with its second output: the index, in all of the data, of the first greatest element of each window."""
    data = shapes[node.input[0]]
    rank, outputs = len(data) - 2, list(data[:2])
    taps, pads = given["kernel_shape"], given.get("pads", [0] * (2 * rank))
    strides, dilations = (given.get(name, [1] * rank) for name in ("strides", "dilations"))
    places: Any = np.zeros([1] * (2 * rank), np.int64)
    found, inside = places, np.ones([1] * (2 * rank), bool)
    weights = [prod(data[2 + at + 1 :]) for at in range(rank)]
    if given.get("storage_order", 0):
        weights = [prod(data[2 : 2 + at]) for at in range(rank)]
    for axis, (tap, pad, step, gap) in enumerate(zip(taps, pads, strides, dilations, strict=False)):
        left = data[2 + axis] + pad + pads[axis + rank] - (gap * (tap - 1) + 1)
        steps = (left + (step - 1 if given.get("ceil_mode", 0) else 0)) // step + 1
        steps -= (steps - 1) * step >= data[2 + axis] + pad  # a window that begins behind the data
        outputs.append(steps)
        at = np.arange(steps)[:, None] * step - pad + np.arange(tap) * gap
        extent, form = data[2 + axis], [1] * (2 * rank)
        form[axis], form[axis + rank] = at.shape
        at, outside = at.reshape(form), ((at < 0) | (at >= extent)).reshape(form)
        places = places * extent + at.clip(0, extent - 1)
        found = found + at.clip(0, extent - 1) * weights[axis]
        inside = inside & ~outside
    count, plane = prod(taps), prod(data[2:])
    whole = write.op("Reshape", node.input[0], shape_array(*data[:2], plane))
    windows = write.op("Gather", whole, places.reshape(-1, count), axis=2)
    least = np.array(-np.inf if write.dtype.kind == "f" else np.iinfo(write.dtype).min, write.dtype)
    windows = write.op("Where", inside.reshape(-1, count), windows, least)
    best = write.op("ArgMax", windows, axis=3, keepdims=0)  # -1 is no axis before opset 11
    best = write.op("Add", best, np.arange(places.size // count) * count)
    place = write.op("Gather", found.ravel(), best, axis=0)
    place = write.op("Add", place, (np.arange(prod(data[:2])) * plane).reshape(*data[:2], 1))
    shape = shape_array(*outputs)
    return write.finish(write.op("MaxPool", node.input[0], **given), write.op("Reshape", place, shape))


# Operators whose data may have free extents, which are 0 in shapes.
_FREE = ("DFT", "LpNormalization", "STFT")
DECOMPOSED: dict[str, _Write] = {
    "Col2Im": _columns,
    "DFT": _fourier,
    "LpNormalization": _normalize,
    "MaxPool": _places,
    "ReverseSequence": _reverse,
    "STFT": _frames,
}
