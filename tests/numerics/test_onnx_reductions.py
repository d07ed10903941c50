"""ONNX's reductions without axes: of all elements, or of each by itself, as `noop_with_empty_axes` says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import model, save, value
from near import assert_near
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.runtime.networks.network import load_network

pytest.importorskip("onnxruntime")
KINDS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


def test_of_each_element_or_of_all(tmp_path: Path) -> None:
    nodes = [
        helper.make_node(f"Reduce{kind}", ["x", *axes], [f"{kind}{len(axes)}{alone}"], noop_with_empty_axes=alone)
        for kind in KINDS
        for axes in ([], ["none"])
        for alone in (0, 1)
    ]
    weights = [numpy_helper.from_array(np.zeros(0, np.int64), "none")]
    outputs = [value(each.output[0], None) for each in nodes]
    proto = model(nodes, [value("x", [2, 3])], outputs, weights, opset=18)
    build(read_onnx(save(proto, tmp_path)), tmp_path / "network.so")
    x = np.array([[-2, 3, 4], [0.5, -1, 2]], np.float32)
    with np.errstate(invalid="ignore"):
        expected = ReferenceEvaluator(proto).run(None, {"x": x})
    for answer, right in zip(load_network(tmp_path / "network.so")(x=x).values(), expected, strict=True):
        assert_near(answer, right, summed=6, layers=2)
