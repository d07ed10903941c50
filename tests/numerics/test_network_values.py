"""Inputs that are compiled as constants (`--value`), and branches that fixed extents choose where others are free."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import fixed, model, save, value
from onnx import TensorProto, helper, numpy_helper

from tvmconv import cli
from tvmconv.runtime.networks.network import load_network

ort = pytest.importorskip("onnxruntime")
node = helper.make_node


def number(name: str, *numbers: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def choose(condition: str, result: str, then: list[onnx.NodeProto], other: list[onnx.NodeProto]) -> onnx.NodeProto:
    """Return an If whose branches return their last nodes' results."""
    branches = [helper.make_graph(nodes, "branch", [], [value(nodes[-1].output[0], None)]) for nodes in (then, other)]
    return node("If", [condition], [result], then_branch=branches[0], else_branch=branches[1])


def reduce_to_row(name: str) -> list[onnx.NodeProto]:
    """Return a convolution and the axis of its only column taken away, as exporters write `squeeze`: if it is one."""
    return [
        node("Conv", ["data", f"w{name}"], [f"y{name}"]),
        node("Shape", [f"y{name}"], [f"shape{name}"]),
        node("Gather", [f"shape{name}", "last"], [f"columns{name}"]),
        node("Equal", [f"columns{name}", "one"], [f"single{name}"]),
        choose(
            f"single{name}",
            f"z{name}",
            [node("Squeeze", [f"y{name}", "last"], [f"row{name}"])],
            [node("Identity", [f"y{name}"], [f"same{name}"])],
        ),
        node("Relu", [f"z{name}"], [f"out{name}"]),
    ]


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Write a model of two branches, for 16 and for 8 samples; each is for its own length alone."""
    nodes = [
        node("Equal", ["rate", "sixteen"], ["fast"]),
        choose("fast", "answer", reduce_to_row("16"), reduce_to_row("8")),
    ]
    inputs = [value("data", ["n", 1, "t"]), value("rate", [1], TensorProto.INT64)]
    weights = [fixed("w16", 4, 1, 16), fixed("w8", 4, 1, 8), number("last", -1), number("one", 1)]
    return save(model(nodes, inputs, weights=[*weights, number("sixteen", 16)]), tmp_path)


@pytest.mark.parametrize(("rate", "shape"), [(16, "2x1x16"), (8, "2x1x8"), (16, "?x1x16"), (8, "?x1x8")])
def test_input_as_constant(source: str, tmp_path: Path, rate: int, shape: str) -> None:
    """Compile the branch of a number for its own length; its answers are onnxruntime's."""
    library = str(tmp_path / "network.so")
    command = ["compile", source, "-o", library, "--shape", f"data={shape}", "--value", f"rate={rate}"]
    assert cli.main([*command, "--require-comparison"]) == 0
    network, session = load_network(library), ort.InferenceSession(source)
    for batch in (2, 5) if "?" in shape else (2,):
        data = np.random.default_rng(batch).integers(-4, 5, (batch, 1, rate)).astype(np.float32)
        (expected,) = session.run(None, {"data": data, "rate": np.array([rate])})
        (found,) = network(data=data).values()
        np.testing.assert_array_equal(found, expected)


def test_input_of_ir_as_constant(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    nodes = [node("Conv", ["x", "w"], ["y"]), node("Mul", ["y", "scale"], ["z"])]
    inputs = [value("x", [1, 3, 8, 8]), value("scale", [1])]
    openvino.save_model(
        openvino.convert_model(save(model(nodes, inputs, weights=[fixed("w", 4, 3, 3, 3)]), tmp_path)),
        str(tmp_path / "model.xml"),
    )
    library = str(tmp_path / "network.so")
    command = ["compile", str(tmp_path / "model.xml"), "-o", library, "--value", "scale=3"]
    assert cli.main([*command, "--require-comparison"]) == 0
    data = np.ones((1, 3, 8, 8), np.float32)
    session = ort.InferenceSession(str(tmp_path / "model.onnx"))
    (expected,) = session.run(None, {"x": data, "scale": np.array([3], np.float32)})
    (found,) = load_network(library)(x=data).values()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("rate=1.5", "type int64, which has no such number"),
        ("rate=nan", "type int64, which has no such number"),
        ("rate=1e30", "type int64, which has no such number"),
        ("speed=16", "has no input 'speed'; its inputs: data (nx1xt), rate (1)"),
        ("data=0", "data (nx1xt) has free dimensions; a number fills a fixed shape"),
    ],
)
def test_value_that_an_input_lacks(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    command = ["compile", source, "-o", str(tmp_path / "a.so"), "--shape", "data=1x1x16", "--value", given]
    assert cli.main(command) == 2
    assert said in capsys.readouterr().err


def test_branches_for_other_shapes_name_the_option(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compile", source, "-o", str(tmp_path / "a.so"), "--shape", "data=1x1x8"]) == 2
    assert "--value rate=NUMBER makes its condition a constant" in capsys.readouterr().err
