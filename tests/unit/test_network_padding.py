"""Zeros that Pad nodes put before a Conv become pads of the Conv, and the answer stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from near import assert_near
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("tvm")
onnxruntime = pytest.importorskip("onnxruntime")

from tvmconv.network.read.onnx.join_pads import join_pads  # noqa: E402


def padded(pads: list[int], own: list[int], again: int = 0, read: bool = False, opset: int = 17, **pad: Any) -> Any:
    """Return a model of a Pad, or two, before a Conv; `read`: the padded data are an output, too."""
    draw = np.random.default_rng(0)
    value, arrays = pad.pop("value", None), [draw.standard_normal((4, 4, 2, 3)).astype(np.float32), np.array(pads)]
    weights = [numpy_helper.from_array(array, name) for array, name in zip(arrays, ("w", "p"), strict=True)]
    if value is not None:
        weights.append(numpy_helper.from_array(np.float32(value), "v"))
    nodes, last = [], "x"
    for number in range(1 + again):
        given = [last, "p", *(["v"] if value is not None else [])]
        nodes.append(helper.make_node("Pad", given, [last := f"y{number}"], **pad))
    nodes.append(helper.make_node("Conv", [last, "w"], ["z"], strides=[1, 2], pads=own))
    names = ["z", *([last] if read else [])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4) for name in names]
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 7])
    graph = helper.make_graph(nodes, "g", [data], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def answers(model: Any) -> list[Any]:
    data = np.random.default_rng(1).standard_normal((1, 4, 6, 7)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": data}))


NONE = [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("made", "left", "pads"),
    [
        (lambda: padded([0, 0, 1, 2, 0, 0, 0, 1], NONE), 0, [1, 2, 0, 1]),
        (lambda: padded([0, 0, 1, 2, 0, 0, 0, 1], [1, 0, 0, 2], value=0.0), 0, [2, 2, 0, 3]),
        (lambda: padded([0, 0, 0, 2, 0, 0, 0, 0], NONE, again=1), 0, [0, 4, 0, 0]),
        (lambda: padded([0, 0, 0, 2, 0, 0, 0, 0], NONE, read=True), 1, [0, 2, 0, 0]),
        (lambda: padded([0, 0, 0, 2, 0, 0, 0, 0], NONE, value=1.0), 1, NONE),
        (lambda: padded([0, 0, 0, -2, 0, 0, 0, 0], NONE), 1, NONE),
        (lambda: padded([0, 0, 0, 2, 0, 0, 0, 0], NONE, mode="reflect"), 1, NONE),
        (lambda: padded([1, 0, 0, 2, 0, 0, 0, 0], NONE), 1, NONE),
    ],
)
def test_zeros_join(made: Any, left: int, pads: list[int]) -> None:
    model = made()
    before = answers(model)
    join_pads(model)
    onnx.checker.check_model(model)
    assert sum(node.op_type == "Pad" for node in model.graph.node) == left
    (conv,) = (node for node in model.graph.node if node.op_type == "Conv")
    assert next(list(each.ints) for each in conv.attribute if each.name == "pads") == pads
    for one, other in zip(before, answers(model), strict=True):
        assert_near(one, other, summed=9 * 4)
