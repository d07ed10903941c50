"""Relax modules with our kernels: whole small networks compared with onnxruntime, in a process that has not compiled them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, save, value
from onnx import helper, numpy_helper
from relax_modules import computed
from toys import run_python

from tvmconv import cli
from tvmconv.accuracy import relative_error
from tvmconv.epilogue import format_epilogue
from tvmconv.errors import SourceError
from tvmconv.network.compile import build
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.network.report import report
from tvmconv.runtime.networks.network import load_network
from tvmconv.signature import parse_signature

ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)


def filter_(name: str, *shape: int) -> onnx.TensorProto:
    """Return numbers that keep activations of the order of one."""
    scale = np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 1
    return numpy_helper.from_array((RNG.standard_normal(shape) / scale).astype(np.float32), name)


def number(name: str, *values: float) -> onnx.TensorProto:
    """Return one number, or several, as a constant."""
    return numpy_helper.from_array(np.array(values if len(values) > 1 else values[0], np.float32), name)


def network() -> onnx.ModelProto:
    """Return a network with what real ones have: sums of two convolutions, activations of several nodes, pools, a product."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        # The two ends of a block.
        node("Conv", ["p0", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "gamma", "beta", "mean", "variance"], ["n1"]),
        node("Conv", ["p0", "w2", "b1"], ["c2"]),
        node("Add", ["n1", "c2"], ["a1"]),
        node("Relu", ["a1"], ["r1"]),
        # Depthwise, hardswish as PaddlePaddle writes it, squeeze and excitation.
        node("Conv", ["r1", "w3", "b1"], ["c3"], pads=[1, 1, 1, 1], group=16),
        node("Add", ["c3", "three"], ["h0"]),
        node("Clip", ["h0", "zero", "six"], ["h1"]),
        node("Mul", ["c3", "h1"], ["h2"]),
        node("Div", ["h2", "six"], ["h3"]),
        node("GlobalAveragePool", ["h3"], ["g"]),
        node("Conv", ["g", "w4", "b1"], ["c4"]),
        node("HardSigmoid", ["c4"], ["s4"]),
        node("Mul", ["h3", "s4"], ["e"]),
        # SiLU, upwards, both ways, together.
        node("Conv", ["e", "w4", "b1"], ["c5"]),
        node("Sigmoid", ["c5"], ["s5"]),
        node("Mul", ["c5", "s5"], ["m5"]),
        node("ConvTranspose", ["m5", "w5", "b5"], ["c6"], strides=[2, 2]),
        node("LeakyRelu", ["c6"], ["l6"], alpha=0.1),
        node("Resize", ["m5", "", "scales"], ["up"], mode="nearest"),
        node("Concat", ["l6", "up"], ["both"], axis=1),
        node("GlobalAveragePool", ["both"], ["pooled"]),
        node("Flatten", ["pooled"], ["flat"]),
        node("Gemm", ["flat", "w6", "b6"], ["scores"], transB=1),
        node("Softmax", ["scores"], ["y"], axis=1),
    ]
    weights = [
        filter_("w0", 16, 3, 3, 3), filter_("b0", 16), filter_("w1", 16, 16, 3, 3), filter_("w2", 16, 16, 1, 1),
        filter_("b1", 16), filter_("w3", 16, 1, 3, 3), filter_("w4", 16, 16, 1, 1), filter_("w5", 16, 8, 2, 2), filter_("b5", 8),
        filter_("w6", 10, 24), filter_("b6", 10), filter_("gamma", 16), filter_("beta", 16), filter_("mean", 16),
        number("variance", *np.linspace(0.5, 2, 16)), number("three", 3), number("zero", 0), number("six", 6),
        number("scales", 1, 1, 2, 2),
    ]  # fmt: skip
    return model(nodes, [value("x", ["n", 3, 32, 32])], [value("both", None), value("y", None)], weights)


def other_ranks(count: int) -> onnx.ModelProto:
    """Return the first nodes of a network of convolutions of one and three dimensions, both ways."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], pads=[2, 2], dilations=[2]),
        node("Elu", ["c0"], ["e0"], alpha=0.5),
        node("ConvTranspose", ["e0", "w1"], ["c1"], strides=[2], group=2, output_padding=[1], pads=[1, 1]),
        node("Reshape", ["c1", "shape"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1, 1, 1]),
        node("Tanh", ["c2"], ["t2"]),
        node("ConvTranspose", ["t2", "w3"], ["c3"], strides=[1, 2, 1]),
        node("PRelu", ["c3", "slope"], ["y"]),
    ]
    weights = [
        filter_("w0", 8, 4, 3), filter_("w1", 8, 4, 3), filter_("w2", 6, 4, 3, 3, 3), filter_("w3", 6, 5, 1, 2, 1),
        filter_("slope", 5, 1, 1, 1), numpy_helper.from_array(np.array([1, 4, 2, 4, 4]), "shape"),
    ]  # fmt: skip
    return model(nodes[:count], [value("x", [1, 4, 8])], weights=weights)


def compiled(network: onnx.ModelProto, folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict]:
    """Compile a network with the command, check its answers in another process, and return its report."""
    source, library = save(network, folder), str(folder / "network.so")
    assert cli.main(["compile", source, "-o", library, "--json", *options]) == 0
    rows = json.loads(capsys.readouterr().out)
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    (declared,) = session.get_inputs()
    shape = [2 if isinstance(dim, str) else dim for dim in declared.shape]
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    np.savez(folder / "inputs.npz", x=data)
    command = ["run", library, "--input", str(folder / "inputs.npz"), "--output", str(folder / "outputs.npz")]
    run_python("from tvmconv.cli import main; main()", *command)
    with np.load(folder / "outputs.npz") as found:
        outputs = [each.name for each in session.get_outputs()]
        assert list(found) == outputs  # the model's own names
        for expected, answer in zip(session.run(None, {"x": data}), found.values(), strict=True):
            assert answer.shape == expected.shape
            assert relative_error(answer, expected) < 2e-5
    return rows


def epilogues(rows: list[dict]) -> list[str]:
    """Return what follows the sums of each kernel."""
    return [format_epilogue(parse_signature(row["signature"]).epilogue) for row in rows]


def test_a_network_compiles_to_one_library_that_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    # Strict: its branches stay as they are written.
    rows = compiled(network(), tmp_path, capsys, "--batch", "2", "--math", "strict")
    assert [row["why"] for row in rows] == [""] * 8
    hardsigmoid = "hardsigmoid_0.2_0.5"
    assert epilogues(rows) == ["relu", "", "add-relu", "hardswish", hardsigmoid, "silu", "leaky_0.1", ""]
    assert (
        cli.main(["run", str(tmp_path / "network.so"), "--bench", "--seconds", "0.01", "--json", "--concurrency", "2"])
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    whole = facts["seconds"]
    assert 0 < whole["least"] <= whole["median"] <= whole["p90"] <= whole["p99"] and whole["calls"] >= 10
    assert whole["throughput"] > 0
    assert {row["signature"] for row in rows} <= {each["name"] for each in facts["operators"] if each["ours"]}
    assert 0 < facts["others"] < 1


@pytest.mark.parametrize(
    ("layout", "count", "expected"), [("NXC", 8, ["elu_0.5", "", "tanh", "prelu"]), ("NCX", 3, ["elu_0.5", ""])]
)
def test_convolutions_of_other_ranks(
    layout: str,
    count: int,
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    rows = compiled(other_ranks(count), tmp_path, capsys, "--layout", layout)
    assert epilogues(rows) == expected
    assert {parse_signature(row["signature"]).data_format for row in rows} == {layout}


@pytest.mark.parametrize(
    ("shape", "more"), [([15, 17], {"auto_pad": "SAME_LOWER"}), ([15, 17], {}), ([20, 18], {"auto_pad": "SAME_UPPER"})]
)
def test_a_transposed_convolution_is_told_its_outputs_shape(
    shape: list[int], more: dict[str, str], tmp_path: Path
) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[3, 3], output_shape=shape, **more)
    source = save(model([node], [value("x", [1, 4, 6, 6])], weights=[filter_("w", 4, 6, 4, 4)]), tmp_path)
    data = RNG.standard_normal((1, 4, 6, 6)).astype(np.float32)
    (expected,) = ort.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"x": data})
    (answer,) = computed(read_onnx(source), data)
    assert relative_error(answer, expected) < 2e-5


def test_bounds_by_the_greatest_and_least_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"]), node("Max", ["c", "zero"], ["m"]), node("Min", ["six", "m"], ["r"]),
        node("Conv", ["r", "v"], ["d"]), node("Max", ["d", "r", "b"], ["y"]),
    ]  # fmt: skip
    six = numpy_helper.from_array(np.array([6], np.float32), "six")
    weights = [filter_("w", 8, 3, 3, 3), filter_("v", 8, 8, 1, 1), number("zero", 0), six, filter_("b", 1, 8, 1, 1)]
    rows = compiled(model(nodes, [value("x", [1, 3, 9, 9])], weights=weights), tmp_path, capsys)
    assert sorted(epilogues(rows)) == ["", "clip_0_6"]


def test_a_network_that_replaces_a_loaded_one(tmp_path: Path) -> None:
    for name in ("Neg", "Abs"):
        module = read_onnx(save(model([helper.make_node(name, ["x"], ["y"])], [value("x", [3])]), tmp_path))
        build(module, tmp_path / "network.so")
        answer = load_network(tmp_path / "network.so")(x=np.float32([-1, 0, 2]))["y"]
        assert answer.tolist() == ([1, 0, -2] if name == "Neg" else [1, 0, 2])


def test_batch_normalization_in_training_mode_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y", "mean", "variance"], training_mode=1)]
    weights = [filter_(name, 3) for name in "sbmv"]
    source = save(model(nodes, [value("x", [2, 3, 4, 4])], [value("y", None)], weights), tmp_path)
    with pytest.raises(SourceError, match=r"the BatchNormalization node .* is in training mode"):
        read_onnx(source)


def test_what_no_kernel_covers_is_left_to_tvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    node = helper.make_node
    nodes = [node("Conv", ["x", "w"], ["y"]), node("ConvTranspose", ["y", "v"], ["z"], strides=[2, 2])]
    inputs = [value("x", [1, 4, 8, 8]), value("v", [8, 2, 2, 2])]
    source = save(model(nodes, inputs, weights=[filter_("w", 8, 4, 3, 3)]), tmp_path)
    module = use_kernels(read_onnx(source))
    ours, theirs = sorted(report(module), key=lambda row: row.why)
    assert ours.signature and "its filter is not fixed" in theirs.why
    data, weights = RNG.standard_normal((1, 4, 8, 8)), RNG.standard_normal((8, 2, 2, 2))
    arrays = {"x": data.astype(np.float32), "v": weights.astype(np.float32)}
    (answer,) = computed(read_onnx(source), *arrays.values())
    (expected,) = ort.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, arrays)
    assert relative_error(answer, expected) < 2e-5
