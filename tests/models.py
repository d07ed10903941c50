"""Small ONNX models, and those that come with the ONNX package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
FLOAT = TensorProto.FLOAT


def value(name: str, shape: Sequence[int | str | None] | None, elem_type: int = FLOAT) -> onnx.ValueInfoProto:
    """Return an input or output; None is an unnamed free dimension, or no shape at all."""
    return helper.make_tensor_value_info(name, elem_type, shape)


def weight(name: str, shape: Sequence[int], elem_type: int = FLOAT) -> onnx.TensorProto:
    """Return an initializer whose numbers are kept in a file that does not exist."""
    tensor = TensorProto(name=name, dims=shape, data_type=elem_type, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights.bin")
    return tensor


def fixed(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    """Return small integers, with which sums are exact."""
    return numpy_helper.from_array(np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 22,
    **extra: Any,
) -> onnx.ModelProto:
    """Return a model; its output is that of the last node unless given."""
    outputs = outputs if outputs is not None else [value(nodes[-1].output[0], None)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, **extra)


def conv_model(
    op: str = "Conv",
    x: Sequence[int | str | None] | None = (1, 3, 8, 8),
    w: Sequence[int] = (4, 3, 3, 3),
    b: Sequence[int] | None = None,
    elem_type: int = FLOAT,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node, ``conv``."""
    names = ["x", "w"] if b is None else ["x", "w", "b"]
    weights = [weight("w", w, elem_type)] + ([] if b is None else [weight("b", b, elem_type)])
    node = helper.make_node(op, names, ["y"], name="conv", **attributes)
    return model([node], [value("x", x, elem_type)], [value("y", None, elem_type)], weights)


def save(model: onnx.ModelProto, folder: Path) -> str:
    """Write a model; return its path."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)
