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
    """Return what ONNX's text says of it."""
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
            np.testing.assert_allclose(answer, each, rtol=1e-5)
    answers = compiled(made, tmp_path)(x=x)
    for name, each in right.items():
        np.testing.assert_allclose(answers[name], each, rtol=1e-5, err_msg=f"{name} of opset {opset}")
