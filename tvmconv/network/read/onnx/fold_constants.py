"""Fold constants of an ONNX model, and the branches that they decide, where onnxruntime does not.

onnxruntime (1.31) has no kernels for most operators in bf16, and refuses a model with one. It folds a shape as a whole or not at all: an
If on a fixed extent, as exporters write `squeeze`, stays where another extent is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ....errors import SourceError
from ....frontends.onnx.constants import add_constant
from ....frontends.onnx.graph import OURS, attributes_of, keep_used, sizes_of, start_end, subgraphs, values_of
from ....frontends.onnx.weights import infer_shapes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    Shapes = dict[str, tuple[int, ...]]


def fold_constants(model: ModelProto, source: str) -> ModelProto:
    """Return a copy of a model of fixed shapes with everything folded that depends on constants and shapes only.

    Raises
    ------
    SourceError
        If the shapes in it contradict each other, or ONNX's evaluator cannot compute a constant.
    """
    copy: ModelProto = type(model)()
    copy.CopyFrom(model)
    changed = True
    while changed:  # computed constants may fix shapes that other nodes read
        try:
            shapes = _shapes(copy)
        except onnx.shape_inference.InferenceError as error:
            raise SourceError(f"{source}: ONNX's shape inference fails: {error}") from error
        changed = _fold(copy, shapes, source)
    _drop_unread(copy)
    return copy


def fold_extents(model: ModelProto) -> bool:
    """Replace ranks and fixed extents taken from shapes by constants; return whether there were any."""
    values = values_of(infer_shapes(model, data_prop=True).graph)
    constants = {each.name: each for each in model.graph.initializer}
    shapes: dict[str, Sequence[int | str]] = {}
    computed: list[NodeProto] = []
    for node in model.graph.node:
        given = values[node.input[0]].shape if node.input and node.input[0] in values else None
        found = sizes_of(node, given)
        if node.op_type == "Shape" and given is not None:
            shapes[node.output[0]] = given[start_end(node)]
        elif node.op_type == "Gather" and node.input[0] in shapes and node.input[1] in constants:
            places = numpy_helper.to_array(constants[node.input[1]])
            extents = [shapes[node.input[0]][place] for place in places.flat]
            if all(isinstance(extent, int) for extent in extents):
                found = np.array(extents, np.int64).reshape(places.shape)
        if found is not None:
            add_constant(model, node.output[0], found)
            computed.append(node)
    for node in computed:
        model.graph.node.remove(node)
    return bool(computed)


def _shapes(model: ModelProto) -> Shapes:
    graph = infer_shapes(model, data_prop=True).graph
    found = {}
    for each in (*graph.input, *graph.value_info, *graph.output):
        dims = each.type.tensor_type.shape.dim
        if each.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            found[each.name] = tuple(dim.dim_value for dim in dims)
    return found


def _fold(model: ModelProto, shapes: Shapes, source: str) -> bool:
    """Replace nodes by constants, and Ifs by the nodes of a branch; return whether anything changed."""
    from onnx.reference import ReferenceEvaluator  # takes longer to import than ONNX

    constants = {each.name: each for each in model.graph.initializer}
    opsets = {each.domain: each.version for each in model.opset_import}
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "If" and node.input[0] in constants:
            nodes += _branch(node, bool(numpy_helper.to_array(constants[node.input[0]])), model)
            continue
        sizes = sizes_of(node, shapes.get("".join(node.input[:1])))
        values = None if sizes is None else [sizes]
        if values is None and _is_fixed(node, constants):
            feeds = {name: numpy_helper.to_array(constants[name]) for name in node.input if name}
            try:
                values = ReferenceEvaluator(node, opsets=opsets).run(None, feeds)
            except Exception as error:  # of any kind, whatever its operators raise
                raise SourceError(
                    f"{source}: ONNX's evaluator cannot compute the constant {node.output[0]!r}: {error}"
                ) from error
        if values is None:
            nodes.append(node)
            continue
        for name, value in zip(node.output, values, strict=True):
            if name:
                add_constant(model, name, np.asarray(value))
                constants[name] = model.graph.initializer[-1]
    changed = len(nodes) != len(model.graph.node) or any(
        a is not b for a, b in zip(nodes, model.graph.node, strict=True)
    )
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return changed


def _branch(node: NodeProto, choice: bool, model: ModelProto) -> Iterator[NodeProto]:
    """Yield the nodes of a branch of an If, and add its constants to the model's."""
    branch = attributes_of(node)["then_branch" if choice else "else_branch"]
    model.graph.initializer.extend(branch.initializer)
    yield from branch.node
    for given, name in zip(branch.output, node.output, strict=True):
        yield helper.make_node("Identity", [given.name], [name])


def _is_fixed(node: NodeProto, constants: dict[str, onnx.TensorProto]) -> bool:
    moves = node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial")
    if moves or node.domain not in OURS or any(True for _ in subgraphs(node)):
        return False
    return all(name in constants for name in node.input if name)


def _drop_unread(model: ModelProto) -> None:
    """Remove unread constants and nodes."""
    read = keep_used(model.graph, [each.name for each in model.graph.output])
    weights = [each for each in model.graph.initializer if each.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(weights)
