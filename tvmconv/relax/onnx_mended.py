"""What TVM's ONNX frontend (0.27) reads as something else: written as it reads it rightly, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from ..errors import SourceError
from ..frontends.onnx_graph import attributes_of
from ..frontends.onnx_rules import node_problem

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Shapes = dict[str, tuple[int, ...]]
# Of what a scale makes of an extent: scales are f32, so 48 by 1.3333334 is 64.000003.
_WHOLE = 1e-3


def mended(model: ModelProto, source: str) -> ModelProto:
    """Return a model of fixed shapes, its constants computed, as the frontend reads it rightly; `model` is changed.

    Raises
    ------
    SourceError
        If a node has no such way; it names the node.
    """
    names = {"BatchNormalization", "ConvTranspose", "Dropout", "Resize", "Upsample"}
    if not any(node.op_type in names for node in model.graph.node):
        return model
    shapes = _shapes(model)
    for node in model.graph.node:
        given = attributes_of(node)
        if node.op_type == "BatchNormalization" and given.get("training_mode"):
            raise SourceError(
                f"{source}: TVM's ONNX frontend has no BatchNormalization in training mode; export for inference"
            )
        if node.op_type == "ConvTranspose" and "output_shape" in given:
            _give_pads(node, given, shapes)
        if node.op_type == "Dropout" and len(node.input) < 3 and len(node.output) == 1:
            # One that gives an output of the model; onnxruntime removed the others. ConvertLayout takes no tuple.
            node.op_type, node.input[:] = "Identity", node.input[:1]
            _set(node, {})
        if node.op_type in ("Resize", "Upsample"):
            try:
                _give_sizes(node, given, shapes, model)
            except ValueError as error:
                raise SourceError(
                    f"{source}: the {node.op_type} node {node.name or node.output[0]!r} {error}, which TVM's ONNX frontend"
                    f" computes as another; the convolutions alone can be built: tvmconv build {source}"
                ) from None
    return model


def _shapes(model: ModelProto) -> Shapes:
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        each.name: tuple(axis.dim_value for axis in each.type.tensor_type.shape.dim)
        for each in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    return shapes | {each.name: tuple(each.dims) for each in inferred.initializer}


def _give_pads(node: NodeProto, given: dict[str, Any], shapes: Shapes) -> None:
    """Give a ConvTranspose pads in place of `output_shape`."""
    problem = node_problem("ConvTranspose", given, shapes[node.input[0]], shapes[node.input[1]])
    given = {name: each for name, each in given.items() if name not in ("auto_pad", "output_shape")}
    _set(node, given | {"pads": [*problem.pads_begin, *problem.pads_end], "output_padding": problem.output_padding})


def _give_sizes(node: NodeProto, given: dict[str, Any], shapes: Shapes, model: ModelProto) -> None:
    """Give a Resize of some axes, and an Upsample as Resize, the sizes of all axes; ValueError if the frontend has none such."""
    if len(node.input) > 3 and node.input[3]:
        node.input[2] = ""  # what PyTorch's exporter gives by opset 11, scales without elements
    data, output = shapes.get(node.input[0], ()), shapes.get(node.output[0], ())
    if given.get("antialias"):
        raise ValueError("is antialiased")
    if given.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError("keeps the aspect ratio")
    scales = given.get("scales")
    name = node.input[{"Resize": 2, "Upsample": 1}[node.op_type]] if scales is None and len(node.input) > 1 else ""
    if len(node.input) == 2 and node.op_type == "Resize":  # of opset 10
        name = node.input[1]
    for each in model.graph.initializer:
        if name and each.name == name:
            scales = numpy_helper.to_array(each).tolist()
    if not data or not all(data) or len(output) != len(data) or not all(output):
        return
    axes = [axis % len(data) for axis in given.get("axes", range(len(data)))]
    if scales and given.get("coordinate_transformation_mode") != "align_corners":
        for axis, scale in zip(axes, scales, strict=True):
            if abs(data[axis] * scale - output[axis]) > _WHOLE:
                raise ValueError(f"makes {output[axis]} of {data[axis]} elements by the scale {scale:.6g}")
    if node.op_type == "Resize" and "axes" not in given:
        return
    if node.op_type == "Upsample":
        given = {"mode": given.get("mode", "nearest")}
        given |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    sizes = numpy_helper.from_array(np.array(output, np.int64), f"{node.output[0]}_sizes")
    model.graph.initializer.append(sizes)
    node.op_type = "Resize"
    node.input[:] = [node.input[0], "", "", sizes.name]
    _set(node, {name: each for name, each in given.items() if name != "axes"})


def _set(node: NodeProto, attributes: dict[str, Any]) -> None:
    del node.attribute[:]
    node.attribute.extend(onnx.helper.make_attribute(name, each) for name, each in attributes.items())
