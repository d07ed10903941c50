"""OpenVINO models whose fixed convolutions are joined (`joining`): the graph as that reads it, and as it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from openvino import opset13

from ...dtypes import numpy_dtype
from ...linear.maps import LinearMap, identity
from ..following import Linear, Sum
from ..joining import Join, LinearStep, average, find_joins
from .effects import OpenvinoOperations, is_fixed

CONVOLUTIONS = ("Convolution", "GroupConvolution")
_DTYPES = {"f32": "f32", "f16": "f16", "bf16": "bf16"}


def join(model: Any, convolution: Callable[[Any], LinearMap | None], name: Callable[[Any], str]) -> list[Join]:
    """Join a model's convolutions where that multiplies no more often; return what was done.

    Parameters
    ----------
    model
        Is changed.
    convolution
        Returns the map of one of `CONVOLUTIONS`; None if it has none.
    name
        Returns the name of an operation.
    """
    graph = _OpenvinoGraph(model, convolution, name)
    joins = find_joins(graph)
    for each in reversed(joins):  # what later ones read comes first
        _write(graph, each)
    if joins:
        model.validate_nodes_and_infer_types()
    return joins


class _OpenvinoGraph:
    """A model, whose tensors are named by operations and the numbers of their outputs."""

    def __init__(self, model: Any, convolution: Callable[[Any], LinearMap | None], name: Callable[[Any], str]) -> None:
        self._convolution, self.name_of = convolution, name
        self.outputs = {_key(output): output for op in model.get_ordered_ops() for output in op.outputs()}
        self._effects = OpenvinoOperations()

    def tensors(self) -> Sequence[str]:
        """Return the tensors that operations compute."""
        return list(self.outputs)

    def shape(self, tensor: str) -> tuple[int, int] | None:
        """Return how many channels and spatial axes a tensor has."""
        shape = self.outputs[tensor].get_partial_shape()
        known = shape.is_static and 3 <= len(shape) <= 5 and shape[1].get_length() > 0
        return (shape[1].get_length(), len(shape) - 2) if known else None

    def dtype(self, tensor: str) -> str | None:
        """Return a tensor's type."""
        return _DTYPES.get(self.outputs[tensor].get_element_type().to_string())

    def times_read(self, tensor: str) -> int:
        """Return how often a tensor is read."""
        return len(self.outputs[tensor].get_target_inputs())

    def terms(self, tensor: str) -> tuple[str, ...]:
        """Return what an Add adds."""
        op = self.outputs[tensor].get_node()
        shape = self.shape(tensor)
        if op.get_type_name() != "Add" or shape is None or any(is_fixed(each.get_node()) for each in op.input_values()):
            return ()
        read = op.input_value(0).get_node()
        effect = self._effects.effect(op, read, shape[0])
        return tuple(_key(each) for each in op.input_values()) if isinstance(effect, Sum) else ()

    def step(self, tensor: str) -> LinearStep | None:
        """Return the operation that computes a tensor as a map of another."""
        op, shape = self.outputs[tensor].get_node(), self.shape(tensor)
        if shape is None or is_fixed(op):
            return None
        source: Any = None
        map_: LinearMap | None = None
        if op.get_type_name() in CONVOLUTIONS:
            source, map_ = op.input_value(0), self._convolution(op)
        elif op.get_type_name() == "AvgPool":
            source, map_ = op.input_value(0), _pool(op, shape[0])
        elif op.get_type_name() in ("Add", "Multiply"):
            (*_, source) = [each for each in op.input_values() if not is_fixed(each.get_node())]
            effect = self._effects.effect(op, source.get_node(), shape[0])
            if isinstance(effect, Linear) and source.get_partial_shape() == op.output(0).get_partial_shape():
                factor = np.ones(shape[0]) if effect.factor is None else effect.factor()
                map_ = identity(*shape).scaled(factor, None if effect.shift is None else effect.shift())
        if map_ is None or self.dtype(_key(source)) != self.dtype(tensor):
            return None
        return LinearStep(tensor, _key(source), map_, self.name_of(op), op.get_type_name() in CONVOLUTIONS)

    def name(self, tensor: str) -> str:
        """Return the name of the operation that computes a tensor."""
        return self.name_of(self.outputs[tensor].get_node())


def _key(output: Any) -> str:
    return f"{output.get_node().get_name()} {output.get_index()}"  # of which no other operation's is the same


def _pool(op: Any, channels: int) -> LinearMap | None:
    """Return the map of an average pool; None: it does not count its pads, or they depend on sizes."""
    told = op.get_attributes()
    pads = [*told["pads_begin"], *told["pads_end"]]
    if told["rounding_type"] != "floor" or told["auto_pad"] not in ("explicit", "notset", "valid"):
        return None
    if any(pads) and (told["exclude-pad"] or told["auto_pad"] == "valid"):
        return None
    return average(channels, told["kernel"], told["strides"], told["pads_begin"], told["pads_end"])


def _write(graph: _OpenvinoGraph, join: Join) -> None:
    """Put a convolution, its bias, and sums with others in the place of an operation."""
    map_, source, output = join.map, graph.outputs[join.source], graph.outputs[join.output]
    dtype, rank = numpy_dtype(graph.dtype(join.output) or ""), len(join.map.strides)
    filter_ = opset13.constant(map_.filter.astype(dtype))
    common = (list(map_.strides), list(map_.begins), list(map_.ends), list(map_.dilations))
    if map_.groups == 1:
        made = opset13.convolution(source, filter_, *common)
    else:
        parts = map_.filter.reshape(map_.groups, -1, *map_.filter.shape[1:])
        made = opset13.group_convolution(source, opset13.constant(parts.astype(dtype)), *common)
    made.set_friendly_name(join.name)
    # Zeros where there is none: what computes the output keeps its name.
    bias = np.zeros(map_.outputs) if map_.bias is None else map_.bias
    last = opset13.add(made, opset13.constant(bias.reshape(1, -1, *(1,) * rank).astype(dtype)))
    for other in join.others:
        last = opset13.add(last, graph.outputs[other])
    last.set_friendly_name(output.get_node().get_friendly_name())
    output.replace(last.output(0))
    graph.outputs[join.output] = last.output(0)  # which the next one may read
