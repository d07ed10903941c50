"""Recurrent nodes of ONNX models are written as their steps, and answers are compared with onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, save, value
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
def test_recurrent_nodes_are_written_step_by_step(kind: str, direction: str, tmp_path: Path) -> None:
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


def test_recurrent_nodes_of_many_steps_are_refused(tmp_path: Path) -> None:
    node = helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=4)
    weights = [weight("w", 1, 12, 3), weight("r", 1, 12, 4)]
    source = save(model([node], [value("x", [300, 1, 3])], weights=weights, opset=17), tmp_path)
    with pytest.raises(SourceError, match="the GRU node 'y' has 300 steps, and all of at most 256 are written"):
        read_onnx(source)
