"""OpenVINO's operations that follow convolutions, and what they do."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import openvino

from ...epilogue import Step
from ..following import Effect, FollowedGraph, Slopes, Sum, affine, per_channel

_STEPS = {
    "Relu": Step("relu"),
    "Sigmoid": Step("sigmoid"),
    "Tanh": Step("tanh"),
    "HSwish": Step("hardswish"),
    "HSigmoid": Step("hardsigmoid", (1 / 6, 0.5)),
}
_ARITHMETIC = {each: each.lower() for each in ("Add", "Subtract", "Multiply", "Divide")}
_FUNCTIONS = _ARITHMETIC | {
    "Power": "power", "Negative": "negative", "Maximum": "maximum", "Minimum": "minimum", "Exp": "exp", "Erf": "erf",
    "Convert": "same",
}  # fmt: skip
DTYPES = {"f32": "f32", "f16": "f16", "bf16": "bf16"}
_GELU = {"erf": Step("gelu"), "tanh": Step("gelu_tanh")}


class OpenvinoOperations(FollowedGraph):
    """The graph of a model, as :func:`~tvmconv.frontends.following.follow` reads it."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def readers(self, op: Any) -> Sequence[Any]:
        """Return the operations that read what one computes."""
        return list(dict.fromkeys(self._one(each.get_node()) for each in op.output(0).get_target_inputs()))

    def name(self, op: Any) -> str:
        """Return an operation's name."""
        return str(op.get_friendly_name())

    def function(self, op: Any) -> tuple[str | Step, Sequence[Any]] | None:
        """Return what an operation computes, element by element, and its operands."""
        values = op.input_values()
        if (step := _step(op)) is not None:
            return step, [self._one(values[0].get_node())]
        name = _FUNCTIONS.get(op.get_type_name())
        if name is None:
            return None
        numbers = map(_number, values)
        return name, [
            self._one(value.get_node()) if each is None else each for value, each in zip(values, numbers, strict=True)
        ]

    def is_alike(self, op: Any, other: Any) -> bool:
        """Return whether what two operations compute is of one type and shape."""
        shapes = [each.get_output_partial_shape(0) for each in (op, other)]
        return bool(self.dtype(op) == self.dtype(other) and shapes[0] == shapes[1])

    def dtype(self, op: Any) -> str:
        """Return the type of what an operation computes."""
        return DTYPES.get(op.get_output_element_type(0).to_string(), "")

    def effect(self, op: Any, read: Any, channels: int) -> Effect | None:
        """Return what an operation does of what `read` computes, None for what no kernel does."""
        if op.get_type_name() in _ARITHMETIC:
            return self._arithmetic(op, read, channels)
        if op.get_type_name() != "PRelu" or self.name(op.input_value(0).get_node()) != self.name(read):
            return None
        return _prelu(op.input_value(1), channels, len(read.get_output_partial_shape(0)))

    def _one(self, op: Any) -> Any:
        """Return an operation as the one object that stands for it."""
        return self._known.setdefault(self.name(op), op)

    def _arithmetic(self, op: Any, read: Any, channels: int) -> Effect | None:
        names = [self.name(value.get_node()) for value in op.input_values()]
        place = names.index(self.name(read))
        mine, other = op.input_value(place), op.input_value(1 - place)
        if names[0] == names[1]:
            return None
        name = _ARITHMETIC[op.get_type_name()]
        if is_fixed(other.get_node()):
            numbers = per_channel(value_of(other), channels, len(mine.get_partial_shape()))
            return None if numbers is None else affine(name, lambda: numbers, place == 0)
        shape = mine.get_partial_shape()
        alike = shape.is_static and shape == other.get_partial_shape()
        alike = alike and mine.get_element_type() == other.get_element_type()
        return Sum(other.get_node()) if alike and name == "add" else None


def _step(op: Any) -> Step | None:
    """Return what an activation with fixed numbers does."""
    kind, attributes = op.get_type_name(), op.get_attributes()
    if kind in _STEPS:
        return _STEPS[kind]
    if kind == "Clamp":
        return Step("clip", (float(attributes["min"]), float(attributes["max"])))
    if kind == "Elu":
        return Step("elu", (float(attributes["alpha"]),))
    if kind == "Gelu":
        return _GELU.get(str(attributes.get("approximation_mode", "erf")).lower())
    if kind in ("Swish", "HardSigmoid"):
        numbers = [_number(value) for value in op.input_values()[1:]]
        if kind == "Swish":
            return Step("silu") if numbers in ([], [1.0]) else None
        return None if None in numbers else Step("hardsigmoid", tuple(numbers))  # type: ignore[arg-type]
    if kind == "PRelu":
        slope = _number(op.input_value(1))
        return None if slope is None else Step("leaky", (slope,))
    return None


def _prelu(slope: Any, channels: int, rank: int) -> Effect | None:
    if not is_fixed(slope.get_node()):
        return None
    numbers = value_of(slope)
    if numbers.shape == (channels,):  # these are the channels', whatever the last axis is
        numbers = numbers.reshape(channels, *(1,) * (rank - 2))
    slopes = per_channel(numbers, channels, rank)
    return None if slopes is None else Slopes(lambda: slopes)


def _number(value: Any) -> float | None:
    """Return the one number of a fixed tensor; None: it has others, or is not fixed."""
    shape = value.get_partial_shape()
    if shape.is_dynamic or prod(shape.to_shape()) != 1 or not is_fixed(value.get_node()):
        return None
    return float(value_of(value).reshape(()))


def is_fixed(node: Any) -> bool:
    """Return whether a node depends on no input."""
    waiting = {node.get_name(): node}
    seen = set(waiting)
    while waiting:
        _, each = waiting.popitem()
        if each.get_type_name() in ("Parameter", "ReadValue", "RandomUniform"):
            return False
        before = {value.get_node().get_name(): value.get_node() for value in each.input_values()}
        waiting |= {name: read for name, read in before.items() if name not in seen}
        seen |= before.keys()
    return True


def value_of(value: Any) -> np.ndarray:
    """Return what an output that depends on no input computes."""
    node = value.get_node()
    if node.get_type_name() == "Constant":
        return np.array(node.get_data())
    if node.get_type_name() == "Convert" and value.get_element_type().to_string() == "f32":
        return value_of(node.input_value(0)).astype(np.float32)  # weights are kept in f16
    compiled = openvino.compile_model(openvino.Model([value], []), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.array(compiled({})[0])
