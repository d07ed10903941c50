"""ONNX models in operators before version 7, written in those of version 7, which onnxruntime, TVM's frontend and we know.

ONNX's own converter (1.23) is no help: it gives an `axis` of a broadcast one axis too many, lets a PRelu's slopes lie along the last
axis, makes training inference, and lacks Cast, Less, Greater, Split, Tile and LSTM. What an operator needs beyond that its
attributes were renamed stands here; one that changed and does not stand here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.external_data_helper import uses_external_data

from ...errors import SourceError
from .graph import OURS, attributes_of, subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

OLDEST = 7
# Elements of a constant that shapes may be computed of.
_SMALL = 64
_TRAINS = "is in training mode (is_test is not 1): export for inference"


def with_known_versions(model: ModelProto, source: str) -> ModelProto:
    """Return a model whose inputs have their dimensions, in operators of version 7 or later; `model` is changed.

    Raises
    ------
    SourceError
        If an operator has no equal in version 7, or not without a shape or a number that is not known; it names the node.
    """
    own = [each for each in model.opset_import if each.domain in OURS]
    if own and own[0].version < OLDEST:
        _convert(model.graph, own[0].version, source, {}, {})
        own[0].version = OLDEST
        model.ir_version = max(model.ir_version, 4)  # the first that has weights that are no inputs
    return model


class _Node:
    """A node of an old version on its way: what it takes, and what is known of that."""

    def __init__(self, node: NodeProto, types: dict[str, TypeProto], constants: dict[str, TensorProto]) -> None:
        self.node, self.inputs = node, list(node.input)
        self._own = attributes_of(node)
        self.given = dict(self._own)
        self.before: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._types, self._constants = types, constants

    def rank(self, index: int) -> int:
        """Return how many axes an input has."""
        tensor = self._types[name].tensor_type if (name := self.inputs[index]) in self._types else None
        if tensor is None or not tensor.HasField("shape"):
            raise ValueError(f"needs to know how many axes its input {name!r} has, which the model does not tell")
        return len(tensor.shape.dim)

    def number(self, index: int) -> list[int]:
        """Return the integers that an input is."""
        if self.inputs[index] not in self._constants:
            raise ValueError(f"takes {self.inputs[index]!r}, which is not fixed")
        return [int(each) for each in numpy_helper.to_array(self._constants[self.inputs[index]]).reshape(-1)]

    def unsqueeze(self, index: int, count: int) -> None:
        """Give an input axes at its end."""
        if count:
            name = f"{self.node.output[0]}_aligned"
            axes = [self.rank(index) + each for each in range(count)]
            self.before.append(helper.make_node("Unsqueeze", [self.inputs[index]], [name], axes=axes))
            self.inputs[index] = name

    def constant(self, numbers: Sequence[int], what: str) -> str:
        """Add a constant; return its name."""
        name = f"{self.node.output[0]}_{what}"
        self.weights.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    def converted(self, defaults: Mapping[str, Any]) -> NodeProto:
        """Return the node with what it takes now."""
        made = type(self.node).FromString(self.node.SerializeToString())
        kept = {each.name: each for each in made.attribute if self.given.get(each.name, made) is self._own[each.name]}
        del made.attribute[:], made.input[:]
        made.input.extend(self.inputs)
        given = dict(defaults) | self.given
        made.attribute.extend(kept.get(name) or helper.make_attribute(name, each) for name, each in given.items())
        return made


def _broadcast(its: _Node) -> None:
    axis = its.given.pop("axis", None)
    if its.given.pop("broadcast", 0) and axis is not None:
        left, right = its.rank(0), its.rank(1)
        count = left - (axis + left if axis < 0 else axis) - right
        if count < 0:
            raise ValueError(f"broadcasts {right} axes from axis {axis} of {left}")
        its.unsqueeze(1, count)


def _gemm(its: _Node) -> None:
    its.given.pop("broadcast", None)


def _slopes(its: _Node) -> None:
    if its.rank(1) == 1:  # one for all, or one for each channel
        its.unsqueeze(1, max(its.rank(0) - 2, 0))


def _inference(its: _Node) -> None:
    if not its.given.pop("is_test", 0):
        raise ValueError(_TRAINS)


def _normalization(its: _Node) -> None:
    _inference(its)
    if not its.given.pop("spatial", 1):
        raise ValueError("has numbers of its own for each pixel (spatial is 0)")


def _reshape(its: _Node) -> None:
    if "shape" in its.given:
        its.inputs.append(its.constant(its.given.pop("shape"), "shape"))


def _concat(its: _Node) -> None:
    its.given.setdefault("axis", 1)


def _cast(its: _Node) -> None:
    if isinstance(to := its.given["to"], str):
        types = dict(onnx.TensorProto.DataType.items())
        if to.upper() not in types:
            raise ValueError(f"casts to {to!r}, which is no type of ONNX's")
        its.given["to"] = types[to.upper()]


def _tile(its: _Node) -> None:
    if len(its.inputs) > 2:
        repeats = [1] * its.rank(0)
        repeats[its.number(2)[0]] = its.number(1)[0]
        its.inputs[1:] = [its.constant(repeats, "repeats")]


def _split(its: _Node) -> None:
    if len(its.inputs) > 1:
        its.given["split"] = its.number(1)
        del its.inputs[1:]


def _pad(its: _Node) -> None:
    if "paddings" in its.given:
        its.given["pads"] = its.given.pop("paddings")


def _norm(its: _Node) -> None:
    power = its.given.get("p", 2)
    if power != int(power):
        raise ValueError(f"is a norm of the power {power}")
    its.given["p"] = int(power)


def _upsample(its: _Node) -> None:
    if "height_scale" in its.given:
        its.given["scales"] = [1.0, 1.0, its.given.pop("height_scale"), its.given.pop("width_scale")]
        its.given["mode"] = {"bilinear": "linear"}.get(mode := its.given.get("mode", "nearest"), mode)


def _recurrent(its: _Node) -> None:
    its.given.pop("output_sequence", None)


def _same(its: _Node) -> None:
    """Leave a node as it is, but for attributes that told which inputs may be overwritten."""


_RULES: dict[str, Callable[[_Node], None]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"), _broadcast),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
    **dict.fromkeys(("LpPool", "GlobalLpPool"), _norm),
    **dict.fromkeys(
        [
            "Abs",
            "AveragePool",
            "Ceil",
            "Clip",
            "Concat",
            "Elu",
            "Exp",
            "Floor",
            "HardSigmoid",
            "InstanceNormalization",
            "LeakyRelu",
            "Log",
            "Max",
            "Mean",
            "Min",
            "Neg",
            "Reciprocal",
            "Relu",
            "Selu",
            "Sigmoid",
            "Sqrt",
            "Sum",
            "Tanh",
        ],
        _same,
    ),
    "BatchNormalization": _normalization,
    "Cast": _cast,
    "Concat": _concat,
    "Dropout": _inference,
    "Gemm": _gemm,
    "PRelu": _slopes,
    "Pad": _pad,
    "Reshape": _reshape,
    "Split": _split,
    "Tile": _tile,
    "Upsample": _upsample,
}


def _convert(
    graph: GraphProto, version: int, source: str, types: dict[str, TypeProto], constants: dict[str, TensorProto]
) -> None:
    """Convert the nodes of a graph, in their order, by what is known of the tensors around it."""
    declared = (*graph.output, *graph.value_info, *graph.input)
    types = types | {each.name: each.type for each in declared if each.type.tensor_type.HasField("shape")}
    within = [each for each in graph.initializer if not uses_external_data(each)]
    constants = constants | {each.name: each for each in within}
    types |= _types_of(graph.initializer)
    nodes: list[NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            _convert(inner, version, source, types, constants)
        made, weights = [node], []
        if node.domain in OURS:
            try:
                made, weights = _converted(node, version, types, constants)
            except ValueError as error:
                raise SourceError(
                    f"{source}: the {node.op_type} node {node.name or ''.join(node.output[:1])!r} is of version {version} of ONNX's"
                    f" operators, and {error}"
                ) from None
        graph.initializer.extend(weights)
        constants |= {each.name: each for each in weights}
        types |= _types_of(weights)
        for each in made:
            for name, type_ in _inferred(each, types, constants).items():
                types.setdefault(name, type_)
        nodes += made
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _types_of(weights: Iterable[TensorProto]) -> dict[str, TypeProto]:
    return {each.name: helper.make_tensor_type_proto(each.data_type, each.dims) for each in weights}


def _converted(
    node: NodeProto, version: int, types: dict[str, TypeProto], constants: dict[str, TensorProto]
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Return the nodes, and their constants, that compute in version 7 what a node does."""
    try:
        old, new = (onnx.defs.get_schema(node.op_type, each, "") for each in (version, OLDEST))
    except onnx.defs.SchemaError:  # whose lack others tell
        return [node], []
    if old.since_version == new.since_version:
        return [node], []
    if node.op_type not in _RULES:
        raise ValueError("what it has become is not known here; export the model in a later version")
    its = _Node(node, types, constants)
    its.given.pop("consumed_inputs", None)
    _RULES[node.op_type](its)
    if strange := its.given.keys() - new.attributes.keys():
        raise ValueError(f"has the attribute {min(strange)!r}, which has no equal in version {OLDEST}")
    defaults = {
        name: helper.get_attribute_value(each.default_value)
        for name, each in old.attributes.items()
        if each.default_value.name
        and name in new.attributes
        and each.default_value.SerializeToString() != new.attributes[name].default_value.SerializeToString()
    }
    return [*its.before, its.converted(defaults)], its.weights


def _inferred(node: NodeProto, types: dict[str, TypeProto], constants: dict[str, TensorProto]) -> dict[str, TypeProto]:
    """Return the types of a node's outputs as far as ONNX's inference finds them."""
    if node.op_type == "Constant":  # of any type, though early versions have few
        value = attributes_of(node)["value"]
        constants[node.output[0]] = value
        return {node.output[0]: helper.make_tensor_type_proto(value.data_type, value.dims)}
    small = {name: constants[name] for name in node.input if name in constants and prod(constants[name].dims) < _SMALL}
    try:
        schema = onnx.defs.get_schema(node.op_type, OLDEST, "")
        taken = {name: types[name] for name in node.input if name}
        opset = helper.make_opsetid("", OLDEST)
        found = onnx.shape_inference.infer_node_outputs(schema, node, taken, small, opset_imports=[opset])
    except (
        KeyError,
        RuntimeError,
        onnx.defs.SchemaError,
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
    ):
        return {}
    return dict(found)
