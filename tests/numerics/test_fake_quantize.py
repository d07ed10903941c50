"""OpenVINO's FakeQuantize in ONNX files: quantizers of 8 bits where it is one, else by its formula; answers are OpenVINO's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import model, save, value
from onnx import ModelProto, helper, numpy_helper

from tvmconv import cli
from tvmconv.errors import SourceError
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import fix_shapes, read_onnx
from tvmconv.runtime.networks.network import load_network

openvino = pytest.importorskip("openvino")
pytest.importorskip("onnxruntime")

_CHANNELS = np.float32([0.5, 1, 2]).reshape(1, 3, 1, 1)
# Levels, the lowest and highest number that is taken, those that are given, and whether it is a quantizer.
CASES: dict[str, tuple[int, Any, Any, Any, Any, bool]] = {
    "unsigned": (256, 0, 2.55, 0, 2.55, True),
    "signed": (256, -1.28, 1.27, -1.28, 1.27, True),
    "shifted": (256, -0.02 * 107, 0.02 * 148, -0.02 * 107, 0.02 * 148, True),
    "narrow": (255, -1.27, 1.27, -1.27, 1.27, True),
    "by channels": (256, -1.28 * _CHANNELS, 1.27 * _CHANNELS, -1.28 * _CHANNELS, 1.27 * _CHANNELS, True),
    "four bits": (16, 0, 1.5, 0, 1.5, True),
    "between steps": (256, -1, 1, -1, 1, False),
    "other numbers": (256, 0, 1, -3, 3, False),
    "many levels": (1000, -1, 1, -1, 1, False),
    "downwards": (256, 0, 2.55, 2.55, 0, False),
}


def written(folder: Path, nodes: list[Any], outputs: list[str], arrays: dict[str, Any]) -> str:
    """Write nodes that read `x`; return the file's name."""
    weights = [numpy_helper.from_array(np.asarray(each, np.float32), name) for name, each in arrays.items()]
    made: ModelProto = model(
        nodes, [value("x", [1, 3, 6, 5])], [value(each, None) for each in outputs], weights=weights, opset=17
    )
    made.opset_import.append(helper.make_opsetid("org.openvinotoolkit", 1))
    return save(made, folder)


def fake(levels: int, *names: str) -> Any:
    return helper.make_node(
        "FakeQuantize", names[:-1], names[-1:], f"fake {names[-1]}", "", "org.openvinotoolkit", levels=levels
    )


def test_answers_are_those_of_openvino(tmp_path: Path) -> None:
    nodes, arrays = [], {}
    for number, (levels, *bounds, _) in enumerate(CASES.values()):
        names = [f"bound{number}_{at}" for at in range(4)]
        arrays |= dict(zip(names, bounds, strict=True))
        nodes.append(fake(levels, "x", *names, f"y{number}"))
    outputs = [each.output[0] for each in nodes]
    source = written(tmp_path, nodes, outputs, arrays)
    kinds = [
        {node.op_type for node in fix_shapes(source).graph.node if name in "".join(node.output)} for name in outputs
    ]
    assert ["QuantizeLinear" in each for each in kinds] == [case[-1] for case in CASES.values()]
    build(read_onnx(source), tmp_path / "network.so")
    x = np.random.default_rng(0).normal(0, 1.5, (1, 3, 6, 5)).astype(np.float32)
    x[0, 0, 0] = [-9, 9, 0, 1e-7, -1e-7]
    compiled = openvino.compile_model(openvino.Core().read_model(source), "CPU")([x])
    for (name, (levels, *bounds, _)), answer, right in zip(
        CASES.items(), load_network(tmp_path / "network.so")(x=x).values(), compiled.to_tuple(), strict=True
    ):
        step = np.abs(np.subtract(bounds[3], bounds[2])).max() / (levels - 1)
        off = np.abs(answer - right)
        assert off.max() < 1.001 * step and (off > 1e-3 * step).mean() < 0.02, name


def test_convolutions_are_in_integers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filter_ = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    most = np.abs(filter_).max((1, 2, 3), keepdims=True)
    arrays = {"low": -1.28, "high": 1.27, "w": filter_, "least": -most, "most": most}
    nodes = [
        fake(256, "x", "low", "high", "low", "high", "xq"),
        fake(255, "w", "least", "most", "least", "most", "wq"),
        helper.make_node("Conv", ["xq", "wq"], ["y"], pads=[1] * 4),
    ]
    source = written(tmp_path, nodes, ["y"], arrays)
    assert cli.main(["compile", source, "-o", str(tmp_path / "network.so"), "--require-comparison"]) == 0
    (row,) = load_network(tmp_path / "network.so").description["report"]
    assert "-u8s8f32-zx128-scale" in row["signature"]


def test_bounds_that_are_not_finite_are_named(tmp_path: Path) -> None:
    source = written(tmp_path, [fake(256, "x", "low", "high", "low", "high", "y")], ["y"], {"low": 0, "high": np.nan})
    with pytest.raises(SourceError, match="the FakeQuantize node 'fake y' needs fixed, finite bounds"):
        read_onnx(source)


def test_bounds_that_are_not_fixed_are_named(tmp_path: Path) -> None:
    source = written(tmp_path, [fake(256, "x", "low", "x", "low", "x", "y")], ["y"], {"low": 0})
    with pytest.raises(SourceError, match="the FakeQuantize node 'fake y' needs fixed, finite bounds"):
        read_onnx(source)
