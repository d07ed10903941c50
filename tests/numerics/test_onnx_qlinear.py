"""Operators on integers of ONNX and Microsoft: answers are onnxruntime's, bit for bit, or a refusal names the node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")
from near import assert_near
from test_network_integers import Chains, answers, load

from tvmconv.errors import SourceError
from tvmconv.frontends.onnx.session import open_session
from tvmconv.network.read.onnx.reader import fix_shapes, read_onnx

f32, u8, s8, u16 = np.float32, np.uint8, np.int8, np.uint16
U8, S8, F32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT
IMAGE = [1, 4, 7, 6]


class Nodes(Chains):
    """Chains with Microsoft's nodes, and numbers."""

    def micro(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.node(kind, *inputs, domain="com.microsoft", **attributes)

    def numbers(self, scale: float, zero: Any) -> list[str]:
        return [self.const(f32(scale)), self.const(zero)]

    def integers(self, seed: int, *shape: int, kind: Any = s8) -> str:
        """Return a filter of 7 bits, which no CPU saturates."""
        least = -63 if kind is s8 else 0
        return self.const(np.random.default_rng(seed).integers(least, least + 127, shape).astype(kind))

    def short(self, kind: int, least: int, *shape: int) -> str:
        """Return integers of four bits."""
        drawn = np.random.default_rng(len(self.weights)).integers(least, least + 16, shape)
        self.weights.append(helper.make_tensor(self.name(), kind, shape, drawn.reshape(-1).tolist()))
        return self.weights[-1].name


def microsoft() -> Nodes:
    """Return Microsoft's operators, which are not within QDQ."""
    made = Nodes()
    one, two, out = made.numbers(0.02, u8(120)), made.numbers(0.03, u8(90)), made.numbers(0.015, u8(100))
    image = [made.input(IMAGE, U8), *one]
    for kind, other in (
        ("QLinearAdd", made.input([4, 1, 1], U8)),
        ("QLinearMul", made.integers(1, 1, 4, 1, 1, kind=u8)),
    ):
        made.output(made.micro(kind, *image, other, *two, *out), U8)
    window = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    for given in ({**window, "count_include_pad": 1}, {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [2, 2]}):
        made.output(made.micro("QLinearAveragePool", *image, *out, **given), U8)
    last = [made.input([1, 7, 6, 4], U8), *one]
    made.output(made.micro("QLinearAveragePool", *last, *out, **window, channels_last=1), U8)
    made.output(made.micro("QLinearGlobalAveragePool", *last, *out, channels_last=1), U8)
    made.output(made.micro("NhwcMaxPool", last[0], kernel_shape=[2, 2], strides=[2, 1]), U8)
    weights = [made.integers(2, 6, 4, 3, 3), *made.numbers(0.01, s8(0))]
    made.output(made.micro("QLinearConv", *last, *weights, *out, channels_last=1, pads=[1] * 4), U8)
    signed, after = [made.input(IMAGE, S8), *made.numbers(0.03, s8(-12))], made.numbers(0.02, s8(7))
    made.output(made.micro("QLinearLeakyRelu", *signed, *after, alpha=0.1), S8)
    made.output(made.micro("QLinearSigmoid", *image, *made.numbers(1 / 256, u8(0))), U8)
    made.output(made.micro("QLinearSoftmax", *signed, *made.numbers(1 / 256, s8(-128)), axis=1, opset=13), S8)
    chosen = made.const(np.random.default_rng(3).random(IMAGE) < 0.5)
    made.output(made.micro("QLinearWhere", chosen, *image, made.input(IMAGE, U8), *two, *out), U8)
    made.output(made.micro("QLinearConcat", *out, *image, made.input([1, 3, 7, 6], U8), *two, axis=1), U8)
    return made


def products() -> Nodes:
    """Return products of data and of fixed matrices, of all forms."""
    made = Nodes()
    one, two, out = made.numbers(0.02, u8(120)), made.numbers(0.007, u8(90)), made.numbers(0.3, u8(100))
    a, b = made.input([2, 5, 33], U8), made.input([2, 33, 6], U8)
    made.output(made.node("QLinearMatMul", a, *one, b, *two, *out), U8)
    made.output(made.node("MatMulInteger", a, made.integers(4, 2, 33, 6), one[1]), TensorProto.INT32)
    lines = [(made.input([33], U8), two), (made.integers(6, 33), made.numbers(0.01, s8(0)))]
    for line, its in lines:
        made.output(made.node("QLinearMatMul", made.input([33], U8), *one, line, *its, *out), U8)
    left, right = (f"d{at}" for at in range(2))
    for name, shape in ((left, [5, 33]), (right, [33, 6])):
        outputs = [f"{name}.{part}" for part in "ysz"]
        made.nodes.append(helper.make_node("DynamicQuantizeLinear", [made.input(shape)], outputs))
    sums = made.node("MatMulInteger", f"{left}.y", f"{right}.y", f"{left}.z", f"{right}.z")
    made.output(made.node("Mul", made.node("Cast", sums, to=F32), made.node("Mul", f"{left}.s", f"{right}.s")))
    weight, numbers = made.integers(5, 33, 6), made.numbers(0.01, s8(0))
    bias = made.const(np.arange(-3, 3, dtype=np.int32) * 100)
    whole = [made.input([33, 5], U8), *one]
    for last in (out, []):
        made.output(
            made.micro("QGemm", *whole, weight, *numbers, bias, *last, transA=1, alpha=0.5), U8 if last else F32
        )
    rows = made.const(np.arange(-2, 3, dtype=np.int32).reshape(5, 1) * 500)
    made.output(made.micro("QGemm", *whole, weight, *numbers, rows, *out, transA=1), U8)
    # Scales and a bias of rows, as many as columns.
    square, scales = made.integers(6, 6, 6), made.const(np.linspace(0.01, 0.02, 6, dtype=f32))
    data = made.node("DequantizeLinear", made.input([6, 6], U8), *one)
    made.output(made.node("MatMul", data, made.node("DequantizeLinear", square, scales, axis=0)))
    added = made.const(np.linspace(-1, 1, 6, dtype=f32).reshape(6, 1))
    made.output(made.node("Gemm", data, made.node("DequantizeLinear", square, *numbers), added))
    added = made.const(np.linspace(-1, 1, 6, dtype=f32))
    made.output(made.micro("DynamicQuantizeMatMul", made.input([5, 33]), weight, *numbers, added))
    scales = made.const(f32(0.02)), made.const(np.linspace(0.01, 0.02, 6, dtype=f32))
    made.output(made.micro("MatMulIntegerToFloat", made.input([5, 33], U8), weight, *scales, one[1]))
    return made


@pytest.mark.parametrize("write", (products, pytest.param(microsoft, marks=pytest.mark.slow)))
def test_answers_are_the_bits_of_onnxruntime(write: Callable[[], Nodes], tmp_path: Path) -> None:
    got, expected, _ = answers(write().save(tmp_path, opset=13), tmp_path)
    for node, (answer, right) in enumerate(zip(got.values(), expected, strict=True)):
        if answer.dtype == f32:
            np.testing.assert_allclose(
                answer, right, 1e-5, 1e-5
            )  # tolerance: a product and a sum, rounded once or twice
        else:
            np.testing.assert_array_equal(answer, right, err_msg=f"output {node}")
        assert np.unique(answer).size > min(3, answer.size - 1)


@pytest.mark.parametrize("number", (0.0, -0.0, 1.0, -1.0, 1e-40))
def test_equal_numbers_are_quantized_as_by_onnxruntime(number: float, tmp_path: Path) -> None:
    """Nothing but zeros has the scale 1."""
    made = Nodes()
    outputs = ["rounded", "scale", "zero"]
    made.nodes.append(helper.make_node("DynamicQuantizeLinear", [made.input([5, 33])], outputs))
    for name, kind in zip(outputs, (U8, F32, U8), strict=True):
        made.output(name, kind)
    source = made.save(tmp_path, opset=13)
    given = {name: np.full((5, 33), number, f32) for name in load(source, tmp_path).random_inputs()}
    expected = open_session(fix_shapes(source), "ORT_DISABLE_ALL").run(None, given)
    for answer, right in zip(load(source, tmp_path)(**given).values(), expected, strict=True):
        np.testing.assert_array_equal(answer, right)


def test_quantizers_of_all_kinds(tmp_path: Path) -> None:
    """Filters of four bits, of a scale for each block; numbers of 16 bits; Microsoft's quantizers: within one step, and sums of f32."""
    made = Nodes()
    x, numbers = made.input([5, 32]), made.numbers(0.02, u8(120))
    data = made.node("DequantizeLinear", made.node("QuantizeLinear", x, *numbers), *numbers)
    scales = made.const(np.linspace(0.01, 0.02, 24, dtype=f32).reshape(4, 6))
    blocks = [made.short(TensorProto.INT4, -8, 32, 6), scales, made.short(TensorProto.INT4, -8, 4, 6)]
    made.output(made.node("MatMul", data, made.node("DequantizeLinear", *blocks, axis=0, block_size=8)))
    whole = [made.short(TensorProto.UINT4, 0, 32, 6), made.const(np.linspace(0.01, 0.02, 6, dtype=f32))]
    made.output(made.node("MatMul", data, made.node("DequantizeLinear", *whole, axis=1)))
    eight = [made.integers(6, 32, 6), scales]
    made.output(made.node("MatMul", x, made.node("DequantizeLinear", *eight, axis=0, block_size=8)))
    long = made.numbers(0.0004, u16(30000))
    for node in (made.node, made.micro):
        made.output(node("DequantizeLinear", node("QuantizeLinear", x, *long), *long))
    got, expected, signatures = answers(made.save(tmp_path, opset=21), tmp_path)
    assert sum("-u8" in each or "-s8" in each or "-s16" in each for each in signatures) == 1
    for answer, right in zip(got.values(), expected, strict=True):
        np.testing.assert_allclose(answer, right, rtol=1e-5, atol=1e-5)  # tolerance: sums of f32, no step


def _blocked(made: Nodes) -> str:
    scales = made.const(np.full((5, 4), 0.1, f32)), made.const(np.zeros((5, 4), u8))
    return made.node("QuantizeLinear", made.input([5, 32]), *scales, axis=1, block_size=8)


def _short(made: Nodes) -> str:
    return made.node("QuantizeLinear", made.input([5, 32]), made.const(f32(0.1)), made.short(TensorProto.INT4, -8))


def _softmax(made: Nodes) -> str:
    numbers = [*made.numbers(0.1, u8(3)), *made.numbers(0.1, u8(3))]
    return made.micro("QLinearSoftmax", made.input([2, 3, 4], U8), *numbers, axis=1, opset=11)


def _blocks(made: Nodes) -> str:
    rows = made.const(np.arange(4)), made.const(np.ones((6, 1), f32))
    return made.micro(
        "GatherBlockQuantized", made.integers(1, 6, 32, kind=u8), *rows, quantize_axis=1, block_size=32, bits=8
    )


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_blocked, "QuantizeLinear node 't3' has block-wise scales, which are supported for constant data only"),
        (_short, "QuantizeLinear node 't3' has the type INT4"),
        (_softmax, "QLinearSoftmax node 't5' follows another opset than 21"),
        (_blocks, "networks do not support com.microsoft.GatherBlockQuantized"),
    ],
)
def test_what_is_not_read_is_named(write: Any, message: str, tmp_path: Path) -> None:
    made = Nodes()
    made.output(write(made), TensorProto.UNDEFINED)
    made.outputs[-1].ClearField("type")
    with pytest.raises(SourceError, match=message):
        read_onnx(made.save(tmp_path, opset=21))


def test_weights_by_blocks_are_computed(tmp_path: Path) -> None:
    """MatMulNBits of a last block that is not full, with zero points of few bits, of f32, and the middle, in onnxruntime's arithmetic."""
    made, rng, (rows, depth, size) = Nodes(), np.random.default_rng(3), (6, 40, 16)
    bias = made.const(np.linspace(-1, 1, rows, dtype=f32))
    for bits, zeros in ((4, ""), (4, "few"), (8, "few"), (4, "f32")):
        packed = made.const(rng.integers(0, 256, (rows, 3, size * bits // 8), np.uint8))
        scales = made.const(rng.uniform(0.01, 0.1, (rows, 3)).astype(f32))
        few = rng.integers(0, 256, (rows, -(-3 * bits // 8)), np.uint8)
        zero = made.const(few if zeros == "few" else rng.uniform(0, 15, (rows, 3)).astype(f32)) if zeros else ""
        given = {"N": rows, "K": depth, "block_size": size, "bits": bits}
        made.output(made.micro("MatMulNBits", made.input([2, 5, depth]), packed, scales, zero, "", bias, **given))
    got, expected, _ = answers(made.save(tmp_path), tmp_path)
    for answer, right in zip(got.values(), expected, strict=True):
        assert_near(answer, right, summed=depth)
