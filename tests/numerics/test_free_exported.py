"""Nodes of free extents as PyTorch's exporters write them: turned axes, constant Expands, axes as numbers, transforms, Col2Im."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, save, value
from numerics.test_network_free import check, free_network

pytest.importorskip("onnxruntime")


def test_moves_and_transforms(tmp_path: Path) -> None:
    make = onnx.helper.make_node
    least = -(2**63)
    numbers: dict[str, object] = {"one": [1], "last": [-1], "before": [-2], "least": [least], "two": [-2], "first": [0]}
    numbers |= {"axis": 2, "wide": [1, 1, 3, 8], "signal": [0, -1], "step": 4, "length": 16, "end": [3], "even": [2]}
    nodes = [
        make("Slice", ["x", "last", "least", "one", "last"], ["turned"]),
        make("Slice", ["x", "before", "first", "one", "two"], ["some_turned"]),
        make("Slice", ["x", "end", "least", "one", "last"], ["begin_turned"]),
        make("Unsqueeze", ["x", "axis"], ["high"]),
        make("Expand", ["high", "wide"], ["expanded"]),
        make("Reshape", ["x", "signal"], ["row"]),
        make("Shape", ["row"], ["count"], start=1),
        make("Div", ["count", "even"], ["half"]),
        make("TopK", ["row", "half"], ["least_half", "places"], largest=0),
        make("STFT", ["row", "step", "", "length"], ["frames"]),
        make("Unsqueeze", ["x", "last"], ["complex"]),
        make("DFT", ["complex"], ["spectrum"], axis=2),
    ]
    weights = [onnx.numpy_helper.from_array(np.array(each, np.int64), name) for name, each in numbers.items()]
    names = ("turned", "some_turned", "begin_turned", "expanded", "frames", "spectrum", "least_half")
    outputs = [*(value(name, None) for name in names), value("places", None, onnx.TensorProto.INT64)]
    source = save(model(nodes, [value("x", ["n", "t", 8])], outputs, weights, opset=18), tmp_path)
    check(source, free_network(source, "?x?x8", tmp_path), [(1, 5, 8), (2, 8, 8), (3, 17, 8)])


def test_columns_to_an_image(tmp_path: Path) -> None:
    make = onnx.helper.make_node
    numbers = {"columns": [0, 27, -1], "block": [3, 3]}
    nodes = [
        make("Concat", ["x"] * 9, ["many"], axis=1),
        make("Reshape", ["many", "columns"], ["windows"]),
        make("Shape", ["x"], ["image"], start=2),
        make("Col2Im", ["windows", "image", "block"], ["made"], pads=[0, 1, 2, 1]),
    ]
    weights = [onnx.numpy_helper.from_array(np.array(each, np.int64), name) for name, each in numbers.items()]
    source = save(model(nodes, [value("x", ["n", 3, "h", "w"])], [value("made", None)], weights, opset=18), tmp_path)
    check(source, free_network(source, "?x3x?x?", tmp_path), [(1, 3, 5, 4), (2, 3, 13, 7), (1, 3, 1, 16)])
