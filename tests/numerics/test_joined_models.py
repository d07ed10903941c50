"""A model with parallel branches, as exported: answers of its compilations, and their notes on its filters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from near import assert_near

pytest.importorskip("tvm")
onnxruntime = pytest.importorskip("onnxruntime")
from models import model, save, value  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

import tvmconv  # noqa: E402
from tvmconv import cli  # noqa: E402

SHAPE = (1, 16, 12, 12)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    shapes = {"w3": (16, 16, 3, 3), "w1": (16, 16, 1, 1), "b": (16,)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) / 8 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w3", "b"], ["wide"], "wide", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "w1"], ["narrow"], "narrow"),
        helper.make_node("Add", ["wide", "narrow"], ["both"], "both"),
        helper.make_node("Add", ["both", "x"], ["sum"], "sum"),
        helper.make_node("Relu", ["sum"], ["y"], "y"),
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return save(model(nodes, [value("x", SHAPE)], weights=weights), tmp_path_factory.mktemp("model"))


def answer(source: str) -> tuple[np.ndarray, np.ndarray]:
    data = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return data, session.run(None, {"x": data})[0]


def test_a_network_says_it_where_it_is_explained(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "network.so"
    assert cli.main(["compile", source, "-o", str(library)]) == 0
    assert "3 branches, one kernel; 1.1 times fewer multiplications" in capsys.readouterr().err
    assert cli.main(["explain", str(library)]) == 0
    told = capsys.readouterr().out
    assert "joined: " in told and "3 branches, one kernel" in told and "conv2d-n1-i16x12x12" in told
    assert cli.main(["explain", str(library), "--algorithms"]) == 2
    data, expected = answer(source)
    (output,) = tvmconv.load_network(library)(x=data).values()
    assert_near(output, expected, summed=16 * 10, layers=2)
