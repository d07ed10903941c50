"""Expansions of operators that TVM's ONNX frontend (0.27) lacks by ONNX's own function definitions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import onnx

from ....frontends.onnx.graph import used_names
from ....frontends.onnx.inline import inline_functions
from ....frontends.onnx.weights import infer_shapes

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto, TypeProto

# The frontend's is Microsoft's operator of this name.
_MISTAKEN = {"Attention"}
_ONNX = ("", "ai.onnx")
_DOMAIN = "tvmconv.expanded"


def expand_functions(model: ModelProto, source: str) -> ModelProto | None:
    """Return a model of fixed shapes with the operators that the frontend lacks expanded; None if there are none.

    Definitions compute with shapes, so constants are to be folded afterwards.
    """
    drop_unread(model)
    found = [node for node in model.graph.node if node.domain in _ONNX and _is_to_expand(node)]
    if not found:
        return None
    version = next(each.version for each in model.opset_import if each.domain in _ONNX)
    types = types_of(model)
    functions = [_definition(node, version, types) for node in found]
    for number, (node, function) in enumerate(zip(found, functions, strict=True)):
        if function is None:
            continue
        _drop_axis_of_floats(function)
        function.domain, function.name = _DOMAIN, f"{node.op_type}{number}"
        node.domain, node.op_type = function.domain, function.name
        model.functions.append(function)
    if not model.functions:
        return None
    model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    return inline_functions(model, source)


def _drop_axis_of_floats(function: FunctionProto) -> None:
    """Make floats of shape (1,) in a definition, such as Celu's alpha, scalars: broadcast, they would give a scalar an axis."""
    for node in function.node:
        for each in node.attribute:
            if each.t.dims == [1] and each.t.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
                del each.t.dims[:]


def drop_empty(model: ModelProto) -> None:
    """Remove empty parts, which definitions for all shapes split off and concatenate again: TVM has no empty arrays."""
    types = types_of(model)
    empty = {
        name
        for name, each in types.items()
        if any(axis.dim_value == 0 for axis in each.tensor_type.shape.dim if axis.HasField("dim_value"))
    }
    for node in model.graph.node:
        kept = [name for name in node.input if name not in empty]
        if node.op_type == "Concat" and 0 < len(kept) < len(node.input):
            _replace(node.input, kept)
    read = {*used_names(model.graph), *(each.name for each in model.graph.output)}
    for node in model.graph.node:
        kept = [name for name in node.output if name not in empty or name in read]
        if node.op_type == "Split" and len(kept) == 1 and len(node.output) > 1:
            node.op_type = "Identity"
            _replace(node.input, node.input[:1])
            _replace(node.output, kept)
            del node.attribute[:]


def _replace(names: Any, others: Sequence[str]) -> None:
    others = list(others)
    del names[:]
    names.extend(others)


# Operators whose outputs after the first are optional.
_OPTIONAL = ("BatchNormalization", "Dropout", "LayerNormalization", "MaxPool")


def drop_unread(model: ModelProto) -> None:
    """Remove unread optional outputs, such as the indices of a MaxPool, which the frontend lacks."""
    read = {*used_names(model.graph), *(each.name for each in model.graph.output)}
    for node in model.graph.node:
        while node.op_type in _OPTIONAL and len(node.output) > 1 and node.output[-1] not in read:
            del node.output[-1]


def _is_to_expand(node: NodeProto) -> bool:
    return is_lacking(node.op_type) or (node.op_type == "LayerNormalization" and len(node.output) > 1)


@cache
def is_lacking(name: str) -> bool:
    """Return whether the frontend has no converter of an ONNX operator, or mistakes it for another one."""
    from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

    return name in _MISTAKEN or name not in _get_convert_map()


def _definition(node: NodeProto, version: int, types: dict[str, TypeProto]) -> FunctionProto | None:
    """Return an operator's function definition for the inputs of a node; None if there is none."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return None
    given = {each.name for each in node.attribute}
    defaults = (each.default_value for each in schema.attributes.values() if each.name not in given)
    node.attribute.extend(each for each in defaults if each.name)  # the inliner does not know defaults
    if schema.has_function:
        return onnx.FunctionProto.FromString(schema.function_body.SerializeToString())
    if not schema.has_context_dependent_function or any(name and name not in types for name in node.input):
        return None
    taken = [(types[name] if name else onnx.TypeProto()).SerializeToString() for name in node.input]
    written = schema.get_context_dependent_function(node.SerializeToString(), taken)
    return onnx.FunctionProto.FromString(written)


def types_of(model: ModelProto) -> dict[str, TypeProto]:
    """Return the types of a model's tensors."""
    inferred = infer_shapes(model).graph
    types = {each.name: each.type for each in (*inferred.input, *inferred.value_info, *inferred.output)}
    constants = {
        each.name: onnx.helper.make_tensor_type_proto(each.data_type, each.dims) for each in model.graph.initializer
    }
    return types | constants
