"""Graphs of few nodes, with what a provider claims of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

RNG = np.random.default_rng(0)
Node = onnx.NodeProto


def fixed(name: str, *shape: int, dtype: type = np.float32) -> onnx.TensorProto:
    """Return small integers, with which sums are exact."""
    return numpy_helper.from_array(RNG.integers(-2, 3, shape).astype(dtype), name)


def number(name: str, value: float, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.full(shape, value, np.float32), name)


NUMBERS = [number("three", 3, 1), number("zero", 0), number("six", 6), number("half", 0.5), number("one", 1)]
NUMBERS += [number("root", 2**0.5), number("sixth", 1 / 6), number("factor", 0.25, 1)]


def conv(
    output: str = "c", data: str = "x", filter: str = "w", *more: str, op: str = "Conv", **attributes: Any
) -> Node:
    return helper.make_node(op, [data, filter, *more], [output], **({"pads": [1, 1, 1, 1]} | attributes))


def node(op: str, inputs: str, output: str, **attributes: Any) -> Node:
    return helper.make_node(op, inputs.split(), [output], **attributes)


FILTER = fixed("w", 8, 8, 3, 3)
NORMALIZATION = [fixed("s", 8), fixed("t", 8), fixed("m", 8), number("v", 0.99999, 8)]
# Nodes, fixed tensors, and in how many nodes the provider computes all of them.
GRAPHS: dict[str, tuple[list[Node], list[onnx.TensorProto], int]] = {
    "relu": ([conv(), node("Relu", "c", "y")], [FILTER], 1),
    "bias_clip": ([conv("c", "x", "w", "b"), node("Clip", "c zero six", "y")], [FILTER, fixed("b", 8)], 1),
    "same_upper": ([helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2])], [FILTER], 1),
    "same_lower": ([helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_LOWER", strides=[2, 2])], [FILTER], 1),
    "grouped": ([conv("y", group=4, dilations=[2, 1])], [fixed("w", 8, 2, 3, 3)], 1),
    "normalized": ([conv(), node("BatchNormalization", "c s t m v", "y")], [FILTER, *NORMALIZATION], 1),
    "residual": (
        [conv("a"), node("Relu", "a", "r"), conv("c", "r"), node("Add", "x c", "d"), node("Relu", "d", "y")], [FILTER], 2,
    ),
    "both_sides": ([conv("a"), conv("b", "x", "u"), node("Add", "a b", "c"), node("Relu", "c", "y")], [FILTER, fixed("u", 8, 8, 3, 3)], 2),
    "silu": ([conv(), node("Sigmoid", "c", "g"), node("Mul", "c g", "y")], [FILTER], 1),
    "hardswish": (
        [conv(), node("Add", "c three", "a"), node("Clip", "a zero six", "b"), node("Mul", "c b", "d"), node("Div", "d six", "y")],
        [FILTER], 1,
    ),
    "hardswish_divided_first": (
        [conv(), node("Add", "three c", "a"), node("Clip", "a zero six", "b"), node("Mul", "sixth b", "d"), node("Mul", "d c", "y")],
        [FILTER], 1,
    ),
    "hardsigmoid": ([conv(), node("Add", "c three", "a"), node("Clip", "a zero six", "b"), node("Div", "b six", "y")], [FILTER], 1),
    "gelu": (
        [conv(), node("Div", "c root", "a"), node("Erf", "a", "b"), node("Add", "b one", "d"), node("Mul", "c d", "e"), node("Mul", "e half", "y")],
        [FILTER], 1,
    ),
    "prelu": ([conv(), node("PRelu", "c p", "y")], [FILTER, fixed("p", 8, 1, 1)], 1),
    "leaky": ([conv(), node("LeakyRelu", "c", "y", alpha=0.5)], [FILTER], 1),
    "scaled": ([conv(), node("Relu", "c", "r"), node("Mul", "factor r", "y")], [FILTER], 1),
    "transposed": (
        [conv(op="ConvTranspose", strides=[2, 2], output_padding=[1, 0]), node("Relu", "c", "y")], [fixed("w", 8, 4, 3, 3)], 1,
    ),
    "transposed_groups_folded": (
        [conv(op="ConvTranspose", group=2, strides=[2, 1]), node("BatchNormalization", "c s t m v", "y")],
        [fixed("w", 8, 4, 3, 3), *NORMALIZATION], 1,
    ),
    "transposed_output_shape": (
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], output_shape=[12, 13], strides=[2, 2])], [fixed("w", 8, 4, 3, 3)], 1,
    ),
    "transposed_same": (
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2])], [fixed("w", 8, 4, 3, 3)], 1,
    ),
    "filter_given": ([helper.make_node("Conv", ["x", "f"], ["y"], pads=[1, 1, 1, 1])], [], 1),
    "read_twice": ([conv(), node("Relu", "c", "r"), node("Neg", "c", "n"), node("Add", "r n", "y")], [FILTER], 1),
}  # fmt: skip
