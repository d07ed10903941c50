"""Convert ONNX models of opsets before 7 to opset 7, the oldest that onnxruntime, TVM's frontend and we support.

ONNX's own converter (1.23) does not do: it adds one axis too many for the `axis` of a broadcast, applies a PRelu's slopes along the
last axis, turns training into inference, and lacks Cast, Less, Greater, Split, Tile and LSTM. `old_operators` has the
rules of changed operators; one without a rule is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

import onnx
from onnx import helper
from onnx.external_data_helper import uses_external_data

from ...errors import SourceError
from .graph import OURS, attributes_of, subgraphs
from .old_operators import RULES, OldNode

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

OLDEST = 7
# Constants with fewer elements may determine shapes.
_SMALL = 64


def with_known_versions(model: ModelProto, source: str) -> ModelProto:
    """Return a model, whose inputs have their dimensions, in opset 7 or later; `model` is changed.

    Raises
    ------
    SourceError
        If an operator has no equivalent in version 7, or needs an unknown shape or number for it; it names the node.
    """
    own = [each for each in model.opset_import if each.domain in OURS]
    if own and own[0].version < OLDEST:
        _convert(model.graph, own[0].version, source, {}, {})
        own[0].version = OLDEST
        model.ir_version = max(model.ir_version, 4)  # the first in which weights need not be inputs
    return model


def _convert(
    graph: GraphProto, version: int, source: str, types: dict[str, TypeProto], constants: dict[str, TensorProto]
) -> None:
    """Convert a graph's nodes in order, with the known types and constants of outer graphs."""
    declared = (*graph.output, *graph.value_info, *graph.input)
    types = types | {each.name: each.type for each in declared if each.type.tensor_type.HasField("shape")}
    within = [each for each in graph.initializer if not uses_external_data(each)]
    constants = constants | {each.name: each for each in within}
    types |= _types_of(graph.initializer)
    nodes: list[NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            _convert(inner, version, source, types, constants)
        made: list[NodeProto] = [node]
        weights: list[TensorProto] = []
        if node.domain in OURS:
            try:
                made, weights = _convert_node(node, version, types, constants)
            except ValueError as error:
                raise SourceError(
                    f"{source}: the {node.op_type} node {node.name or ''.join(node.output[:1])!r} is of version {version} of ONNX's"
                    f" operators, and {error}"
                ) from None
        graph.initializer.extend(weights)
        constants |= {each.name: each for each in weights}
        types |= _types_of(weights)
        for each in made:
            for name, type_ in _infer(each, types, constants).items():
                types.setdefault(name, type_)
        nodes += made
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _types_of(weights: Iterable[TensorProto]) -> dict[str, TypeProto]:
    return {each.name: helper.make_tensor_type_proto(each.data_type, each.dims) for each in weights}


def _convert_node(
    node: NodeProto, version: int, types: dict[str, TypeProto], constants: dict[str, TensorProto]
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Return the nodes and constants of version 7 that compute a node's result."""
    try:
        old, new = (onnx.defs.get_schema(node.op_type, each, "") for each in (version, OLDEST))
    except onnx.defs.SchemaError:  # unknown operators are reported elsewhere
        return [node], []
    if old.since_version == new.since_version:
        return [node], []
    if node.op_type not in RULES:
        raise ValueError("its meaning has changed since; export the model with a newer opset")
    its = OldNode(node, types, constants)
    its.given.pop("consumed_inputs", None)
    RULES[node.op_type](its)
    if strange := its.given.keys() - new.attributes.keys():
        raise ValueError(f"has the attribute {min(strange)!r}, which has no equivalent in version {OLDEST}")
    defaults = {
        name: helper.get_attribute_value(each.default_value)
        for name, each in old.attributes.items()
        if each.default_value.name
        and name in new.attributes
        and each.default_value.SerializeToString() != new.attributes[name].default_value.SerializeToString()
    }
    return [*its.before, its.convert(defaults)], its.weights


def _infer(node: NodeProto, types: dict[str, TypeProto], constants: dict[str, TensorProto]) -> dict[str, TypeProto]:
    """Return the types of a node's outputs as far as ONNX's inference finds them."""
    if node.op_type == "Constant":  # inference allows few types in early versions
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
