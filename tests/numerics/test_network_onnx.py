"""What TVM's ONNX frontend reads wrongly is written otherwise or refused, and answers are compared with onnxruntime's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import FLOAT, conv_model, model, save, value
from onnx import helper, numpy_helper

from tvmconv import cli
from tvmconv.accuracy import network_error
from tvmconv.errors import SourceError
from tvmconv.frontends.shapes import Bucket
from tvmconv.network.compile import build
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import fix_shapes, read_onnx
from tvmconv.network.report import report
from tvmconv.runtime.networks.network import Network, load_network

pytest.importorskip("onnxruntime")
from tvmconv.network.read.onnx import compare as compared

RNG = np.random.default_rng(0)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)


def numbers(name: str, *values: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.float32), name)


def loaded(source: str, folder: Path) -> Network:
    """Return the network of an ONNX file."""
    build(read_onnx(source), folder / "network.so")
    return load_network(folder / "network.so")


def test_what_the_frontend_reads_wrongly_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("LayerNormalization", ["c", "scale", "shift"], ["l"], axis=1),
        node("GroupNormalization", ["l", "gamma", "beta"], ["g"], num_groups=2),
        node("Resize", ["g", "", "scales"], ["r"], axes=[3, 2], mode="linear"),
        node("Dropout", ["r"], ["y"]),
    ]
    weights = [
        weight("w", 8, 3, 3, 3), weight("scale", 8, 6, 8), weight("shift", 8, 6, 8), weight("gamma", 8), weight("beta", 8),
        numbers("scales", 0.5, 3),
    ]  # fmt: skip
    source = save(model(nodes, [value("x", [1, 3, 8, 10])], weights=weights, opset=21), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(mode: str, tmp_path: Path) -> None:
    node = helper.make_node("Upsample", ["x", "scales"], ["y"], mode=mode)
    source = save(model([node], [value("x", [1, 3, 5, 7])], weights=[numbers("scales", 1, 1, 2, 3)], opset=9), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


@pytest.mark.parametrize(
    ("mode", "transformation", "scales"),
    [
        ("linear", "half_pixel", (1.5, 0.55)),
        ("linear", "half_pixel_symmetric", (1.3, 1.7)),
        ("linear", "pytorch_half_pixel", (0.6, 1.5)),
        ("linear", "align_corners", (1.5, 0.7)),
        ("nearest", "asymmetric", (1.5, 0.7)),
        ("nearest", "half_pixel", (1.3, 2)),
        ("cubic", "half_pixel", (1.5, 0.6)),
        ("cubic", "asymmetric", (0.7, 2.3)),
    ],
)
def test_resize_by_a_scale_that_makes_no_whole_size(
    mode: str, transformation: str, scales: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Resize", ["c", "", "scales"], ["r"], mode=mode, coordinate_transformation_mode=transformation),
        node("Conv", ["r", "v"], ["y"]),
    ]
    weights = [weight("w", 8, 3, 3, 3), weight("v", 4, 8, 1, 1), numbers("scales", 1, 1, *scales)]
    source = save(model(nodes, [value("x", [1, 3, 9, 12])], weights=weights, opset=19), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


def test_a_resize_by_gathers_is_one_operator_and_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    source = save(
        model([node], [value("x", [1, 4, 5, 7])], weights=[numbers("scales", 1, 1, 1.3, 1.5)], opset=13), tmp_path
    )
    network = loaded(source, tmp_path)
    assert capfd.readouterr().err == ""
    operators = [each.name for each in network.operators(network.random_inputs(), 0.01)]
    assert len([name for name in operators if not name.startswith("vm.")]) == 1, operators


def test_gathers_by_indices_that_are_data(tmp_path: Path) -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=1)
    source = save(
        model([node], [value("x", [1, 4, 5]), value("i", [3], onnx.TensorProto.INT64)], weights=[], opset=13), tmp_path
    )
    network = loaded(source, tmp_path)
    data = RNG.standard_normal((1, 4, 5)).astype(np.float32)
    (found,) = network(x=data, i=np.array([3, -1, -4])).values()
    assert np.array_equal(found, data[:, [3, 3, 0]])
    with pytest.raises(IndexError, match="index 4 is out of range of an axis of extent 4"):
        network(x=data, i=np.array([4, 2**40, -(2**40)]))


def test_resized_channels_and_an_exponent_that_is_an_integer(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [node("Resize", ["x", "", "scales"], ["r"], mode="nearest"), node("Pow", ["r", "two"], ["y"])]
    weights = [numbers("scales", 1, 2, 1, 3), numpy_helper.from_array(np.array([2]), "two")]
    source = save(model(nodes, [value("x", [1, 3, 5, 7])], weights=weights, opset=13), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


@pytest.mark.parametrize(
    ("op", "shape", "opset", "attributes"),
    [
        ("Resize", (1, 3, 7), 13, {"mode": "linear"}),
        ("Resize", (1, 3, 5, 7, 4), 13, {"mode": "linear"}),
        ("Resize", (1, 3, 5, 7), 10, {"mode": "linear"}),
        ("Resize", (1, 3, 5, 7), 19, {"mode": "linear", "antialias": 1}),
        ("Resize", (1, 3, 5, 7), 19, {"mode": "cubic", "exclude_outside": 1}),
        ("Resize", (1, 3, 5, 7), 13, {"mode": "nearest", "nearest_mode": "ceil"}),
        ("Upsample", (1, 3, 5, 7), 9, {"mode": "linear"}),
        ("Upsample", (1, 3, 5, 7), 7, {"scales": [1.0, 1.0, 1.5, 1.3]}),
    ],
)
def test_forms_of_resize(
    op: str, shape: tuple[int, ...], opset: int, attributes: dict[str, Any], tmp_path: Path
) -> None:
    inputs = ["x"] if "scales" in attributes else ["x", "scales"] if opset < 11 else ["x", "", "scales"]
    node = helper.make_node(op, inputs, ["y"], **attributes)
    weights = [numbers("scales", *(1, 1, 1.5, 1.3, 0.7)[: len(shape)])]
    source = save(model([node], [value("x", shape)], weights=weights[: len(inputs) - 1], opset=opset), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


def test_a_resize_that_the_frontend_computes_as_another_is_refused(tmp_path: Path) -> None:
    kind = onnx.TensorProto.UINT8
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], "up", mode="linear")
    inputs, scales = [value("x", [1, 3, 7, 7], kind)], [numbers("scales", 1, 1, 1.5, 1.5)]
    source = save(model([node], inputs, [value("y", None, kind)], scales, opset=19), tmp_path)
    with pytest.raises(SourceError, match=r"the Resize node 'up' interpolates between integers, .* tvmconv build"):
        read_onnx(source)


@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_regions(transformation: str, tmp_path: Path) -> None:
    attributes = {"output_height": 2, "output_width": 3, "coordinate_transformation_mode": transformation}
    node = helper.make_node("RoiAlign", ["x", "regions", "images"], ["y"], "roi", spatial_scale=0.5, **attributes)
    regions = numpy_helper.from_array(np.array([[0.5, 1, 5, 4.5], [1, 0, 7, 6]], np.float32), "regions")
    weights = [regions, numpy_helper.from_array(np.array([0, 0]), "images")]
    source = save(model([node], [value("x", [1, 3, 8, 8])], weights=weights, opset=16), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []
    node.attribute.append(helper.make_attribute("mode", "max"))
    with pytest.raises(SourceError, match="the RoiAlign node 'roi' takes the maximum of weighted elements"):
        read_onnx(save(model([node], [value("x", [1, 3, 8, 8])], weights=weights, opset=16), tmp_path))


def test_a_quantized_filter_is_prepacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        node("DequantizeLinear", ["v", "scales", "zeros"], ["w"], axis=0),
        node("Conv", ["d", "w"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(RNG.integers(-9, 9, (4, 3, 3, 3)).astype(np.int8), "v"),
        numbers("scale", 0.02), numbers("scales", 0.1, 0.2, 0.3, 0.4),
        numpy_helper.from_array(np.int8([3]), "zero"), numpy_helper.from_array(np.zeros(4, np.int8), "zeros"),
    ]  # fmt: skip
    weights[1].ClearField("dims")
    weights[3].ClearField("dims")
    source = save(model(nodes, [value("x", [1, 3, 8, 8])], weights=weights), tmp_path)
    (row,) = report(use_kernels(read_onnx(source)))
    assert row.why == ""
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


@pytest.mark.parametrize("axis", [1, 3])
def test_a_sum_of_exponentials(axis: int, tmp_path: Path) -> None:
    node = helper.make_node("ReduceLogSumExp", ["x"], ["y"], axes=[axis])
    source = save(model([node], [value("x", [1, 3, 8, 8])], opset=13), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


def test_a_resize_with_empty_scales(tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x", "scales", "scales", "sizes"], ["y"], mode="linear")
    weights = [numbers("scales"), numpy_helper.from_array(np.array([1, 3, 9, 4]), "sizes")]
    source = save(model([node], [value("x", [1, 3, 7, 7])], weights=weights, opset=11), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2, 3), (2, 0.5)])
def test_resize_of_opset_10(mode: str, scales: tuple[float, float], tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x", "scales"], ["y"], mode=mode)
    weights = [numbers("scales", 1, 1, *scales)]
    source = save(model([node], [value("x", [1, 3, 6, 8])], weights=weights, opset=10), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


@pytest.mark.parametrize("axes", [{"axes": [2, 3]}, {}])
def test_slice_of_opset_9(axes: dict[str, Any], tmp_path: Path) -> None:
    node = helper.make_node("Slice", ["x"], ["y"], starts=[1, 0], ends=[9, -1], **axes)
    source = save(model([node], [value("x", [2, 3, 6, 8])], opset=9), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []


def test_an_extent_of_0(tmp_path: Path) -> None:
    source = save(model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [None, 3])]), tmp_path)
    with pytest.raises(SourceError, match="x has the shape 0x3; a network is compiled for extents of at least 1"):
        read_onnx(source, Bucket(batch=0))


def test_a_filter_larger_than_its_data(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "large", dilations=[1, 4])
    source = save(model([node], [value("x", [1, 3, 7, 7])], weights=[weight("w", 4, 3, 3, 3)]), tmp_path)
    with pytest.raises(SourceError, match="the Conv node 'large' has a filter that spans 9 elements of 7") as caught:
        read_onnx(source)
    assert "tvmconv build" not in str(caught.value)


def test_weights_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"its weights in other files cannot be read: .*weights.bin"):
        read_onnx(save(conv_model(), tmp_path))


def test_what_the_frontend_lacks_is_named(tmp_path: Path) -> None:
    nodes = [helper.make_node("DeformConv", ["x", "w", "offset"], ["y"])]
    inputs = [value("x", [1, 3, 7, 7]), value("offset", [1, 18, 5, 5])]
    proto = model(nodes, inputs, weights=[weight("w", 4, 3, 3, 3)])
    with pytest.raises(SourceError, match=r"lacks DeformConv \(DeformConv: each of its taps reads where another .*\)$"):
        read_onnx(save(proto, tmp_path))


def test_wrong_answers_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Greater", ["x", "y"], ["z"])]
    negated = model(nodes, [value("x", [4, 5])], [value("y", None), value("z", None, onnx.TensorProto.BOOL)])
    source = save(negated, tmp_path)
    network = loaded(source, tmp_path)
    assert compared.differences(negated, network) == []
    nodes[0].op_type = "Abs"
    other = model(nodes, [value("x", [4, 5])], [value("y", None), value("z", None, onnx.TensorProto.BOOL)])
    first, second = compared.differences(other, network)
    assert first.startswith("y by ") and second.startswith("z by ")
    monkeypatch.setattr("tvmconv.accuracy.describe_differences", lambda *_: ["y by 1.4"])
    library = tmp_path / "wrong.so"
    assert cli.main(["compile", source, "-o", str(library)]) == 1
    assert "was written, but on random inputs its outputs differ from onnxruntime's" in capsys.readouterr().err
    assert library.exists()


def test_inputs_that_onnxruntime_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Add", ["i", "five"], ["at"]), helper.make_node("Gather", ["rows", "at"], ["y"])]
    five = helper.make_tensor("five", onnx.TensorProto.INT64, [1], [5])  # out of range with ones, and with zeros
    proto = model(nodes, [value("i", [2], onnx.TensorProto.INT64)], weights=[weight("rows", 4, 4), five])
    assert cli.main(["compile", save(proto, tmp_path), "-o", str(tmp_path / "network.so")]) == 0
    refusal = "its answers were not compared with onnxruntime's: onnxruntime cannot run it on random inputs: "
    said = capsys.readouterr().err.splitlines()[-1]
    assert refusal in said and "nor can ONNX's reference evaluator: " in said
    library = str(tmp_path / "network.so")
    assert cli.main(["compile", "--require-comparison", save(proto, tmp_path), "-o", library]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(", which --require-comparison demands")
    folder = str(tmp_path / "folder")
    assert cli.main(["compile", "--require-comparison", "--format", "c", save(proto, tmp_path), "-o", folder]) == 1
    assert "was written without a test" in capsys.readouterr().err.splitlines()[-1]


def test_a_model_too_large_for_the_evaluator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = onnx.TensorProto.BFLOAT16
    proto = model([helper.make_node("Neg", ["x"], ["y"])], [value("x", [4, 5], kind)], [value("y", None, kind)])
    command = ["compile", "--require-comparison", save(proto, tmp_path), "-o", str(tmp_path / "network.so")]
    assert cli.main(command) == 0
    assert "compared with ONNX's reference evaluator, because onnxruntime cannot run it" in capsys.readouterr().err
    monkeypatch.setattr(compared, "_MOST_WORK", 19)
    assert cli.main(command) == 1
    assert "ONNX's reference evaluator would take too long (2e+01 multiply-adds)" in capsys.readouterr().err


def test_a_function_is_compared_with_the_file_as_it_came(tmp_path: Path) -> None:
    """An inliner that loses a default, as ONNX's own does, shows."""
    text = """<ir_version: 10, opset_import: ["": 18, "my": 1]> graph (float[4] x) => (float[4] y) { y = my.f (x) }
    <domain: "my", opset_import: ["": 18]> f <a: float = 0.3>(x) => (y) { y = LeakyRelu <alpha: float = @a>(x) }"""
    source = save(onnx.parser.parse_model(text), tmp_path)
    made = fix_shapes(source)
    assert compared.differences(made, loaded(source, tmp_path), compared.original_model(source, made)) == []
    del made.graph.node[0].attribute[:]
    onnx.save(made, tmp_path / "lost.onnx")
    network = loaded(str(tmp_path / "lost.onnx"), tmp_path)
    assert compared.differences(made, network) == []
    assert compared.differences(made, network, compared.original_model(source, made))[0].startswith("y by ")


@pytest.mark.parametrize(
    ("answer", "right", "far"),
    [
        ([1, np.nan, np.inf], [1, np.nan, np.inf], 0),
        ([1, np.nan, 2], [1, 3, 2], np.inf),
        ([1, np.inf], [1, -np.inf], np.inf),
        ([1e-9, 0], [0, 1e-9], 1e-5),
        ([3, 4], [3, 3], 1 / 18**0.5),
        ([], [], 0),
    ],
)
def test_how_far_an_output_is(answer: list[float], right: list[float], far: float) -> None:
    assert network_error(np.float32(answer), np.float32(right)) == pytest.approx(far)


@pytest.mark.parametrize("kind", ["NonZero", "Unique"])
def test_a_shape_that_numbers_decide_is_refused(kind: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node(kind, ["r"], ["y"])]
    proto = model(nodes, [value("x", [3, 4])])
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64 if kind == "NonZero" else FLOAT
    refused = f"the {kind} node 'y' has outputs whose size depends on its input's values; .* before that node .--cut r., and compute"
    with pytest.raises(SourceError, match=refused):
        read_onnx(save(proto, tmp_path))


def test_a_model_in_bf16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """onnxruntime has no kernels for it: constants, and the branch that a shape chooses, are computed without it."""
    node, bfloat16 = (
        helper.make_node,
        numpy_helper.to_array(helper.make_tensor("x", onnx.TensorProto.BFLOAT16, [1], [1])).dtype,
    )
    flat = helper.make_graph([node("Reshape", ["p", "shape"], ["flat"])], "flat", [], [value("flat", None)])
    twice = helper.make_graph([node("Add", ["p", "p"], ["twice"])], "twice", [], [value("twice", None)])
    for branch in (flat, twice):
        branch.output[0].type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "b", "b", "b", "variance"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["p"], ["batch"], start=0, end=1),
        node("Concat", ["batch", "rest"], ["shape"], axis=0),
        node("Equal", ["batch", "batch"], ["same"]),
        node("Squeeze", ["same"], ["choice"]),
        node("If", ["choice"], ["rows"], then_branch=flat, else_branch=twice),
        node("MatMul", ["rows", "m"], ["y"]),
    ]
    arrays = {
        "w": RNG.standard_normal((8, 3, 3, 3)), "b": RNG.standard_normal(8), "variance": np.full(8, 0.5),
        "m": RNG.standard_normal((8 * 16, 10)) / 8,
    }  # fmt: skip
    weights = [numpy_helper.from_array(each.astype(bfloat16), name) for name, each in arrays.items()]
    weights.append(numpy_helper.from_array(np.array([-1]), "rest"))
    kind = onnx.TensorProto.BFLOAT16
    made = model(nodes, [value("x", ["batch", 3, 8, 8], kind)], [value("y", None, kind)], weights, opset=22)
    source, library = save(made, tmp_path), str(tmp_path / "network.so")
    assert cli.main(["compile", source, "--batch", "1", "-o", library]) == 0
    out = capsys.readouterr().err
    assert "2 of 2 convolutions and products run as tvmconv kernels" in out
    assert "compared with ONNX's reference evaluator, because onnxruntime cannot run it" in out
    network = load_network(library)
    x = RNG.standard_normal((1, 3, 8, 8)).astype(bfloat16)
    wide = {name: each.astype(bfloat16).astype(np.float64) for name, each in arrays.items()}
    padded, c = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)]), np.zeros((1, 8, 8, 8))
    for i, j in np.ndindex(3, 3):
        c += np.einsum("nchw,oc->nohw", padded[:, :, i : i + 8, j : j + 8], wide["w"][:, :, i, j])
    b = wide["b"].reshape(1, 8, 1, 1)
    pooled = np.maximum(c / np.sqrt(0.5 + 1e-5) * b + b, 0).reshape(1, 8, 4, 2, 4, 2).max((3, 5))
    expected = pooled.reshape(1, -1) @ wide["m"]
    answer = network(x=x)["y"].astype(np.float64)
    assert np.linalg.norm(answer - expected) < 2e-2 * np.linalg.norm(expected)
