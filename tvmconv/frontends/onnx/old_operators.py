"""Convert ONNX operators that changed before version 7 to version 7."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .graph import attributes_of

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, TypeProto

_TRAINS = "is in training mode (is_test is not 1): export for inference"


class OldNode:
    """A node of an old version under conversion: its inputs, and the facts known about them."""

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
            raise ValueError(f"needs the rank of its input {name!r}, which the model does not say")
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

    def convert(self, defaults: Mapping[str, Any]) -> NodeProto:
        """Return the converted node and its inputs."""
        made = type(self.node).FromString(self.node.SerializeToString())
        kept = {each.name: each for each in made.attribute if self.given.get(each.name, made) is self._own[each.name]}
        del made.attribute[:], made.input[:]
        made.input.extend(self.inputs)
        given = dict(defaults) | self.given
        made.attribute.extend(kept.get(name) or helper.make_attribute(name, each) for name, each in given.items())
        return made


def _broadcast(its: OldNode) -> None:
    axis = its.given.pop("axis", None)
    if its.given.pop("broadcast", 0) and axis is not None:
        left, right = its.rank(0), its.rank(1)
        count = left - (axis + left if axis < 0 else axis) - right
        if count < 0:
            raise ValueError(f"broadcasts {right} axes from axis {axis} of {left}")
        its.unsqueeze(1, count)


def _gemm(its: OldNode) -> None:
    its.given.pop("broadcast", None)


def _slopes(its: OldNode) -> None:
    if its.rank(1) == 1:  # one for all, or one for each channel
        its.unsqueeze(1, max(its.rank(0) - 2, 0))


def _inference(its: OldNode) -> None:
    if not its.given.pop("is_test", 0):
        raise ValueError(_TRAINS)


def _normalization(its: OldNode) -> None:
    _inference(its)
    if not its.given.pop("spatial", 1):
        raise ValueError("has separate weights for each pixel (spatial is 0)")


def _reshape(its: OldNode) -> None:
    if "shape" in its.given:
        its.inputs.append(its.constant(its.given.pop("shape"), "shape"))


def _concat(its: OldNode) -> None:
    its.given.setdefault("axis", 1)


def _cast(its: OldNode) -> None:
    if isinstance(to := its.given["to"], str):
        types = dict(onnx.TensorProto.DataType.items())
        if to.upper() not in types:
            raise ValueError(f"casts to {to!r}, which is not an ONNX type")
        its.given["to"] = types[to.upper()]


def _tile(its: OldNode) -> None:
    if len(its.inputs) > 2:
        repeats = [1] * its.rank(0)
        repeats[its.number(2)[0]] = its.number(1)[0]
        its.inputs[1:] = [its.constant(repeats, "repeats")]


def _split(its: OldNode) -> None:
    if len(its.inputs) > 1:
        its.given["split"] = its.number(1)
        del its.inputs[1:]


def _pad(its: OldNode) -> None:
    if "paddings" in its.given:
        its.given["pads"] = its.given.pop("paddings")


def _norm(its: OldNode) -> None:
    power = its.given.get("p", 2)
    if power != int(power):
        raise ValueError(f"is a norm of the power {power}")
    its.given["p"] = int(power)


def _upsample(its: OldNode) -> None:
    if "height_scale" in its.given:
        its.given["scales"] = [1.0, 1.0, its.given.pop("height_scale"), its.given.pop("width_scale")]
        its.given["mode"] = {"bilinear": "linear"}.get(mode := its.given.get("mode", "nearest"), mode)


def _recurrent(its: OldNode) -> None:
    its.given.pop("output_sequence", None)


def _same(its: OldNode) -> None:
    """Keep a node; `consumed_inputs` is removed for all nodes."""


RULES: dict[str, Callable[[OldNode], None]] = {
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
