"""LSTMs that onnxruntime's quantiser made of f32: the steps' states are rounded as its own kernel rounds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, save, value
from numerics.test_network_free import free_network
from onnx import helper, numpy_helper

from tvmconv.accuracy import NETWORK_ERROR, describe_differences
from tvmconv.errors import SourceError

onnxruntime = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

RNG = np.random.default_rng(0)
INPUTS = 20


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """Return random numbers by which states stay small, step by step."""
    return numpy_helper.from_array((RNG.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32), name)


def quantized(folder: Path, size: int, direction: str, by_channel: bool, lengths: bool = False) -> str:
    """Return the file of a network of two layers, of which the first starts from given states."""
    count = 1 + (direction == "bidirectional")
    given = {"hidden_size": size, "direction": direction}
    nodes = [
        helper.make_node(
            "LSTM", ["x", "w", "r", "b", "lengths" if lengths else "", "h", "c"], ["y", "yh", "yc"], **given
        ),
        helper.make_node("LSTM", ["x", "v", "s"], ["", "zh", "zc"], **given),
    ]
    weights = [
        weight("w", count, 4 * size, INPUTS), weight("r", count, 4 * size, size), weight("b", count, 8 * size),
        weight("h", count, 2, size), weight("c", count, 2, size),
        weight("v", count, 4 * size, INPUTS), weight("s", count, 4 * size, size),
    ]  # fmt: skip
    if lengths:
        weights.append(numpy_helper.from_array(np.array([3, 1], np.int32), "lengths"))
    outputs = [value(name, None) for name in ("y", "yh", "yc", "zh", "zc")]
    source = save(model(nodes, [value("x", ["steps", 2, INPUTS])], outputs, weights, opset=17), folder)
    quantization.quantize_dynamic(source, folder / "quantized.onnx", per_channel=by_channel)
    return str(folder / "quantized.onnx")


@pytest.mark.parametrize(("size", "direction", "by_channel"), [(19, "bidirectional", False), (48, "reverse", True)])
def test_steps_round_their_states(size: int, direction: str, by_channel: bool, tmp_path: Path) -> None:
    source = quantized(tmp_path, size, direction, by_channel)
    assert {node.op_type for node in onnx.load(source).graph.node} == {"DynamicQuantizeLSTM"}
    network = free_network(source, f"?x2x{INPUTS}", tmp_path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # with more it rounds the batch in parts, each by its own scale
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    for steps in (1, 2, 37):
        data = RNG.standard_normal((steps, 2, INPUTS)).astype(np.float32)
        # tolerance: a state between two numbers may become the other one; rounding as such is 1e-2
        assert describe_differences(network(x=data), session.run(None, {"x": data}), NETWORK_ERROR / 5) == [], steps


def test_lengths_are_refused(tmp_path: Path) -> None:
    source = quantized(tmp_path, 8, "forward", False, lengths=True)
    with pytest.raises(SourceError, match="sequence lengths"):
        free_network(source, f"?x2x{INPUTS}", tmp_path)
