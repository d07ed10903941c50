"""ONNX models whose fixed convolutions are joined (`joining`): the graph as that reads it, and as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper, numpy_helper

from ...dtypes import numpy_dtype
from ...errors import InvalidProblemError
from ...linear.maps import Array, LinearMap, identity
from ..following import by_channel, is_per_channel
from ..joining import Join, LinearStep, average, find_joins
from .effects import normalization, other_input
from .graph import DTYPES, OURS, attributes_of, convolutions
from .rules import node_problem
from .tensors import Tensors

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def joined(model: ModelProto, inferred: ModelProto, folder: Path) -> tuple[ModelProto, list[Join]]:
    """Return a model whose convolutions are joined where that multiplies no more often, and what was done.

    Parameters
    ----------
    model, inferred
        The model, and itself with the shapes of its tensors.
    folder
        Where its other files are.
    """
    places = [place for place in convolutions(inferred) if len(place.graphs) == 1]
    if not places:
        return model, []
    graph = _OnnxGraph(inferred, Tensors(inferred, places[0], folder), {id(each.node): each.name for each in places})
    joins = find_joins(graph)
    return (_write(model, joins, graph) if joins else model), joins


class _OnnxGraph:
    """The outermost graph of a model."""

    def __init__(self, model: ModelProto, tensors: Tensors, names: dict[int, str]) -> None:
        self._tensors, self._names = tensors, names
        self._makers = {name: node for node in tensors.nodes for name in node.output if name}
        self._scope = convolutions(model)[0].scope

    def tensors(self) -> Sequence[str]:
        """Return the tensors that nodes compute."""
        return list(self._makers)

    def shape(self, tensor: str) -> tuple[int, int] | None:
        """Return how many channels and spatial axes a tensor has."""
        shape = self._shape(tensor)
        known = shape is not None and 3 <= len(shape) <= 5 and isinstance(shape[1], int) and shape[1] > 0
        return (int(shape[1]), len(shape) - 2) if shape is not None and known else None

    def dtype(self, tensor: str) -> str | None:
        """Return a tensor's type."""
        return DTYPES.get(self._scope[tensor].elem_type) if tensor in self._scope else None

    def times_read(self, tensor: str) -> int:
        """Return how often a tensor is read."""
        return len(self._tensors.readers(tensor))

    def terms(self, tensor: str) -> tuple[str, ...]:
        """Return what an Add or a Sum adds."""
        node = self._makers.get(tensor)
        if node is None or node.domain not in OURS or node.op_type not in ("Add", "Sum") or len(node.input) < 2:
            return ()
        shape = self._shape(tensor)
        if shape is None or "" in shape:
            return ()
        alike = all(self._shape(each) == shape and self.dtype(each) == self.dtype(tensor) for each in node.input)
        return tuple(node.input) if alike and not any(map(self._tensors.is_fixed, node.input)) else ()

    def step(self, tensor: str) -> LinearStep | None:
        """Return the node that computes a tensor as a map of another."""
        node = self._makers.get(tensor)
        if node is None or node.domain not in OURS or len(node.output) != 1 or self.shape(tensor) is None:
            return None
        channels, rank = self.shape(tensor) or (0, 0)
        found: tuple[str, LinearMap] | None = None
        if node.op_type == "Conv":
            found = self._convolution(node)
        elif node.op_type == "Identity":
            found = node.input[0], identity(channels, rank)
        elif node.op_type == "BatchNormalization" and not attributes_of(node).get("training_mode", 0):
            if all(map(self._tensors.is_fixed, node.input[1:5])):
                found = node.input[0], identity(channels, rank).scaled(*normalization(node, self._tensors))
        elif node.op_type in _ARITHMETIC:
            found = self._by_channel(node, channels, rank)
        elif node.op_type == "AveragePool":
            found = _pool(node, channels, rank)
        if found is None or self.dtype(found[0]) != self.dtype(tensor) or self._tensors.is_fixed(found[0]):
            return None
        return LinearStep(tensor, *found, self.name(tensor), node.op_type == "Conv")

    def name(self, tensor: str) -> str:
        """Return the name of the node that computes a tensor."""
        node = self._makers[tensor]
        return self._names.get(id(node)) or str(node.name or node.output[0])

    def _shape(self, tensor: str) -> tuple[Any, ...] | None:
        return self._scope[tensor].shape if tensor in self._scope else None

    def _convolution(self, node: NodeProto) -> tuple[str, LinearMap] | None:
        names = [name for name in node.input[1:3] if name]
        if len(node.input) < 2 or not all(map(self._tensors.is_fixed, names)):
            return None
        filter_, *given = (np.asarray(self._tensors.value(name), np.float64) for name in names)
        shape, attributes = self._shape(node.input[0]), attributes_of(node)
        if shape is None or len(shape) != filter_.ndim:
            return None
        spans = [
            (taps - 1) * step + 1 for taps, step in zip(filter_.shape[2:], _dilations(attributes, shape), strict=False)
        ]
        known, plain = all(isinstance(size, int) for size in shape[2:]), {*attributes.get("strides", (1,))} == {1}
        if not known and not plain and attributes.get("auto_pad", "NOTSET").startswith("SAME"):
            return None
        try:
            problem = node_problem("Conv", attributes, (1, shape[1], *(shape[2:] if known else spans)), filter_.shape)
        except InvalidProblemError:  # which the reader says of the node
            return None
        pads = problem.pads_begin, problem.pads_end
        if not known and not plain:  # a problem has those alone that its windows reach
            given_pads = tuple(attributes.get("pads", (0,) * 2 * len(spans)))
            pads = given_pads[: len(spans)], given_pads[len(spans) :]
        return node.input[0], LinearMap(
            filter_, given[0] if given else None, problem.strides, problem.dilations, *pads, problem.groups
        )

    def _by_channel(self, node: NodeProto, channels: int, rank: int) -> tuple[str, LinearMap] | None:
        fixed = [name for name in node.input if self._tensors.is_fixed(name)]
        if len(fixed) != 1:
            return None
        data = other_input(node, fixed[0])
        if self._shape(data) != self._shape(node.output[0]):
            return None
        if not is_per_channel(self._tensors.shape(fixed[0]), channels, rank + 2):
            return None
        numbers = by_channel(self._tensors.value(fixed[0]), channels)
        plain, first = identity(channels, rank), node.input[0] == data
        if node.op_type in ("Add", "Sub"):
            sign = -1.0 if node.op_type == "Sub" else 1.0
            return data, plain.scaled(np.full(channels, 1.0 if first else sign), numbers * (sign if first else 1.0))
        if node.op_type == "Mul":
            return data, plain.scaled(numbers)
        return (data, plain.scaled(1 / numbers)) if first and numbers.all() else None


def _dilations(attributes: dict[str, Any], shape: Sequence[Any]) -> Sequence[int]:
    return attributes.get("dilations") or (1,) * (len(shape) - 2)


def _pool(node: NodeProto, channels: int, rank: int) -> tuple[str, LinearMap] | None:
    """Return what an average pool reads, and its map; None: it does not count its pads, or they depend on sizes."""
    told = attributes_of(node)
    taps, pads = tuple(told["kernel_shape"]), tuple(told.get("pads", (0,) * 2 * rank))
    if told.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or told.get("ceil_mode", 0):
        return None
    pads = (0,) * 2 * rank if told.get("auto_pad") == "VALID" else pads
    if {*told.get("dilations", (1,))} != {1} or (any(pads) and not told.get("count_include_pad", 0)):
        return None
    strides = tuple(told.get("strides", (1,) * rank))
    return node.input[0], average(channels, taps, strides, pads[:rank], pads[rank:])


def _write(model: ModelProto, joins: Sequence[Join], graph: _OnnxGraph) -> ModelProto:
    """Return a copy of a model with these joins."""
    copy: ModelProto = type(model)()
    copy.CopyFrom(model)
    for place in convolutions(copy):
        place.node.name = place.name  # which depends on those of others
    by_output = {join.output: join for join in joins}
    inside = {tensor for join in joins for tensor in join.inside}
    nodes: list[NodeProto] = []
    for node in copy.graph.node:
        output = node.output[0] if node.output else ""
        if output in by_output:
            nodes += _nodes(copy, by_output[output], graph.dtype(output) or "")
        elif output not in inside:
            nodes.append(node)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _nodes(model: ModelProto, join: Join, dtype: str) -> list[NodeProto]:
    """Return the nodes of a join, whose arrays become initializers."""
    map_, names = join.map, [join.source]
    arrays: list[tuple[str, Array | None]] = [("filter", map_.filter), ("bias", map_.bias)]
    for what, array in arrays:
        if array is not None:
            names.append(f"{join.output}/tvmconv/{what}")
            made = numpy_helper.from_array(np.ascontiguousarray(array.astype(numpy_dtype(dtype))), names[-1])
            model.graph.initializer.append(made)
    sums = [f"{join.output}/tvmconv/{number}" for number in range(len(join.others))]
    outputs = [*sums, join.output]
    convolution = helper.make_node(
        "Conv", names, outputs[:1], join.name, strides=map_.strides, dilations=map_.dilations,
        pads=[*map_.begins, *map_.ends], group=map_.groups,
    )  # fmt: skip
    added = [
        helper.make_node("Add", [before, other], [after])
        for before, other, after in zip(outputs, join.others, outputs[1:], strict=False)
    ]
    return [convolution, *added]
