"""Checks of the fixed scales, zero points and biases of quantized operators, before anything is computed from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ....errors import SourceError
from ....frontends.onnx.graph import attributes_of, subgraphs
from ....frontends.onnx.weights import array_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

    from ..quantized import Array

# Positions of integers, their scale and their zero point among an operator's inputs; None: the integers are an output.
_Place = tuple[int | None, int | None, int]
_DATA, _FILTER, _OUTPUT = (0, 1, 2), (3, 4, 5), (None, 6, 7)
_OF_ONE: tuple[_Place, ...] = (_DATA, (None, 3, 4))
_PLACES: Mapping[str, tuple[_Place, ...]] = {
    "ConvInteger": ((0, None, 2), (1, None, 3)),
    "DequantizeLinear": (_DATA,),
    "DynamicQuantizeLSTM": ((1, 8, 9), (2, 10, 11)),
    "DynamicQuantizeMatMul": ((1, 2, 3),),
    "MatMulIntegerToFloat": ((0, 2, 4), (1, 3, 5)),
    "MatMulInteger": ((0, None, 2), (1, None, 3)),
    "QGemm": (_DATA, _FILTER, (None, 7, 8)),
    "QLinearAdd": (_DATA, _FILTER, _OUTPUT),
    "QLinearAveragePool": _OF_ONE,
    "QLinearConv": (_DATA, _FILTER, _OUTPUT),
    "QLinearGlobalAveragePool": _OF_ONE,
    "QLinearLeakyRelu": _OF_ONE,
    "QLinearMatMul": (_DATA, _FILTER, _OUTPUT),
    "QLinearMul": (_DATA, _FILTER, _OUTPUT),
    "QLinearSigmoid": _OF_ONE,
    "QLinearSoftmax": _OF_ONE,
    "QLinearWhere": ((1, 2, 3), (4, 5, 6), (None, 7, 8)),
    "QuantizeLinear": ((None, 1, 2),),
}
# Axis of the filter's scales and zero points, of operators whose other tensors have one of each.
_CHANNELS = {"ConvInteger": 0, "MatMulInteger": -1, "QGemm": -1, "QLinearConv": 0, "QLinearMatMul": -1}
_BIASES = {"QGemm": 6, "QLinearConv": 8}
_MOST = 2**31 - 1


def check_quantized(model: ModelProto, source: str) -> None:
    """Refuse invalid scales and zero points, and s32 biases whose sums exceed 32 bits.

    Raises
    ------
    SourceError
        If there is one; it names the node and the tensor.
    """
    for node, wrong in _find_wrong(model.graph, {}):
        raise SourceError(f"{source}: the {node.op_type} node {node.name or node.output[0]!r} {wrong}")


def _find_wrong(graph: GraphProto, outer: Mapping[str, Array]) -> Iterator[tuple[NodeProto, str]]:
    read = {name for node in graph.node if node.op_type in (*_PLACES, "QLinearConcat") for name in node.input}
    fixed = {**outer, **{each.name: array_of(each) for each in graph.initializer if each.name in read}}
    for node in graph.node:
        if (
            node.op_type == "Constant"
            and node.output[0] in read
            and (given := attributes_of(node).get("value")) is not None
        ):
            fixed[node.output[0]] = array_of(given) if hasattr(given, "data_type") else np.asarray(given)
    for node in graph.node:
        places = _PLACES.get(node.op_type, ())
        if node.op_type == "QLinearConcat":
            places = ((None, 0, 1), *((at, at + 1, at + 2) for at in range(2, len(node.input) - 2, 3)))
        for place in places:
            for wrong in _find_in(node, place, fixed):
                yield node, wrong
        if node.op_type in _BIASES and (wrong := _passing(node, fixed)):
            yield node, wrong
        for inner in subgraphs(node):
            yield from _find_wrong(inner, fixed)


def _find_in(node: NodeProto, place: _Place, fixed: Mapping[str, Array]) -> Iterator[str]:
    """Yield descriptions of faults of a scale or zero point."""
    names = [node.input[at] if at is not None and at < len(node.input) else "" for at in place]
    integers, scale, zero = (fixed.get(name) for name in names)
    if scale is not None:
        bad = ~(np.isfinite(scale) & (scale > 0))
        if bad.any():
            yield f"has a scale of {scale[bad].flat[0]} in {names[1]!r}: scales are positive and finite"
    if zero is not None and integers is not None and zero.dtype != integers.dtype:
        yield f"has a zero point of {zero.dtype} in {names[2]!r} for integers of {integers.dtype}: both are of one type"
    if zero is not None and zero.dtype == np.int32 and zero.any():
        yield f"has a zero point of {zero[zero != 0].flat[0]} in {names[2]!r}: integers of 32 bits have none but 0"
    if scale is not None and zero is not None and scale.size != zero.size and 1 not in (scale.size, zero.size):
        yield f"has {scale.size} scales in {names[1]!r} and {zero.size} zero points in {names[2]!r}: each has both"
    if node.op_type == "DequantizeLinear" and scale is not None and scale.size > 1 and integers is not None:
        given, rank = attributes_of(node), integers.ndim
        axis = given.get("axis", 1)
        if not given.get("block_size") and (not -rank <= axis < rank or scale.size != integers.shape[axis]):
            yield f"has {scale.size} scales in {names[1]!r} along the axis {axis} of {'x'.join(map(str, integers.shape))} integers"
    if node.op_type not in _CHANNELS:
        return
    for name, array in zip(names[1:], (scale, zero), strict=True):
        if array is None or array.size == 1:
            continue
        if place[0] != (1 if place[1] is None else 3):
            yield f"has {array.size} numbers in {name!r}: of its data and its output there is one scale and one zero point"
        elif integers is not None and array.size != integers.shape[_channels(node)]:
            yield f"has {array.size} numbers in {name!r} for {integers.shape[_channels(node)]} channels: there is one for each, or for all"


def _channels(node: NodeProto) -> int:
    return 0 if attributes_of(node).get("transB") else _CHANNELS[node.op_type]


def _passing(node: NodeProto, fixed: Mapping[str, Array]) -> str:
    """Return a description of an s32 bias whose sums may exceed 32 bits; else nothing."""
    names = [*node.input, *[""] * (9 - len(node.input))]
    data_zero, filter_, zero = (fixed.get(names[at]) for at in (2, 3, 5))
    bias = fixed.get(names[_BIASES[node.op_type]])
    if bias is None or filter_ is None or data_zero is None or bias.dtype != np.int32:
        return ""
    bounds, axis = np.iinfo(data_zero.dtype), _channels(node) % filter_.ndim
    shape = [-1 if at == axis else 1 for at in range(filter_.ndim)]
    centred = filter_.astype(np.int64) - (0 if zero is None else zero.astype(np.int64).reshape(shape))
    largest = max(int(data_zero.max()) - bounds.min, bounds.max - int(data_zero.min()))
    sums = np.abs(centred).sum(tuple(at for at in range(filter_.ndim) if at != axis)) * largest
    offsets, sums = np.broadcast_arrays(bias.astype(np.int64), sums)
    totals = sums + np.abs(offsets)
    if totals.max(initial=0) <= _MOST:
        return ""
    at = int(totals.argmax())
    return f"has a bias of {offsets.flat[at]} in {names[_BIASES[node.op_type]]!r} beside sums of up to {sums.flat[at]}, which may pass 32 bits"
