"""ONNX nodes that are activations, as steps of an epilogue."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ...epilogue import Step
from .tensors import Tensors

if TYPE_CHECKING:
    from onnx import NodeProto

_PLAIN = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "HardSwish": "hardswish"}
# Each step, with the attributes of its numbers and ONNX's defaults.
_WITH_NUMBERS: dict[str, tuple[str, dict[str, float]]] = {
    "LeakyRelu": ("leaky", {"alpha": 0.01}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hardsigmoid", {"alpha": 0.2, "beta": 0.5}),
}
_GELU = {"none": "gelu", "tanh": "gelu_tanh"}
# Exporters also write a missing bound of a Clip as f32's largest number.
_NO_BOUND = float(np.finfo(np.float32).max)


def activation(node: NodeProto, tensors: Tensors, rank: int) -> Step | None:
    """Return the activation of a node on a tensor of `rank` dimensions; None if it is no activation with fixed numbers."""
    kind = node.op_type
    if kind in _PLAIN:
        return Step(_PLAIN[kind])
    if kind in _WITH_NUMBERS:
        name, defaults = _WITH_NUMBERS[kind]
        return Step(name, tuple(attribute(node, each, default) for each, default in defaults.items()))
    if kind == "Gelu":
        approximate = attribute(node, "approximate", b"none").decode(errors="replace")
        return Step(_GELU[approximate]) if approximate in _GELU else None
    if kind == "Clip":
        bounds = clip_bounds(node, tensors)
        return None if bounds is None or bounds[0] > bounds[1] else Step("clip", bounds)
    if kind == "PRelu":
        slope = tensors.number(node.input[1], rank)
        return None if slope is None else Step("leaky", (slope,))
    return None


def clip_bounds(node: NodeProto, tensors: Tensors) -> tuple[float, float] | None:
    """Return the bounds of a Clip, attributes in old models; None if they are not fixed."""
    bounds: list[float] = []
    for i, (name, none) in enumerate((("min", -inf), ("max", inf)), start=1):
        given = node.input[i] if len(node.input) > i else ""
        bound = tensors.number(given, 1) if given else attribute(node, name, none)
        if bound is None:
            return None
        bounds.append(none if abs(bound) >= _NO_BOUND and (bound > 0) == (none > 0) else bound)
    return bounds[0], bounds[1]


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    """Return the value of a node's attribute."""
    return next((onnx.helper.get_attribute_value(each) for each in node.attribute if each.name == name), default)
