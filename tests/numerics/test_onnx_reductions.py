"""ONNX's reductions without axes: of all elements, or of each by itself, as `noop_with_empty_axes` says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import model, save, value
from near import assert_near
from numerics.test_network_free import free_network
from onnx import TensorProto, helper, numpy_helper
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


def test_means_of_integers(tmp_path: Path) -> None:
    """Of fixed extents, of one that is free, and over parts that are put together."""
    nodes = [
        helper.make_node("ReduceMean", ["x", "last"], ["rows"], keepdims=0),
        helper.make_node("ReduceMean", ["x"], ["all"]),
        helper.make_node("Unsqueeze", ["x", "last"], ["a"]),
        helper.make_node("Mul", ["a", "three"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["both"], axis=1),
        helper.make_node("ReduceMean", ["both", "last"], ["parts"], keepdims=0),
    ]
    weights = [numpy_helper.from_array(np.array([1]), "last"), numpy_helper.from_array(np.int32(3), "three")]
    outputs = [value(name, None, TensorProto.INT32) for name in ("rows", "all", "parts")]
    x = np.array([[-7, 3, 4], [2, -1, -3], [5, 5, 1], [0, 0, -1], [9, 8, 7]], np.int32)
    right = [x.sum(1), x.sum(keepdims=True), x * 12]  # by 3, 15 and 2, rounded towards 0
    right = [np.trunc(each / by).astype(np.int32) for each, by in zip(right, (3, 15, 6), strict=True)]
    for rows in (5, "n"):
        proto = model(nodes, [value("x", [rows, 3], TensorProto.INT32)], outputs, weights, opset=18)
        source = save(proto, tmp_path)
        if rows == "n":
            network = free_network(source, "?x3", tmp_path)
        else:
            build(read_onnx(source), tmp_path / "network.so")
            network = load_network(tmp_path / "network.so")
        for answer, expected in zip(network(x=x).values(), right, strict=True):
            np.testing.assert_array_equal(answer, expected)
