"""Quantized ONNX models: convolutions and products are kernels of integers, and answers those of onnxruntime, its optimizations off."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import model, save, value
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from tvmconv import cli
from tvmconv.errors import SourceError
from tvmconv.frontends.onnx.session import open_session
from tvmconv.network.compile import build
from tvmconv.network.ir.constants import constant
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import fix_shapes, read_onnx
from tvmconv.network.report import report
from tvmconv.runtime.networks.network import load_network
from tvmconv.signature import parse_signature

pytest.importorskip("onnxruntime")
from onnx.backend.test.loader import load_model_tests
from onnxruntime import quantization

from tvmconv.network.read.onnx import compare as compared

NAMES = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8}
# ONNX's tests of nodes, whose inputs but the first are fixed here.
NODES = ["convinteger_with_padding", "convinteger_without_padding", "matmulinteger", "qlinearconv"]
NODES += ["qlinearmatmul_2D_uint8_float32", "qlinearmatmul_2D_int8_float32", "quantizelinear", "quantizelinear_axis"]
NODES += ["dequantizelinear", "dequantizelinear_axis"]


class Chains:
    """Independent chains of nodes, which are one file so that they are compiled together."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._count = 0

    def name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def const(self, array: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(array), self.name()))
        return self.weights[-1].name

    def input(self, shape: list[int], kind: int = TensorProto.FLOAT) -> str:
        self.inputs.append(value(f"x{len(self.inputs)}", shape, kind))
        return self.inputs[-1].name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [self.name()], **attributes))
        return self.nodes[-1].output[0]

    def output(self, name: str, kind: int = TensorProto.FLOAT) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, kind, None))
        return name

    def save(self, folder: Path, opset: int = 21) -> str:
        return save(model(self.nodes, self.inputs, self.outputs, weights=self.weights, opset=opset), folder)


def answers(source: str, folder: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray], list[str]]:
    """Return a network's answers, onnxruntime's, and the signatures of its kernels."""
    arrays, rng = load(source, folder).random_inputs(), np.random.default_rng(2)
    for name, each in arrays.items():
        if each.dtype in NAMES:  # of the whole range
            arrays[name] = rng.integers(
                np.iinfo(each.dtype).min, np.iinfo(each.dtype).max, each.shape, each.dtype, endpoint=True
            )
    got = load(source, folder)(**arrays)
    expected = open_session(fix_shapes(source), "ORT_DISABLE_ALL").run(None, arrays)
    return got, expected, [row.signature for row in report(use_kernels(read_onnx(source)))]


def load(source: str, folder: Path) -> Any:
    path = folder / "network.so"
    if not path.exists():
        build(read_onnx(source), path)
    return load_network(path)


def quantized(chains: Chains, draw: random.Random, tensor: str, scale: float) -> tuple[str, float]:
    """Return a tensor between QuantizeLinear and DequantizeLinear, of a drawn type and zero point."""
    kind = draw.choice((np.uint8, np.int8))
    zero = draw.randint(np.iinfo(kind).min, np.iinfo(kind).max) // 2 + (64 if kind is np.uint8 else 0)
    numbers = chains.const(np.float32(scale)), chains.const(kind(zero))
    return chains.node("DequantizeLinear", chains.node("QuantizeLinear", tensor, *numbers), *numbers), scale


def weights(chains: Chains, draw: random.Random, shape: tuple[int, ...], axis: int) -> tuple[str, np.ndarray]:
    """Return a dequantized filter of a drawn type, with one scale or one for each output, and those."""
    rng = np.random.default_rng(draw.randrange(1 << 30))
    kind = draw.choice((np.int8, np.int8, np.uint8))
    bounds = np.iinfo(kind)
    channels = shape[axis] if draw.random() < 0.6 else 1
    scale = rng.uniform(0.002, 0.01, channels).astype(np.float32)
    zero = np.zeros(channels, kind) if kind is np.int8 else rng.integers(90, 160, channels).astype(kind)
    array = rng.integers(bounds.min, bounds.max, shape, kind, endpoint=True)
    given = (scale, zero) if channels > 1 else (scale.reshape(()), zero.reshape(()))
    return chains.node("DequantizeLinear", *map(chains.const, (array, *given)), axis=axis), scale


def bias(chains: Chains, draw: random.Random, factor: np.ndarray, outputs: int) -> list[str]:
    """Return a bias of integers, of f32, or none."""
    rng = np.random.default_rng(draw.randrange(1 << 30))
    which = draw.randrange(3)
    if which == 0:
        return []
    if which == 1:
        return [chains.const(rng.standard_normal(outputs).astype(np.float32))]
    zero = chains.const(np.zeros(factor.shape, np.int32))
    return [
        chains.node(
            "DequantizeLinear",
            chains.const(rng.integers(-5000, 5000, outputs, np.int32)),
            chains.const(factor),
            zero,
            axis=0,
        )
    ]


def drawn(seed: int) -> tuple[Chains, list[float]]:
    """Return convolutions and products between quantizers, and the step of each answer."""
    draw, chains, steps = random.Random(seed), Chains(), []
    for kind in ("Conv", "Conv", "Depthwise", "ConvTranspose", "Gemm", "MatMul", "Sum"):
        inputs, outputs = draw.choice((3, 8, 20)), draw.choice((5, 16, 24))
        outputs, groups = (inputs, inputs) if kind == "Depthwise" else (outputs, 1)
        if kind in ("Gemm", "MatMul"):
            data = chains.input([7, 40])
            transposed = kind == "Gemm" and draw.random() < 0.5
            data, scale = quantized(chains, draw, data, 0.03)
            filter_, scales = weights(
                chains, draw, (outputs, 40) if transposed else (40, outputs), 0 if transposed else 1
            )
            added = bias(chains, draw, scales * np.float32(scale), outputs) if kind == "Gemm" else []
            made = chains.node(kind, data, filter_, *added, **({"transB": 1} if transposed else {}))
        else:
            pads = [draw.randint(0, 2) for _ in range(4)]
            data, scale = quantized(chains, draw, chains.input([1, inputs, 9, 8]), 0.03)
            taps = (draw.randint(1, 3), draw.randint(2, 3))
            shape = (inputs, outputs, *taps) if kind == "ConvTranspose" else (outputs, inputs // groups, *taps)
            filter_, scales = weights(chains, draw, shape, 1 if kind == "ConvTranspose" else 0)
            added = bias(chains, draw, scales * np.float32(scale), outputs)
            strides = [draw.randint(1, 2)] * 2
            name = kind if kind == "ConvTranspose" else "Conv"
            pads = [0] * 4 if kind == "ConvTranspose" else pads
            made = chains.node(name, data, filter_, *added, pads=pads, strides=strides, group=groups)
            if draw.random() < 0.5:
                made = chains.node(draw.choice(("Relu", "HardSwish")), made)
            if kind == "Sum":
                other, step = quantized(chains, draw, made, 0.06)
                other = chains.node("Add", other, quantized(chains, draw, chains.node("Relu", other), 0.05)[0])
                made = chains.node("MaxPool", other, kernel_shape=[2, 2])
        made, step = quantized(chains, draw, made, draw.uniform(0.02, 0.08))
        chains.output(made)
        # Where both terms of a sum are rounded before, each by another step.
        steps.append(max(step, 0.1) if kind == "Sum" else step)
    return chains, steps


@pytest.mark.parametrize("seed", range(3))
def test_what_lies_between_quantizers_is_computed_in_integers(seed: int, tmp_path: Path) -> None:
    chains, steps = drawn(seed)
    source = chains.save(tmp_path)
    got, expected, signatures = answers(source, tmp_path)
    # Beside some products by u8 is the sum of their data.
    assert len(signatures) >= 7 and all(parse_signature(each).is_quantized for each in signatures), signatures
    for answer, right, step in zip(got.values(), expected, steps, strict=True):
        apart = np.abs(answer - right) / step
        assert apart.max() < 2.01 and (apart > 0.5).mean() < 0.01, (seed, apart.max(), (apart > 0.5).mean())
    assert compared.differences(fix_shapes(source), load(source, tmp_path)) == []


def test_operators_on_integers_have_the_bits_of_onnxruntime(tmp_path: Path) -> None:
    """QLinearConv and QLinearMatMul by filters of 7 bits, which no CPU saturates, with and without bias, of one scale and several."""
    chains, rng = Chains(), np.random.default_rng(1)
    for number, (kind, scales, filters) in enumerate(
        (a, b, c) for a in (np.uint8, np.int8) for b in (1, 12) for c in (np.int8, np.uint8)
    ):
        if kind is np.int8 and filters is np.uint8:
            continue
        x = chains.input([1, 6, 9, 9], NAMES[np.dtype(kind)])
        zeros = chains.const(kind(5 + number)), chains.const(np.full(scales, 0 if filters is np.int8 else 70, filters))
        numbers = chains.const(np.float32(0.02)), chains.const(rng.uniform(0.005, 0.01, scales).astype(np.float32))
        w = chains.const(
            rng.integers(-64, 63, (12, 6, 3, 3)).astype(np.int8)
            if filters is np.int8
            else rng.integers(0, 127, (12, 6, 3, 3)).astype(np.uint8)
        )
        output = chains.const(np.float32(0.03)), chains.const(kind(7))
        added = [chains.const(rng.integers(-3000, 3000, 12, np.int32))] if number % 2 else []
        made = chains.node(
            "QLinearConv", x, numbers[0], zeros[0], w, numbers[1], zeros[1], *output, *added, pads=[1, 0, 2, 1]
        )
        chains.output(made, NAMES[np.dtype(kind)])
    x, w = chains.input([5, 33], TensorProto.UINT8), chains.const(rng.integers(-64, 63, (33, 9)).astype(np.int8))
    zero = chains.const(np.uint8(9))
    numbers = chains.const(np.float32(0.02)), chains.const(np.float32(0.007)), chains.const(np.float32(0.03))
    chains.output(
        chains.node("QLinearMatMul", x, numbers[0], zero, w, numbers[1], chains.const(np.int8(0)), numbers[2], zero),
        TensorProto.UINT8,
    )
    chains.output(chains.node("MatMulInteger", x, w, zero), TensorProto.INT32)
    source = chains.save(tmp_path, opset=19)
    got, expected, signatures = answers(source, tmp_path)
    assert all(parse_signature(each).is_quantized for each in signatures) and len(signatures) == len(chains.outputs)
    for answer, right in zip(got.values(), expected, strict=True):
        np.testing.assert_array_equal(answer, right)
        assert np.unique(answer).size > 10


def test_onnx_tests_of_nodes_pass(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how ONNX computes the data of its other tests
        cases = {case.name.removeprefix("test_"): case for case in load_model_tests(kind="node")}
    chains, feeds, expected = Chains(), {}, []
    for name in NODES:
        graph, ((arrays, (answer,)),) = cases[name].model.graph, cases[name].data_sets
        (node,) = graph.node
        given = dict(zip((each.name for each in graph.input), arrays, strict=True))
        first = chains.input(list(arrays[0].shape), helper.np_dtype_to_tensor_dtype(arrays[0].dtype))
        feeds[first] = arrays[0]
        names = [first if each == graph.input[0].name else each and chains.const(given[each]) for each in node.input]
        made = chains.node(
            node.op_type, *names, **{each.name: helper.get_attribute_value(each) for each in node.attribute}
        )
        chains.output(made, helper.np_dtype_to_tensor_dtype(answer.dtype))
        expected.append(answer)
    source = chains.save(tmp_path)
    got = load(source, tmp_path)(**feeds)
    for name, answer, right in zip(NODES, got.values(), expected, strict=True):
        np.testing.assert_array_equal(answer, right, err_msg=name)


def test_what_is_no_scale_or_not_fixed_is_named(tmp_path: Path) -> None:
    for scale, w_fixed, message in (
        (0.0, True, "has a scale of 0.0 in .*: scales are positive and finite"),
        (0.1, False, "needs one constant zero point"),
    ):
        chains = Chains()
        x, zero, one = (
            chains.input([1, 2, 4, 4], TensorProto.UINT8),
            chains.const(np.uint8(3)),
            chains.const(np.float32(0.1)),
        )
        w = chains.const(np.ones((2, 2, 1, 1), np.uint8)) if w_fixed else chains.input([2, 2, 1, 1], TensorProto.UINT8)
        made = chains.node("QLinearConv", x, chains.const(np.float32(scale)), zero, w, one, zero, one, zero)
        source = chains.output(made, TensorProto.UINT8) and chains.save(tmp_path, opset=19)
        with pytest.raises(SourceError, match=message):
            read_onnx(source)


def test_scales_that_are_computed_are_checked(tmp_path: Path) -> None:
    chains = Chains()
    half, zero = chains.const(np.float16(0)), chains.const(np.uint8(3))
    for node in (("Cast", half), ("Identity", chains.const(np.float32(0)))):
        scale = chains.node(*node, **({"to": TensorProto.FLOAT} if node[0] == "Cast" else {}))
        chains.output(chains.node("QuantizeLinear", chains.input([2, 2]), scale, zero), TensorProto.UINT8)
        with pytest.raises(SourceError, match=r"has a scale of 0\.0 in .*: scales are positive and finite"):
            read_onnx(chains.save(tmp_path))


def test_weights_in_f32_stay_so_between_quantizers(tmp_path: Path) -> None:
    chains, rng = Chains(), np.random.default_rng(7)
    scale, zero = chains.const(np.float32(0.02)), chains.const(np.int8(3))

    def quantized(name: str) -> str:
        return chains.node("DequantizeLinear", chains.node("QuantizeLinear", name, scale, zero), scale, zero)

    filter_ = chains.const(rng.standard_normal((4, 3, 3, 3)).astype(np.float32))
    bias = chains.const(rng.standard_normal(4).astype(np.float32))
    chains.output(quantized(chains.node("Conv", quantized(chains.input([1, 3, 6, 6])), filter_, bias)))
    rows = report(use_kernels(read_onnx(chains.save(tmp_path))))
    assert [parse_signature(row.signature).dtype for row in rows] == ["f32"]


def test_sums_that_may_pass_32_bits_are_refused_or_in_f32(tmp_path: Path) -> None:
    chains, zero = Chains(), np.int8(0)
    x, w = chains.input([1, 70_000], TensorProto.UINT8), chains.const(np.full((70_000, 1), 127, np.int8))
    numbers = [chains.const(each) for each in (np.float32(0.1), np.uint8(0), np.float32(0.1), zero)]
    parts = [chains.node("DequantizeLinear", x, *numbers[:2]), chains.node("DequantizeLinear", w, *numbers[2:])]
    chains.output(chains.node("MatMul", *parts))
    function = read_onnx(chains.save(tmp_path))["main"]
    assert "matmul" in str(function) and "int32" not in str(function)
    made = chains.node("QLinearMatMul", x, *numbers[:2], w, *numbers[2:], *numbers[:2])
    source = chains.output(made, TensorProto.UINT8) and chains.save(tmp_path)
    with pytest.raises(SourceError, match=f"the QLinearMatMul node .*{made}.*sums that fit in 32 bits"):
        read_onnx(source)


def _quantize(folder: Path, written: Any, **options: Any) -> str:
    """Return a file of onnxruntime's static quantizer, of a network with a sum, pools and a product, on random data."""
    rng = np.random.default_rng(3)
    chains = Chains()
    shapes = {
        "stem": (16, 3, 3, 3),
        "depth": (16, 1, 3, 3),
        "point": (24, 16, 1, 1),
        "wide": (24, 24, 3, 3),
        "last": (10, 24),
    }
    w = {
        name: chains.const((rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32))
        for name, shape in shapes.items()
    }
    b = {name: chains.const(rng.standard_normal(shape[0]).astype(np.float32) / 4) for name, shape in shapes.items()}
    x = chains.node(
        "Relu", chains.node("Conv", chains.input([1, 3, 16, 16]), w["stem"], b["stem"], pads=[1] * 4, strides=[2, 2])
    )
    x = chains.node("Relu", chains.node("Conv", x, w["depth"], b["depth"], pads=[1] * 4, group=16))
    x = chains.node("Conv", x, w["point"], b["point"])
    x = chains.node("Relu", chains.node("Add", chains.node("Conv", x, w["wide"], b["wide"], pads=[1] * 4), x))
    x = chains.node("Concat", x, chains.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), axis=3)
    x = chains.node("Flatten", chains.node("GlobalAveragePool", x))
    chains.outputs.append(value(chains.node("Gemm", x, w["last"], b["last"], transB=1), [1, 10]))
    plain = chains.save(folder, opset=17)

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [{"x0": rng.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]

        def get_next(self) -> dict[str, Any] | None:
            return self.left.pop() if self.left else None

    quantization.quantize_static(plain, str(folder / "int8.onnx"), Reader(), quant_format=written, **options)
    return str(folder / "int8.onnx")


@pytest.mark.parametrize("written", ["QDQ", "QOperator"])
def test_what_onnxruntime_quantizes_is_compiled(
    written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `tvmconv compile`, whose comparison holds: its exit code is 0."""
    kinds = quantization.QuantType
    options = {"per_channel": True, "activation_type": kinds.QUInt8, "weight_type": kinds.QInt8}
    if written == "QOperator":
        options = {"per_channel": False, "activation_type": kinds.QUInt8, "weight_type": kinds.QUInt8}
    source = _quantize(tmp_path, quantization.QuantFormat[written], **options)
    assert cli.main(["compile", source, "-o", str(tmp_path / "network.so")]) == 0
    count = 5 if written == "QDQ" else 6  # beside a product by u8, the sum of its data
    assert f"{count} of {count} convolutions and products run as tvmconv kernels" in capsys.readouterr().err
    got, expected, signatures = answers(source, tmp_path)
    assert all(parse_signature(each).is_quantized for each in signatures) and len(signatures) == count
    (answer,), (right,) = got.values(), expected
    step = np.diff(np.unique(right)).min()
    assert np.abs(answer - right).max() < 2.01 * step


def test_zero_points_may_be_computed(tmp_path: Path) -> None:
    """ConvInteger and MatMulInteger as `quantize_dynamic` writes them, with and without padding."""
    chains, rng = Chains(), np.random.default_rng(4)
    for kind, shape, taps, given in (
        ("ConvInteger", [1, 4, 6, 5], (4, 2, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1], "group": 2}),
        ("ConvInteger", [1, 4, 6, 5], (4, 4, 1, 1), {}),
        ("MatMulInteger", [3, 8], (8, 4), {}),
    ):
        x, w = chains.input(shape), chains.const(rng.integers(0, 256, taps, np.uint8))
        chains.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], [f"{x}.{part}" for part in "yzs"]))
        made = chains.node(kind, f"{x}.y", w, f"{x}.s", chains.const(np.uint8(130)), **given)
        chains.output(made, TensorProto.INT32)
    got, expected, signatures = answers(chains.save(tmp_path), tmp_path)
    assert len(signatures) == 3 and all(parse_signature(each).is_quantized for each in signatures)
    for answer, right in zip(got.values(), expected, strict=True):
        np.testing.assert_array_equal(answer, right)


def test_padding_by_a_computed_zero_point_is_no_image(tmp_path: Path) -> None:
    """Sums at the edges lack some taps, as a few kinds of rows and columns do, whatever the image's size."""
    chains = Chains()
    x, w = chains.input([1, 2, 40, 50]), chains.const(np.random.default_rng(5).integers(-9, 9, (3, 2, 3, 3), np.int8))
    chains.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], [f"{x}.{part}" for part in "yzs"]))
    chains.output(chains.node("ConvInteger", f"{x}.y", w, f"{x}.s", pads=[2] * 4, dilations=[2, 2]), TensorProto.INT32)
    source = chains.save(tmp_path)
    sizes = []

    def count(expr: relax.Expr) -> None:
        array = constant(expr)
        if array is not None:
            sizes.append(array.size)

    relax.analysis.post_order_visit(read_onnx(source)["main"], count)
    assert max(sizes) == 3 * 2 * 9  # of the filter
    got, expected, _ = answers(source, tmp_path)
    np.testing.assert_array_equal(*got.values(), *expected)
