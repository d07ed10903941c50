"""ONNX's own tests of operators that TVM's frontend lacks, compiled as networks by ONNX's definitions of them."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from near import assert_near
from onnx import helper
from onnx.backend.test.case.node import collect_testcases

from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.runtime.networks.network import load_network

CASES = (
    "test_attention_3d_causal",
    "test_attention_3d_gqa_with_past_and_present",
    "test_attention_4d_attn_mask_bool",
    "test_attention_4d_diff_heads_sizes_softcap",
    "test_attention_4d_fp16",
    "test_attention_4d_gqa_scaled",
    "test_attention_4d_with_qk_matmul_softmax",
    "test_rotary_embedding",
    "test_rotary_embedding_with_interleaved_rotary_dim",
)


@cache
def _cases() -> dict[str, Any]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of how ONNX computes the data of its other tests
        return {case.name: case for case in collect_testcases(None)}


@pytest.mark.parametrize("name", CASES)
def test_answers(name: str, tmp_path: Path) -> None:
    case = _cases()[name]
    network = _compiled(case.model, tmp_path)
    names = [each.name for each in case.model.graph.input]
    for given, expected in case.data_sets:
        answers = network(**dict(zip(names, given, strict=True))).values()
        for answer, right in zip(answers, expected, strict=True):
            assert_near(answer, right, summed=right.shape[-1] if right.ndim else 1, layers=2)


@pytest.mark.parametrize(("operator", "version"), [("Celu", 12), ("HannWindow", 17), ("Swish", 24)])
def test_attributes_have_their_defaults(operator: str, version: int, tmp_path: Path) -> None:
    sizes = onnx.numpy_helper.from_array(np.array(7, np.int64), "sizes")
    nodes = [
        helper.make_node(operator, ["sizes" if operator == "HannWindow" else "x"], ["z"]),
        helper.make_node("Mul", ["x", "z"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (7,)) for name in "xy")
    graph = helper.make_graph(nodes, "graph", [x], [y], [sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    data = np.random.default_rng(0).standard_normal(7).astype(np.float32)
    (right,) = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": data}
    )
    assert_near(_compiled(model, tmp_path)(x=data)["y"], right, layers=2)


def _compiled(model: onnx.ModelProto, folder: Path) -> Any:
    onnx.save(model, folder / "model.onnx")
    build(read_onnx(str(folder / "model.onnx")), folder / "network.so", progress=None)
    return load_network(folder / "network.so")


@pytest.mark.parametrize(
    "name", [f"test_onehot_{each}" for each in ("negative_indices", "with_axis", "with_negative_axis", "without_axis")]
)
def test_one_hot(name: str, tmp_path: Path) -> None:
    """The depth is an input of these, which a network needs as a constant."""
    case = _cases()[name]
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    model.ir_version, model.opset_import[0].version = 10, 11
    ((given, expected),) = case.data_sets
    names = [each.name for each in model.graph.input]
    arrays = dict(zip(names, map(np.asarray, given), strict=True))
    model.graph.initializer.append(onnx.numpy_helper.from_array(arrays.pop("depth"), "depth"))
    del model.graph.input[names.index("depth")]
    for answer, right in zip(_compiled(model, tmp_path)(**arrays).values(), expected, strict=True):
        np.testing.assert_array_equal(answer, right)
