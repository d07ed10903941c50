"""Rewrite nodes that TVM's ONNX frontend (0.27) misreads, or refuse them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ....errors import SourceError
from ....frontends.onnx.constants import add_constant
from ....frontends.onnx.graph import attributes_of, used_names
from ....frontends.onnx.rules import node_problem
from .decompose import DECOMPOSED, decompose
from .expand_functions import drop_unread, types_of
from .pads import POOLS, give_longer_output, give_pool_pads, pad_nodes, set_attributes
from .quantizers import read_quantizer
from .recurrent import RECURRENT, kind_of
from .resize import FLOATS, resize
from .unroll_recurrent import GATES, check_recurrent, unroll

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Shapes = dict[str, tuple[int, ...]]
_NAMES = {
    *POOLS,
    *DECOMPOSED,
    *RECURRENT,
    "BatchNormalization",
    "Clip",
    "Conv",
    "ConvTranspose",
    "DequantizeLinear",
    "LayerNormalization",
    "Dropout",
    "Pad",
    "QuantizeLinear",
    "Resize",
    "RoiAlign",
    "Shrink",
    "Upsample",
}
# Operators whose output sizes depend on data, and the number of inputs that determine them.
COUNTING = {"Compress": 2, "NonMaxSuppression": 2, "NonZero": 1, "Unique": 1}


def repair(model: ModelProto, source: str) -> ModelProto:
    """Return a model of fixed shapes and folded constants in a form that the frontend reads correctly; `model` is changed.

    Raises
    ------
    SourceError
        If a node has no such form; it names the node.
    """
    if not any(node.op_type in _NAMES or node.op_type in COUNTING for node in model.graph.node):
        return model
    drop_unread(model)
    shapes, types = _infer(model)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "Conv":
            _check_span(node, shapes, source)
        if node.op_type in COUNTING:
            written = {name for each in model.graph.node for name in each.output}
            before = [name for name in node.input[: COUNTING[node.op_type]] if name in written]
            options = f" ({' '.join(f'--cut {shlex.quote(name)}' for name in before)})" if before else ""
            raise SourceError(
                f"{source}: the {node.op_type} node {node.name or node.output[0]!r} has outputs whose size depends on its"
                f" input's values; cut the network before that node{options}, and compute the rest in the program"
            )
        try:
            nodes += _nodes(node, shapes, types, model)
        except ValueError as error:
            raise SourceError(
                f"{source}: the {node.op_type} node {node.name or node.output[0]!r} {error}, which networks do not support;"
                f" the convolutions alone can be built: tvmconv build {source}"
            ) from None
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    # The frontend reads unused initializers, too, and fails at those of fewer than 8 bits.
    read = {*used_names(model.graph), *(each.name for each in model.graph.output)}
    for at in reversed(range(len(model.graph.initializer))):
        if model.graph.initializer[at].name not in read:
            del model.graph.initializer[at]
    return model


def _nodes(node: NodeProto, shapes: Shapes, types: dict[str, int], model: ModelProto) -> list[NodeProto]:
    """Return the replacement of a node; ValueError if the frontend cannot express it."""
    given = attributes_of(node)
    if node.op_type == "BatchNormalization" and given.get("training_mode"):
        raise ValueError("is in training mode (export for inference)")
    if node.op_type == "BatchNormalization" and not given.get("spatial", 1):  # before version 9
        raise ValueError("has separate weights for each pixel (spatial is 0)")
    if node.op_type == "ConvTranspose":
        if "output_shape" in given:
            _give_pads(node, given, shapes)
        give_longer_output(node)
    if node.op_type in POOLS:
        give_pool_pads(node, shapes.get(node.input[0], ()))
    if node.op_type in ("DequantizeLinear", "QuantizeLinear"):
        return read_quantizer(node, types, model)
    if node.op_type in DECOMPOSED and (node.op_type != "MaxPool" or len(node.output) > 1):
        return decompose(node, shapes, types, model)
    if node.op_type in RECURRENT:
        data, double = shapes.get(node.input[0], ()), types.get(node.input[0]) == onnx.TensorProto.DOUBLE
        check_recurrent(node, data, model)
        if node.op_type not in GATES:
            return [node]
        directions = 1 + (given.get("direction") == "bidirectional")
        is_loop = not double and all(kind_of(node.op_type, given, number) for number in range(directions))
        return [node] if is_loop or not all(data) else unroll(node, data, model)
    if node.op_type == "Pad":
        return pad_nodes(node, shapes.get(node.input[0], ()), model)
    if node.op_type == "Clip" and given:
        return _bound(node, given, types, model)
    if node.op_type == "Shrink" and types[node.input[0]] not in FLOATS:
        return _widen(node, types[node.input[0]])
    if node.op_type == "RoiAlign":
        return _align(node, given, types, model)
    if node.op_type in ("Resize", "Upsample"):
        data, output = shapes.get(node.input[0], ()), shapes.get(node.output[0], ())
        return resize(node, data, output, types.get(node.input[0], 0), model)
    return [node]


def _align(node: NodeProto, given: dict[str, Any], types: dict[str, int], model: ModelProto) -> list[NodeProto]:
    """Scale the regions of a RoiAlign before it: the frontend subtracts half a pixel of the image, not of the data."""
    if given.get("mode", "avg") != "avg":
        raise ValueError("takes the maximum of weighted elements")
    scale = given.pop("spatial_scale", 1.0)
    if scale == 1:
        return [node]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(types[node.input[1]])
    name = add_constant(model, f"{node.output[0]}_scale", np.array(scale, dtype))
    scaled = onnx.helper.make_node("Mul", [node.input[1], name], [f"{node.output[0]}_regions"])
    node.input[1] = scaled.output[0]
    set_attributes(node, given)
    return [scaled, node]


def _bound(node: NodeProto, given: dict[str, Any], types: dict[str, int], model: ModelProto) -> list[NodeProto]:
    """Write a Clip by attributes, of versions before 11: the frontend's gives a bound for what is no number."""
    dtype, made = onnx.helper.tensor_dtype_to_np_dtype(types[node.input[0]]), [node.input[0]]
    nodes = []
    for name, kind in (("min", "Max"), ("max", "Min")):
        if name in given:
            bound = add_constant(model, f"{node.output[0]}_{name}", np.array(given[name], dtype))
            nodes.append(onnx.helper.make_node(kind, [made[-1], bound], [f"{node.output[0]}_{kind}"], node.name))
            made += nodes[-1].output
    nodes[-1].output[0] = node.output[0]
    return nodes


def _widen(node: NodeProto, elem_type: int) -> list[NodeProto]:
    """Compute a Shrink of integers, whose attributes are fractions, in f64: the frontend rounds them to the data's type."""
    data, made = (f"{node.output[0]}_{each}" for each in ("data", "made"))
    before = onnx.helper.make_node("Cast", [node.input[0]], [data], node.name, to=onnx.TensorProto.DOUBLE)
    after = onnx.helper.make_node("Cast", [made], [node.output[0]], node.name, to=elem_type)
    node.input[0], node.output[0] = data, made
    return [before, node, after]


def _infer(model: ModelProto) -> tuple[Shapes, dict[str, int]]:
    """Return the shapes and ONNX's numbers of the types of a model's tensors."""
    tensors = {name: each.tensor_type for name, each in types_of(model).items()}
    shapes = {name: tuple(axis.dim_value for axis in each.shape.dim) for name, each in tensors.items()}
    return shapes, {name: each.elem_type for name, each in tensors.items()}


def _check_span(node: NodeProto, shapes: Shapes, source: str) -> None:
    """Refuse a filter larger than its padded data, which onnxruntime reports only when it runs."""
    given, data, taps = attributes_of(node), shapes.get(node.input[0], ())[2:], shapes.get(node.input[1], ())[2:]
    if len(data) != len(taps) or not all(data) or given.get("auto_pad", "NOTSET").startswith("SAME"):
        return
    pads = given.get("pads", [0] * (2 * len(data)))
    dilations = given.get("dilations", [1] * len(data))
    for extent, size, dilation, begin, end in zip(data, taps, dilations, pads, pads[len(data) :], strict=False):
        span, padded = dilation * (size - 1) + 1, extent + begin + end
        if span > padded:
            raise SourceError(
                f"{source}: the Conv node {node.name or node.output[0]!r} has a filter that spans {span} elements of {padded};"
                " give larger shapes of the inputs, if the model leaves them free"
            )


def _give_pads(node: NodeProto, given: dict[str, Any], shapes: Shapes) -> None:
    """Give a ConvTranspose explicit pads instead of `output_shape`."""
    problem = node_problem("ConvTranspose", given, shapes[node.input[0]], shapes[node.input[1]])
    given = {name: each for name, each in given.items() if name not in ("auto_pad", "output_shape")}
    set_attributes(
        node, given | {"pads": [*problem.pads_begin, *problem.pads_end], "output_padding": problem.output_padding}
    )
