"""Pads of free extents in ONNX: of every mode, along free and fixed axes, and crops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, save, value
from numerics.test_network_free import check, free_network

pytest.importorskip("onnxruntime")

PADS = {
    "reflect": [0, 0, 2, 1, 0, 0, 3, 2],
    "edge": [0, 0, 0, 5, 0, 1, 2, 0],
    "wrap": [1, 0, 2, 1, 0, 0, 3, 2],
    "constant": [0, 0, -1, 1, 0, 0, 2, -2],
}


def test_modes_and_crops(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Pad", ["x", f"pads_{mode}", *["number"] * (mode == "constant")], [mode], mode=mode)
        for mode in PADS
    ]
    nodes.append(onnx.helper.make_node("Pad", ["x", "some", "", "axes"], ["cropped"], mode="reflect"))
    weights = [onnx.numpy_helper.from_array(np.array(pads, np.int64), f"pads_{mode}") for mode, pads in PADS.items()]
    weights += [
        onnx.numpy_helper.from_array(np.array(2.5, np.float32), "number"),
        onnx.numpy_helper.from_array(np.array([-1, 1, 2, -1], np.int64), "some"),
        onnx.numpy_helper.from_array(np.array([-1, 1], np.int64), "axes"),
    ]
    graph = model(nodes, [value("x", ["n", 3, "h", "w"])], [value(each.output[0], None) for each in nodes], weights)
    source = save(graph, tmp_path)
    network = free_network(source, "?x3x?x?", tmp_path)
    check(source, network, [(1, 3, 4, 5), (2, 3, 17, 6), (3, 3, 5, 31)])
    data = np.random.default_rng(0).standard_normal((1, 3, 2, 4), np.float32)
    # As NumPy repeats a reflection that is longer than the data; onnxruntime refuses it.
    np.testing.assert_array_equal(
        network(x=data)["reflect"], np.pad(data, [(0, 0), (0, 0), (2, 3), (1, 2)], mode="reflect")
    )


def test_amounts_from_extents(tmp_path: Path) -> None:
    """Rows are brought to eight, by pads or crops, and to eight at least; in f64, too."""
    make = onnx.helper.make_node
    nodes = [
        make("Shape", ["x"], ["shape"]),
        make("Gather", ["shape", "two"], ["rows"]),
        make("Sub", ["eight", "rows"], ["lacking"]),
        make("Max", ["lacking", "zero"], ["some"]),
        make("Concat", ["front", "lacking", "back"], ["eight_pads"], axis=0),
        make("Concat", ["front", "some", "back"], ["more_pads"], axis=0),
        make("Cast", ["x"], ["exact"], to=onnx.TensorProto.DOUBLE),
        make("Pad", ["exact", "eight_pads"], ["eights"]),
        make("Pad", ["x", "more_pads", "number"], ["mores"]),
        make("Pad", ["x", "more_pads"], ["edges"], mode="edge"),
    ]
    numbers = {"two": [2], "eight": [8], "zero": [0], "front": [0, 0, 0, 1, 0, 0], "back": [2]}
    weights = [onnx.numpy_helper.from_array(np.array(each, np.int64), name) for name, each in numbers.items()]
    weights.append(onnx.numpy_helper.from_array(np.array(-1.5, np.float32), "number"))
    outputs = [value("eights", None, onnx.TensorProto.DOUBLE), value("mores", None), value("edges", None)]
    source = save(model(nodes, [value("x", ["n", 2, "h", "w"])], outputs, weights, opset=19), tmp_path)
    shapes = [(1, 2, 5, 4), (2, 2, 8, 1), (3, 2, 13, 7)]
    check(source, free_network(source, "?x2x?x?", tmp_path), shapes)
