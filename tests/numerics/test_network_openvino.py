"""Networks of OpenVINO IR: `tvmconv compile model.xml` beside OpenVINO's own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openvino")
pytest.importorskip("onnxruntime")
pytest.importorskip("tvm")

import openvino
from near import assert_near
from openvino import opset13
from openvino_layers import GROUPS_OF_LAYERS
from openvino_models import answers_of, constant, convolution, inputs_of, ints, weights, write_layers

from tvmconv import cli
from tvmconv.errors import LackingOperatorsError, SourceError
from tvmconv.frontends.onnx.session import open_session
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.check_quantized import check_quantized
from tvmconv.network.read.onnx.reader import as_relax
from tvmconv.network.read.openvino.reader import read_ir
from tvmconv.runtime.networks.network import load_network


def save(outputs: Any, inputs: list[Any], folder: Path, compress: bool = False) -> str:
    path = folder / "model.xml"
    openvino.save_model(openvino.Model(outputs, inputs, "network"), path, compress_to_fp16=compress)
    return str(path)


def compile_ir(source: str, folder: Path, *options: str) -> Any:
    library = folder / "network.so"
    assert cli.main(["compile", source, "-o", str(library), "--require-comparison", *options]) == 0
    return load_network(library)


def small(folder: Path, batch: int = -1, size: int = -1, compress: bool = False) -> str:
    """Write a network of convolutions, a pool and a product, of free extents, and a residual that is named."""
    x = opset13.parameter([batch, 4, size, size], np.float32, name="image")
    first = opset13.relu(convolution(6, 4, 3, 3, pads_begin=[1, 1], pads_end=[1, 1])(x))
    first.set_friendly_name("first")
    second = opset13.add(convolution(3, 2, 2, 3, 3, op="group_convolution", auto_pad="same_upper")(first), first)
    mean = opset13.reduce_mean(second, ints(2, 3), False)
    mean.output(0).get_tensor().set_names({"mean"})
    last = opset13.matmul(mean, weights(5, 6), False, True)
    last.output(0).get_tensor().set_names({"scores"})
    return save([last], [x], folder, compress)


def test_commands_compile_an_ir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = small(tmp_path, compress=True)
    network = compile_ir(source, tmp_path, "--shape", "image=2x4x9x8", "--cut", "scores", "--cut", "first")
    assert [(each.name, each.shape) for each in network.inputs] == [("image", (2, 4, 9, 8))]
    assert [each.name for each in network.outputs] == ["scores", "first"]
    assert all(not row["why"] for row in network.description["report"])
    image = np.random.default_rng(0).standard_normal((2, 4, 9, 8)).astype(np.float32)
    (right,) = answers_of(source, {"image": image})
    assert_near(network(image=image)["scores"], right, summed=54, layers=3)
    network = compile_ir(source, tmp_path, "--shape", "image=1x4x9x8")
    run = ["run", str(tmp_path / "network.so"), "--bench", "--seconds", "0.05", "--against", source]
    assert cli.main(run) == 0 and "openvino" in capsys.readouterr().out


def test_shapes_and_outputs_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = small(tmp_path)
    command = ["compile", source, "-o", str(tmp_path / "network.so")]
    for options, said in (
        ([], "The model leaves free: image[0], image[2], image[3]"),
        (["--shape", "image=1x5x8x8"], "which the model fixes: image (?x4x?x?)"),
        (["--shape", "image=1x4x8x8", "--cut", "firs"], "no node gives a tensor 'firs', but 'first'"),
    ):
        assert cli.main(command + options) == 2
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_extents_that_calls_give(tmp_path: Path) -> None:
    network = compile_ir(small(tmp_path), tmp_path, "--shape", "?x4x?x?")
    for batch, height, width in ((1, 5, 7), (3, 8, 6)):
        image = np.random.default_rng(height).standard_normal((batch, 4, height, width)).astype(np.float32)
        (right,) = answers_of(str(tmp_path / "model.xml"), {"image": image})
        assert_near(network(image=image)["scores"], right, summed=54, layers=3)


def test_what_is_lacking_is_named(tmp_path: Path) -> None:
    x = opset13.parameter([2, 3], np.float32, name="x")
    places = opset13.non_zero(x)
    places.set_friendly_name("places")
    with pytest.raises(
        LackingOperatorsError, match=r"networks do not support OpenVINO's NonZero \('places'\); cut the network before"
    ):
        read_ir(save([places], [x], tmp_path))
    shifted = opset13.pad(
        x,
        opset13.convert(opset13.gather(opset13.reduce_max(x, ints(0), False), ints(0, 1), ints(0)), np.int64),
        ints(0, 0),
        "edge",
    )
    shifted.set_friendly_name("shifted")
    with pytest.raises(SourceError, match=r"the Pad layer 'shifted' takes .*, which is not fixed"):
        read_ir(save([shifted], [x], tmp_path))


def test_names_of_models_from_onnx(tmp_path: Path) -> None:
    """A product and the sum after it are of one ONNX node, and an input has the name of what is folded into it."""
    x = opset13.parameter([2, 3], np.float32, name="x")
    x.output(0).get_tensor().set_names({"dropped", "x"})
    product = opset13.matmul(x, weights(3, 4), False, False)
    total = opset13.add(product, weights(4))
    product.set_friendly_name("gemm/WithoutBiases")
    total.set_friendly_name("gemm")
    model = read_ir(save([total], [x], tmp_path)).onnx
    assert [each.name for each in model.graph.input] == ["x"]
    assert [each.name for each in model.graph.node] == ["gemm", "gemm/Add"]


def integers_of(*shape: int, low: int = -127) -> Any:
    return np.random.default_rng(sum(shape)).integers(low, 128, shape)


def fake(data: Any, low: Any, high: Any, levels: int = 256) -> Any:
    bounds = constant(low), constant(high)
    return opset13.fake_quantize(data, *bounds, *bounds, levels)


@pytest.mark.parametrize("weights_by", ["convert", pytest.param("fake quantize", marks=pytest.mark.slow)])
def test_quantized_models_are_in_integers(weights_by: str, tmp_path: Path) -> None:
    """Compare quantizer by quantizer: convolutions, one of groups, and a product, as NNCF writes their weights."""
    x = opset13.parameter([1, 4, 8, 8], np.float32, name="x")

    def kept(*shape: int, zero: bool = False) -> Any:
        scales = np.random.default_rng(len(shape)).uniform(0.002, 0.01, (shape[0], *[1] * (len(shape) - 1)))
        if weights_by == "fake quantize":
            return fake(weights(*shape), -128 * scales, 127 * scales)
        numbers = opset13.convert(
            constant(integers_of(*shape, low=0 if zero else -127), np.uint8 if zero else np.int8), np.float32
        )
        if zero:
            numbers = opset13.subtract(
                numbers, opset13.convert(constant(np.full((1,) * len(shape), 7), np.uint8), np.float32)
            )
        return opset13.multiply(numbers, constant(scales))

    def convolve(data: Any, filter_: Any, kind: Any = opset13.convolution) -> Any:
        return kind(data, filter_, [1, 1], [1, 1], [1, 1], [1, 1])

    first = fake(opset13.relu(convolve(fake(x, -4, 4 * 127 / 128), kept(8, 4, 3, 3))), 0, 12)
    second = fake(convolve(first, kept(8, 1, 1, 3, 3), opset13.group_convolution), -9, 9 * 127 / 128)
    rows = opset13.reshape(second, ints(0, -1), True)
    last = opset13.matmul(rows, kept(3, 512, zero=True), False, True)
    network = compile_ir(save([last], [x], tmp_path), tmp_path)
    rows_of = [row["signature"] for row in network.description["report"]]
    assert len(rows_of) == 3 and all("-u8" in each for each in rows_of), rows_of


@pytest.mark.parametrize("wrong", [0.0, np.nan])
def test_scales_of_weights_that_are_none_are_named(wrong: float, tmp_path: Path) -> None:
    x = opset13.parameter([1, 3, 4, 4], np.float32, name="x")
    weight = opset13.multiply(opset13.convert(constant(integers_of(2, 3, 1, 1), np.int8), np.float32), constant(wrong))
    made = opset13.convolution(fake(x, -1, 1), weight, [1, 1], [0, 0], [0, 0], [1, 1])
    made.set_friendly_name("wrong")
    path = save([made], [x], tmp_path)
    with pytest.raises(
        SourceError, match=rf"'wrong' has a (weight )?scale of {wrong}.*: scales are positive and finite"
    ):
        as_relax(read_ir(path).onnx, path)


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "nf4", "f4e2m1", "f8e4m3"])
def test_compressed_weights_are_computed(dtype: str, tmp_path: Path) -> None:
    """Compare weights with a scale for each group of a row, or of any sign for each row, as NNCF compresses them."""
    y = opset13.parameter([3, 16], np.float32, name="y")
    low, high = {"i4": (-8, 8), "u4": (0, 16), "i8": (-128, 128)}.get(dtype, (-1, 2))
    numbers = np.random.default_rng(0).integers(low, high, (5, 4, 4))
    kind = np.float32 if "f" in dtype else np.int8 if low else np.uint8
    whole = opset13.constant(numbers.astype(kind), dtype=getattr(openvino.Type, dtype))
    halves = opset13.convert(whole, np.float16)
    if dtype == "u4":
        zero = opset13.constant(np.full((5, 4, 1), 7, np.uint8), dtype=openvino.Type.u4)
        halves = opset13.subtract(halves, opset13.convert(zero, np.float16))
    scales = np.random.default_rng(1).uniform(0.1, 1, (5, 4, 1))
    if dtype == "i8":
        scales = scales[:, :1] * np.array([1, -1, 1, 1, -1]).reshape(5, 1, 1)
    scaled = opset13.multiply(halves, constant(scales, np.float16))
    filter_ = opset13.convert(opset13.reshape(scaled, ints(5, 16), False), np.float32)
    source = save([opset13.matmul(y, filter_, False, True)], [y], tmp_path)
    array = np.random.default_rng(2).standard_normal((3, 16)).astype(np.float32)
    (right,) = answers_of(source, {"y": array})
    model = read_ir(source).onnx
    check_quantized(model, source)
    session = open_session(model, "ORT_DISABLE_ALL")
    assert_near(session.run(None, {"y": array})[0], right, summed=16, dtype="float16")


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS_OF_LAYERS)
def test_layers_answer_as_openvino(group: str, tmp_path: Path) -> None:
    source, arrays = write_layers(GROUPS_OF_LAYERS[group], tmp_path), inputs_of()
    build(as_relax(read_ir(source).onnx, source), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    found = network(**{each.name: arrays[each.name] for each in network.inputs})
    for (name, answer), right in zip(found.items(), answers_of(source, arrays), strict=True):
        assert (answer.shape, answer.dtype) == (right.shape, right.dtype), name
        if answer.dtype.kind == "f":
            print(name)
            assert_near(answer, right, summed=256, layers=4)
        else:
            np.testing.assert_array_equal(answer, right, name)
