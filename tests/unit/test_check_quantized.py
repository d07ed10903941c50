"""Scales, zero points and biases of quantized ONNX models that have no meaning: each an error that names node and tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from models import model, value
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("tvm")
from tvmconv.errors import SourceError
from tvmconv.network.read.onnx.check_quantized import check_quantized

f32, u8, s8, s32 = np.float32, np.uint8, np.int8, np.int32
NAMES = {
    "QLinearConv": ("x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"),
    "QLinearMatMul": ("x", "xs", "xz", "w", "ws", "wz", "ys", "yz"),
    "QGemm": ("x", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"),
    "ConvInteger": ("x", "w", "xz", "wz"),
    "QuantizeLinear": ("x", "ys", "yz"),
    "DequantizeLinear": ("w", "ws", "wz"),
    "QLinearConcat": ("ys", "yz", "x", "xs", "xz"),
}


def written(kind: str, **changed: Any) -> onnx.ModelProto:
    """Return a model of one node, `node`, with right numbers but those that are given."""
    flat = kind in ("QLinearMatMul", "QGemm")
    numbers = {
        "xs": f32(0.1),
        "xz": u8(3),
        "ws": f32(0.1),
        "wz": s8(0),
        "ys": f32(0.1),
        "yz": u8(0),
        "b": np.zeros(2, s32),
    }
    numbers["w"] = np.full((3, 2) if flat else (2, 3, 1, 1), 127, s8)
    numbers |= changed
    weights = [numpy_helper.from_array(np.asarray(numbers[name]), name) for name in NAMES[kind] if name != "x"]
    domain = "com.microsoft" if kind in ("QGemm", "QLinearConcat") else ""
    given = {"axis": 1} if kind == "QLinearConcat" else {}
    node = helper.make_node(kind, NAMES[kind], ["y"], name="node", domain=domain, **given)
    given_type = TensorProto.FLOAT if kind == "QuantizeLinear" else TensorProto.UINT8
    return model([node], [value("x", [4, 3] if flat else [1, 3, 4, 4], given_type)], weights=weights)


@pytest.mark.parametrize("kind", NAMES)
def test_right_numbers_pass(kind: str) -> None:
    check_quantized(written(kind), "a file")


@pytest.mark.parametrize("scale", [0.0, -0.5, np.nan, np.inf])
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names if name in ("xs", "ws", "ys")]
)
def test_scales_are_positive_and_finite(kind: str, name: str, scale: float) -> None:
    with pytest.raises(
        SourceError, match=rf"the {kind} node 'node' has a scale of {scale} in '{name}': scales are positive and finite"
    ):
        check_quantized(written(kind, **{name: f32(scale)}), "a file")


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        ("DequantizeLinear", {"wz": u8(3)}, "zero point of uint8 in 'wz' for integers of int8: both are of one type"),
        ("QLinearConv", {"wz": u8(0)}, "zero point of uint8 in 'wz' for integers of int8"),
        ("DequantizeLinear", {"w": np.ones(2, s32), "wz": s32(3)}, "zero point of 3 in 'wz': integers of 32 bits have none but 0"),
        ("DequantizeLinear", {"ws": np.ones(2, f32), "wz": np.zeros(3, s8)}, "2 scales in 'ws' and 3 zero points in 'wz'"),
        ("QLinearConv", {"xz": np.array([1, 2, 3], u8)}, "3 numbers in 'xz': of its data and its output there is one scale"),
        ("QLinearConv", {"yz": np.array([1, 2], u8)}, "2 numbers in 'yz': of its data and its output"),
        ("ConvInteger", {"xz": np.array([1, 2, 3], u8)}, "3 numbers in 'xz': of its data"),
        ("QLinearConv", {"wz": np.zeros(3, s8)}, "3 numbers in 'wz' for 2 channels"),
        ("QLinearMatMul", {"ws": np.ones(3, f32)}, "3 numbers in 'ws' for 2 channels"),
        ("QLinearConv", {"b": np.array([0, 2**31 - 1], s32)}, "bias of 2147483647 in 'b' beside sums of up to 96012, which may pass 32 bits"),
        ("QGemm", {"b": np.array([-(2**31), 0], s32)}, "bias of -2147483648 in 'b' beside sums of up to 96012"),
        ("QLinearConcat", {"xs": f32(0)}, "scale of 0.0 in 'xs'"),
        ("DequantizeLinear", {"ws": np.ones(2, f32)}, "2 scales in 'ws' along the axis 1 of 2x3x1x1 integers"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_named(kind: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=f"the {kind} node 'node' has .*{message}"):
        check_quantized(written(kind, **changed), "a file")


def test_numbers_of_constant_nodes_are_checked() -> None:
    made = written("QuantizeLinear")
    scale = made.graph.initializer.pop(0)
    scale.CopyFrom(numpy_helper.from_array(f32(-1), "ys"))
    made.graph.node.insert(0, helper.make_node("Constant", [], ["ys"], value=scale))
    with pytest.raises(SourceError, match=r"has a scale of -1\.0 in 'ys'"):
        check_quantized(made, "a file")
