"""Quantized networks of free extents: onnxruntime's integers at every size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import model, save, value
from numerics.test_network_free import RNG, SIZES, node
from onnx import numpy_helper

from tvmconv.errors import SourceError
from tvmconv.family import Extent
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.compare_quantized import find_wrong_quantizers, with_quantized
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes
from tvmconv.runtime.networks.network import load_network

onnxruntime = pytest.importorskip("onnxruntime")


def between(name: str) -> list[onnx.NodeProto]:
    """Return nodes that round a tensor to integers, ``NAME_q``, and back, ``NAME_d``, by a scale ``NAME_s``."""
    numbers = [f"{name}_s", "zero"]
    return [
        node("QuantizeLinear", [name, *numbers], [f"{name}_q"]),
        node("DequantizeLinear", [f"{name}_q", *numbers], [f"{name}_d"]),
    ]


def test_quantized_networks(tmp_path: Path) -> None:
    """Convolutions, a product, a pool and a table of integers."""
    nodes = [
        *between("x"),
        node("DequantizeLinear", ["w0", "w0_s"], ["f0"]),
        node("Conv", ["x_d", "f0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        *between("c0"),
        node("HardSwish", ["c0_d"], ["a"]),
        *between("a"),
        node("MaxPool", ["a_d"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        *between("p"),
        node("Transpose", ["p_d"], ["t"], perm=[0, 2, 3, 1]),
        node("DequantizeLinear", ["w1", "w1_s"], ["f1"]),
        node("MatMul", ["t", "f1"], ["m"]),
        *between("m"),
    ]
    whole = (("w0", (8, 3, 3, 3)), ("w1", (8, 6)))
    weights = [numpy_helper.from_array(RNG.integers(-127, 128, shape).astype(np.int8), name) for name, shape in whole]
    scales = {"x": 0.03, "c0": 0.05, "a": 0.04, "p": 0.04, "m": 0.2, "w0": 0.01, "w1": 0.01}
    weights += [numpy_helper.from_array(np.float32(scale), f"{name}_s") for name, scale in scales.items()]
    weights.append(numpy_helper.from_array(np.uint8(121), "zero"))
    given = value("x", ["n", 3, "h", "w"])
    source = save(model(nodes, [given], [value("m_d", None)], weights=weights), tmp_path)
    free = {"x": tuple(map(Extent.parse, ("n", "3", "h", "w")))}
    fixed = fix_shapes(source, free=free)
    build(as_relax(with_quantized(fixed, {}), source, free), tmp_path / "free.so")
    network = load_network(tmp_path / "free.so")
    for batch, size in enumerate(SIZES[:5], 1):
        arrays = {"x": RNG.standard_normal((batch, 3, *size)).astype(np.float32)}
        assert find_wrong_quantizers(fixed, arrays, network(**arrays)) == []


def read_free(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], tmp_path: Path) -> tuple[str, Any]:
    """Return the file of images of 3 channels and any size, the first node's, and the network of it before passes."""
    outputs = [value(each.output[0], None, 6 if each.op_type == "ConvInteger" else 2) for each in nodes[2:]]
    source = save(model(nodes, [value("x", ["n", 3, "h", "w"])], outputs, weights=weights), tmp_path)
    free = {"x": tuple(map(Extent.parse, ("n", "3", "h", "w")))}
    return source, as_relax(fix_shapes(source, free=free), source, free)


def test_convolutions_of_integers(tmp_path: Path) -> None:
    """Zero points that are fixed, and one that is computed; groups, strides and pads."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("QuantizeLinear", ["x", "x_s", "zero"], ["p"]),
        node("ConvInteger", ["q", "w", "z"], ["y0"], strides=[2, 1]),
        node("ConvInteger", ["p", "w", "zero"], ["y1"], pads=[1, 0, 2, 1], dilations=[1, 2]),
        node(
            "QLinearConv", ["p", "x_s", "zero", "d", "x_s", "none", "x_s", "zero"], ["y2"], pads=[1, 1, 1, 1], group=3
        ),
    ]
    arrays = {name: RNG.integers(-127, 128, (8, each, 3, 3)).astype(np.int8) for name, each in (("w", 3), ("d", 1))}
    arrays["d"] = arrays["d"][:3]
    arrays |= {"x_s": np.float32(0.03), "zero": np.uint8(121), "none": np.int8(0)}
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    source, read = read_free(nodes, weights, tmp_path)
    build(read, tmp_path / "free.so")
    network, session = load_network(tmp_path / "free.so"), onnxruntime.InferenceSession(source)
    for batch, size in ((1, (5, 7)), (2, (16, 33)), (1, (3, 5))):
        image = RNG.standard_normal((batch, 3, *size)).astype(np.float32)
        found = network(x=image)
        for name, right in zip(found, session.run(list(found), {"x": image}), strict=True):
            np.testing.assert_array_equal(found[name], right)


def test_what_needs_fixed_extents_says_so(tmp_path: Path) -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("Identity", ["s"], ["scale"]),
        node("ConvInteger", ["q", "w", "z"], ["y"], pads=[1, 1, 1, 1]),
    ]
    weights = [numpy_helper.from_array(np.ones((2, 3, 3, 3), np.int8), "w")]
    with pytest.raises(SourceError, match="ConvInteger needs fixed extents: give the inputs' shapes as numbers"):
        read_free(nodes, weights, tmp_path)
