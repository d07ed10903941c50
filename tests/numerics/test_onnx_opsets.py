"""ONNX's OneHot, and broadcasts of every opset, as networks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from models import fixed, model, save, value
from near import assert_near
from onnx import helper, numpy_helper

from tvmconv.errors import SourceError
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.partition import read_parts
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.runtime.networks.network import load_network

INDICES = np.array([[0, 3, -1], [-4, 4, -5]])
DTYPES = ("int64", "int32", "int8", "uint8", "float32")
VALUES = ("float32", "float16", "int64", "int32", "bool")


def compiled(made: onnx.ModelProto, folder: Path) -> Any:
    build(read_onnx(save(made, folder)), folder / "network.so", progress=None)
    return load_network(folder / "network.so")


def of(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def one_hot(indices: np.ndarray, depth: int, off: Any, on: Any, axis: int) -> np.ndarray:
    """Return the result by ONNX's text."""
    whole = indices.astype(np.int64)
    axis %= indices.ndim + 1
    rows = np.arange(depth).reshape(-1, *[1] * (indices.ndim - axis))
    hit = np.expand_dims(np.where(whole < 0, whole + depth, whole), axis) == rows
    return np.where(hit, on, off)


def test_indices_axes_types_and_values(tmp_path: Path) -> None:
    """One network of all of them: each axis, each type of indices and values, out of range on both sides."""
    nodes, inputs, weights, right, given = [], [], [], {}, {}
    for dtype in DTYPES:
        indices = INDICES.astype(dtype) + (np.float32(0.5) * np.sign(INDICES) if dtype == "float32" else 0)
        given[f"i_{dtype}"] = indices.astype(dtype)
        inputs.append(value(f"i_{dtype}", INDICES.shape, of(dtype)))
    for dtype in VALUES:
        weights.append(numpy_helper.from_array(np.array([0, 1] if dtype == "bool" else [-2, 3], dtype), f"v_{dtype}"))
    inputs.append(value("given", (2,)))
    given["given"] = np.array([0.25, 0.75], np.float32)
    depths = {"d_4": np.array(4), "d_1": np.array([1], np.int32), "d_f": np.array(4, np.float32)}
    weights += [numpy_helper.from_array(each, name) for name, each in depths.items()]
    pairs = [*zip(DTYPES, VALUES, strict=True), *((DTYPES[0], each) for each in VALUES[1:])]
    made = [*itertools.product(pairs[:1], depths, range(-3, 3)), *itertools.product(pairs[1:], ["d_4"], [1])]
    made.append(((DTYPES[1], "given"), "d_4", 0))
    for number, ((dtype, values), depth, axis) in enumerate(made):
        names = [f"i_{dtype}", depth, values if values == "given" else f"v_{values}"]
        nodes.append(helper.make_node("OneHot", names, [f"y{number}"], **({} if axis == -1 else {"axis": axis})))
        off, on = given["given"] if values == "given" else numpy_helper.to_array(weights[VALUES.index(values)])
        right[f"y{number}"] = one_hot(given[f"i_{dtype}"], int(depths[depth].item()), off, on, axis)
    outputs = [value(name, each.shape, of(each.dtype.name)) for name, each in right.items()]
    answers = compiled(model(nodes, inputs, outputs, weights, opset=11), tmp_path)(**given)
    for name, each in right.items():
        assert answers[name].dtype == each.dtype
        np.testing.assert_array_equal(answers[name], each, err_msg=name)


def test_a_depth_that_is_given_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("OneHot", ["i", "d", "v"], ["y"])
    inputs = [value("i", (3,), of("int64")), value("d", (), of("int64"))]
    weights = [numpy_helper.from_array(np.array([0, 1], np.float32), "v")]
    with pytest.raises(SourceError, match="the depth of a OneHot is not fixed"):
        read_onnx(save(model([node], inputs, [value("y", None)], weights), tmp_path))


def test_nodes_out_of_order(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["c"], ["y"]),
        helper.make_node("Conv", ["n", "w"], ["c"]),
        helper.make_node("Neg", ["x"], ["n"]),
    ]
    made = model(nodes, [value("x", (1, 2, 4, 4))], [value("y", (1, 3, 4, 4))], [fixed("w", 3, 2, 1, 1)])
    x = np.random.default_rng(0).integers(-2, 3, (1, 2, 4, 4)).astype(np.float32)
    right = np.maximum(np.einsum("ncyx,oc->noyx", -x, numpy_helper.to_array(made.graph.initializer[0])[:, :, 0, 0]), 0)
    np.testing.assert_array_equal(compiled(made, tmp_path)(x=x)["y"], right)
    assert len(read_parts(save(made, tmp_path))) == 1


@pytest.mark.parametrize("opset", [*range(1, 8), 12, 13, 14, 19, 25])
def test_broadcasts_of_every_opset(opset: int, tmp_path: Path) -> None:
    """Before opset 7 along an axis that a node names, then as NumPy does, which onnxruntime confirms."""
    generator = np.random.default_rng([20261128, opset])
    shape = (2, 3, 4, 3)
    x = generator.uniform(0.5, 2, shape).astype(np.float32)
    arrays, right, nodes = {}, {}, []
    for number, (operator, function) in enumerate(
        {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power}.items()
    ):
        axis = int(generator.integers(0, 4))
        end = int(generator.integers(axis, 5)) if opset < 7 else 4
        array = generator.uniform(0.5, 2, shape[axis:end]).astype(np.float32)
        given: dict[str, Any] = {"broadcast": 1, "axis": axis} if opset < 7 else {}
        arrays[f"a{number}"], name = array, f"y{number}"
        nodes.append(helper.make_node(operator, ["x", f"a{number}"], [name], **given))
        right[name] = function(x, array.reshape(array.shape + (1,) * (4 - end)))
    weights = [numpy_helper.from_array(each, name) for name, each in arrays.items()]
    made = model(nodes, [value("x", shape)], [value(name, shape) for name in right], weights, opset)
    if opset >= 7:
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        for answer, each in zip(session.run(None, {"x": x}), right.values(), strict=True):
            assert_near(answer, each)
    answers = compiled(made, tmp_path)(x=x)
    for name, each in right.items():
        assert_near(answers[name], each, layers=2)


X = np.random.default_rng(7).uniform(-1, 1, (2, 4, 5, 5)).astype(np.float32)
C = np.array([0.5, -1, 2, 1], np.float32)
POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
# Operators whose meaning, or way to say it, a version changed: the versions that have it so, the node, its constants.
CHANGED: list[tuple[range, str, dict[str, Any], list[np.ndarray]]] = [
    *((range(7, 13), each, {"axis": axis}, []) for each in ("Softmax", "LogSoftmax", "Hardmax") for axis in (1, 2)),
    *((range(13, 26), each, {"axis": 2}, []) for each in ("Softmax", "LogSoftmax", "Hardmax")),
    (range(7, 11), "Pad", {"pads": [0, 0, 1, 0, 0, 0, 0, 2], "value": 1.5}, []),
    (range(11, 26), "Pad", {}, [np.array([0, 0, 1, 0, 0, 0, 0, 2]), np.float32(1.5)]),
    (range(7, 10), "Slice", {"starts": [1], "ends": [-1], "axes": [3]}, []),
    (range(10, 26), "Slice", {}, [np.array([3]), np.array([-9]), np.array([2]), np.array([-2])]),
    (range(7, 13), "Unsqueeze", {"axes": [1]}, []),
    (range(13, 26), "Unsqueeze", {}, [np.array([1])]),
    (range(7, 11), "Clip", {"max": 0.25}, []),
    (range(11, 26), "Clip", {}, [np.float32(-0.5), np.float32(0.25)]),
    (range(7, 10), "TopK", {"k": 2, "axis": 1}, []),
    (range(10, 26), "TopK", {"axis": 1}, [np.array([2])]),
    (range(7, 9), "Upsample", {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}, []),
    (range(10, 11), "Resize", {"mode": "linear"}, [np.array([1, 1, 2, 1.5], np.float32)]),
    (range(11, 26), "Resize", {"mode": "linear"}, [np.zeros(0, np.float32), np.array([1, 1, 2, 1.5], np.float32)]),
    (range(11, 26), "Resize", {"coordinate_transformation_mode": "align_corners", "mode": "cubic"},
     [np.zeros(0, np.float32), np.zeros(0, np.float32), np.array([2, 4, 7, 9])]),
    (range(7, 13), "ReduceSum", {"axes": [1], "keepdims": 0}, []),
    (range(13, 26), "ReduceSum", {"keepdims": 0}, [np.array([1])]),
    (range(7, 18), "ReduceL2", {"axes": [1]}, []),
    (range(18, 26), "ReduceL2", {}, [np.array([1])]),
    (range(7, 13), "Split", {"axis": 1, "split": [1, 3]}, []),
    (range(13, 26), "Split", {"axis": 1}, [np.array([1, 3])]),
    (range(18, 21), "GroupNormalization", {"num_groups": 2}, [C[:2], C[2:]]),
    (range(21, 26), "GroupNormalization", {"num_groups": 2}, [C, C[::-1].copy()]),
    (range(7, 26), "BatchNormalization", {}, [C, C, C, abs(C)]),
    (range(7, 26), "AveragePool", {**POOL, "pads": [1, 1, 1, 1], "count_include_pad": 1}, []),
    (range(10, 26), "AveragePool", {**POOL, "ceil_mode": 1}, []),
    (range(18, 26), "LpPool", {**POOL, "ceil_mode": 1, "pads": [1, 0, 0, 1]}, []),
    (range(18, 26), "LpPool", {"kernel_shape": [2, 2], "dilations": [2, 2]}, []),
]  # fmt: skip


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 18, 21])
def test_operators_that_a_version_changed(opset: int, tmp_path: Path) -> None:
    nodes, weights, outputs = [], [], []
    for number, (versions, operator, attributes, constants) in enumerate(CHANGED):
        if opset not in versions:
            continue
        names = [f"c{number}_{each}" for each in range(len(constants))]
        weights += [
            numpy_helper.from_array(np.asarray(each), name) for name, each in zip(names, constants, strict=True)
        ]
        outputs.append(f"{operator}{number}")
        more = [f"{outputs[-1]}_more"] if operator in ("TopK", "Split") else []
        nodes.append(helper.make_node(operator, ["x", *names], [outputs[-1], *more], **attributes))
    made = model(nodes, [value("x", X.shape)], [onnx.ValueInfoProto(name=name) for name in outputs], weights, opset)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    right = session.run(None, {"x": X})
    answers = compiled(made, tmp_path)(x=X)
    for name, each in zip(outputs, right, strict=True):
        assert_near(answers[name], each, summed=100, layers=4)
