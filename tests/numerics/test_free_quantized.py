"""Quantized networks of free extents: onnxruntime's integers at every size."""

from __future__ import annotations

from pathlib import Path

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

pytest.importorskip("onnxruntime")


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


def test_what_needs_fixed_extents_says_so(tmp_path: Path) -> None:
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("ConvInteger", ["q", "w", "z"], ["y"])]
    weights = [numpy_helper.from_array(np.ones((2, 3, 3, 3), np.int8), "w")]
    source = save(model(nodes, [value("x", [1, 3, "h", 8])], [value("y", None, 6)], weights=weights), tmp_path)
    free = {"x": tuple(map(Extent.parse, ("1", "3", "h", "8")))}
    with pytest.raises(SourceError, match="ConvInteger needs fixed extents: give the inputs' shapes as numbers"):
        as_relax(fix_shapes(source, free=free), source, free)
