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
