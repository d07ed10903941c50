"""Recurrent nodes of ONNX models are loops over their steps, or written step by step; answers are compared with onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, save, value
from numerics.test_network_free import check, free_network
from onnx import helper, numpy_helper

from tvmconv.errors import SourceError
from tvmconv.network.compile import build
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import fix_shapes, read_onnx
from tvmconv.network.report import report
from tvmconv.runtime.networks.network import load_network

pytest.importorskip("onnxruntime")
from tvmconv.network.read.onnx import compare as compared

RNG = np.random.default_rng(0)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """Return random numbers."""
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)


# Each kind and each direction; compiling one takes ten seconds.
@pytest.mark.parametrize(
    ("kind", "direction"),
    [("LSTM", "bidirectional"), ("LSTM", "forward"), ("GRU", "reverse"), ("GRU linear", "bidirectional")],
)
def test_recurrent_nodes(kind: str, direction: str, tmp_path: Path) -> None:
    name, gates = kind.split()[0], 4 if kind == "LSTM" else 3
    count, size, steps = 1 + (direction == "bidirectional"), 16, 5
    given = {"direction": direction, "hidden_size": size} | ({"linear_before_reset": 1} if "linear" in kind else {})
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    nodes = [
        helper.make_node("Conv", ["x", "f"], ["features"], pads=[1, 1]),
        helper.make_node("Transpose", ["features"], ["rows"], perm=[2, 0, 1]),
        helper.make_node(name, ["rows", "w", "r", "b", "", *states], ["y", "y_h", *["y_c"][: kind == "LSTM"]], **given),
        helper.make_node(name, ["rows", "w", "r"], ["", "last"], **given),
    ]
    weights = [
        weight("f", 12, 3, 3), weight("w", count, gates * size, 12), weight("r", count, gates * size, size),
        weight("b", count, 2 * gates * size), *(weight(state, count, 2, size) for state in states),
    ]  # fmt: skip
    outputs = [value(each, None) for each in ("y", "y_h", "last")]
    source = save(model(nodes, [value("x", [2, 3, steps])], outputs, weights, opset=17), tmp_path)
    module = use_kernels(read_onnx(source))
    assert not any(row.why for row in report(module))
    build(read_onnx(source), tmp_path / "network.so")
    assert compared.differences(fix_shapes(source), load_network(tmp_path / "network.so")) == []


def small(name: str, *shape: int) -> onnx.TensorProto:
    """Return random numbers by which states stay small, step by step."""
    return numpy_helper.from_array((RNG.standard_normal(shape) / 2 / shape[-1] ** 0.5).astype(np.float32), name)


LAYERS = (
    ("LSTM", {"direction": "bidirectional"}),
    ("LSTM", {"direction": "reverse"}),
    ("GRU", {"direction": "bidirectional"}),
    ("GRU", {"direction": "reverse", "linear_before_reset": 1}),
    ("GRU", {"linear_before_reset": 1}),
    ("RNN", {"direction": "bidirectional", "activations": ["Tanh", "Relu"]}),
    ("RNN", {}),
)


def layers(size: int, shape: tuple[object, ...]) -> onnx.ModelProto:
    """Return a network of layers, each with and without states and biases, all outputs and some."""
    nodes, weights, outputs = [], [], []
    for number, (kind, given) in enumerate(LAYERS):
        gates, count = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 1 + (given.get("direction") == "bidirectional")
        weights += [
            weight(f"w{number}", count, gates * size, 5), small(f"r{number}", count, gates * size, size),
            weight(f"b{number}", count, 2 * gates * size), weight(f"s{number}", count, 2, size),
        ]  # fmt: skip
        states = [f"s{number}"] * (1 + (kind == "LSTM"))
        names = [f"y{number}", f"h{number}", *[f"c{number}"][: kind == "LSTM"]]
        fixed = [f"{name}{number}" for name in "wrb"]
        nodes.append(helper.make_node(kind, ["x", *fixed, "", *states], names, hidden_size=size, **given))
        nodes.append(helper.make_node(kind, ["x", *fixed[:2]], ["", f"last{number}"], hidden_size=size, **given))
        outputs += [*names, f"last{number}"]
    return model(nodes, [value("x", shape)], [value(each, None) for each in outputs], weights, opset=17)


@pytest.mark.parametrize("size", [7, 72])  # less than vectors, and blocks of them with some left
def test_layers_of_as_many_steps_as_calls_give(size: int, tmp_path: Path) -> None:
    source = save(layers(size, ("steps", 2, 5)), tmp_path)
    check(source, free_network(source, "?x2x5", tmp_path), [(steps, 2, 5) for steps in (1, 2, 37, 300)])


def test_layers_of_very_many_steps(tmp_path: Path) -> None:
    source = save(layers(24, (300, 2, 5)), tmp_path)
    build(read_onnx(source), tmp_path / "network.so")
    assert compared.differences(fix_shapes(source), load_network(tmp_path / "network.so")) == []


def test_a_recogniser_of_text(tmp_path: Path) -> None:
    """Columns of an image of any width, of any number of images, are the steps."""
    nodes = [
        helper.make_node("Conv", ["x", "f"], ["a"], pads=[0, 1, 0, 1], strides=[8, 2]),
        helper.make_node("Squeeze", ["a", "two"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["t"], perm=[2, 0, 1]),
        helper.make_node("LSTM", ["t", "w", "r", "b"], ["y"], hidden_size=16, direction="bidirectional"),
        helper.make_node("Transpose", ["y"], ["u"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["u", "shape"], ["v"]),
        helper.make_node("MatMul", ["v", "last"], ["z"]),
    ]
    weights = [
        weight("f", 12, 1, 8, 3), weight("w", 2, 64, 12), weight("r", 2, 64, 16), weight("b", 2, 128), weight("last", 32, 9),
        numpy_helper.from_array(np.array([2]), "two"), numpy_helper.from_array(np.array([0, 0, 32]), "shape"),
    ]  # fmt: skip
    made = model(nodes, [value("x", ["n", 1, 8, "w"])], [value("z", None)], weights, opset=17)
    source = save(made, tmp_path)
    check(source, free_network(source, "?x1x8x?", tmp_path), [(1, 1, 8, 9), (3, 1, 8, 64), (2, 1, 8, 331)])


@pytest.mark.parametrize(
    ("given", "why"),
    [({"clip": 1.0}, "clips"), ({"activations": ["Sigmoid", "Relu"]}, "has the activations Sigmoid, Relu")],
)
def test_what_layers_of_free_steps_lack(given: dict[str, object], why: str, tmp_path: Path) -> None:
    node = helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=4, **given)
    source = save(
        model([node], [value("x", ["steps", 1, 3])], weights=[weight("w", 1, 12, 3), weight("r", 1, 12, 4)], opset=17),
        tmp_path,
    )
    with pytest.raises(SourceError, match=why):
        free_network(source, "?x1x3", tmp_path)
