"""ONNX models in operators before version 7: rewritten, they compute what the text of their version says, or are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from models import model, save, value
from near import assert_near
from onnx import helper, numpy_helper

from tvmconv.errors import SourceError
from tvmconv.frontends import read_model
from tvmconv.frontends.onnx.load import load
from tvmconv.frontends.onnx.versions import with_known_versions

SEED = 20261128
ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power}
COMPARISONS = {"Less": np.less, "Greater": np.greater}
LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}


def made(
    node: onnx.NodeProto,
    arrays: dict[str, np.ndarray],
    opset: int,
    outputs: list[onnx.ValueInfoProto] | None = None,
    fixed: tuple[str, ...] = (),
) -> onnx.ModelProto:
    inputs = [value(name, each.shape, helper.np_dtype_to_tensor_dtype(each.dtype)) for name, each in arrays.items()]
    weights = [numpy_helper.from_array(arrays[name], name) for name in fixed]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output] if outputs is None else outputs
    built = model([node], inputs, outputs, weights, opset)
    built.ir_version = 3
    return built


def ran(built: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> list[Any]:
    new = with_known_versions(load(built.SerializeToString(), "model"), "model")
    assert new.opset_import[0].version == max(7, built.opset_import[0].version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(new.SerializeToString(), options, providers=["CPUExecutionProvider"])
    taken = {each.name for each in session.get_inputs()}
    return list(session.run(None, {name: each for name, each in arrays.items() if name in taken}))


@pytest.mark.parametrize("opset", range(1, 7))
@pytest.mark.parametrize("operator", [*ARITHMETIC, *COMPARISONS, *LOGIC, "Equal"])
def test_broadcasts(operator: str, opset: int) -> None:
    generator = np.random.default_rng([SEED, opset, len(operator)])
    for _ in range(4):
        rank = int(generator.integers(1, 5))
        shape = tuple(int(each) for each in generator.integers(1, 4, rank))
        axis = int(generator.integers(0, rank))
        length = int(generator.integers(0, rank - axis + 1))
        part = tuple(1 if generator.random() < 0.2 else each for each in shape[axis : axis + length])
        mode = generator.choice(["alike", "suffix", "axis", "negative"])
        if mode == "alike":
            given, right = {}, shape
        elif mode == "suffix":
            given, right = {"broadcast": 1}, shape[axis:]
        else:
            given, right = {"broadcast": 1, "axis": axis - rank * (mode == "negative")}, part
        kind = bool if operator in LOGIC else np.int32 if operator == "Equal" else np.float32
        a, b = (np.asarray(generator.integers(1, 4, each), kind) for each in (shape, right))
        if kind is bool:
            a, b = (np.asarray(generator.integers(0, 2, each), kind) for each in (shape, right))
        if opset < 6 and operator in ("Add", "Sub", "Mul", "Div"):
            given["consumed_inputs"] = [0, 0]
        aligned = b.reshape(b.shape + (1,) * (len(shape) - axis - len(right))) if "axis" in given else b
        expected = {**ARITHMETIC, **COMPARISONS, **LOGIC, "Equal": np.equal}[operator](a, aligned)
        fixed = ("b",) if generator.random() < 0.5 else ()
        built = made(helper.make_node(operator, ["a", "b"], ["y"], **given), {"a": a, "b": b}, opset, fixed=fixed)
        (answer,) = ran(built, {"a": a, "b": b})
        print(f"seed {SEED}: {shape} {right} {given}")
        assert_near(answer, expected)


X = np.random.default_rng(SEED).standard_normal((2, 3, 4, 5)).astype(np.float32)
C = np.array([0.5, -1.0, 2.0], np.float32)
BY_CHANNEL = C.reshape(3, 1, 1)
PADDED = np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)), constant_values=1.5)
CASES: dict[str, tuple[int, str, dict[str, Any], list[np.ndarray], np.ndarray]] = {
    "slopes": (6, "PRelu", {}, [C], np.where(X < 0, X * BY_CHANNEL, X)),
    "slope": (1, "PRelu", {"consumed_inputs": [0, 0]}, [C[:1]], np.where(X < 0, X * C[0], X)),
    "gemm": (6, "Gemm", {"broadcast": 1, "transB": 1}, [C.repeat(5).reshape(3, 5), C], X[0, 0] @ C.repeat(5).reshape(3, 5).T + C),
    "normalization": (6, "BatchNormalization", {"is_test": 1, "epsilon": 0.0}, [C, C, C, abs(C)],
                      (X - BY_CHANNEL) / np.sqrt(abs(BY_CHANNEL)) * BY_CHANNEL + BY_CHANNEL),
    "dropout": (6, "Dropout", {"is_test": 1}, [], X),
    "concatenation": (1, "Concat", {}, [X], np.concatenate([X, X], 1)),
    "concatenation 4": (4, "Concat", {"axis": 3}, [X], np.concatenate([X, X], 3)),
    "reshape": (4, "Reshape", {"shape": [0, -1]}, [], X.reshape(2, -1)),
    "cast": (5, "Cast", {"to": "INT32"}, [], X.astype(np.int32)),
    "tile": (5, "Tile", {}, [np.array([2], np.float32), np.array([1], np.float32)], np.concatenate([X, X], 1)),
    "pad": (1, "Pad", {"paddings": [0, 0, 1, 0, 0, 0, 0, 2], "value": 1.5}, [], PADDED),
    "pad 2": (2, "Pad", {"pads": [0, 0, 1, 0, 0, 0, 0, 2], "value": 1.5}, [], PADDED),
    "norm": (1, "LpPool", {"kernel_shape": [1, 1], "p": 2.0}, [], abs(X)),
    "norms": (1, "GlobalLpPool", {"p": 1.0}, [], abs(X).sum((2, 3), keepdims=True)),
    "upsample": (1, "Upsample", {"height_scale": 2.0, "width_scale": 3.0, "mode": "nearest"}, [], X.repeat(2, 2).repeat(3, 3)),
    "average": (1, "AveragePool", {"kernel_shape": [4, 5]}, [], X.mean((2, 3), keepdims=True)),
    "sum": (1, "Sum", {"consumed_inputs": [0, 0]}, [X], X + X),
    "clip": (1, "Clip", {"max": 0.5, "consumed_inputs": [0]}, [], np.minimum(X, 0.5)),
    "selu": (1, "Selu", {"consumed_inputs": [0]}, [], 1.0507 * np.where(X > 0, X, 1.6732 * (np.exp(X) - 1))),
    "softmax": (1, "Softmax", {"axis": 2}, [],
                (np.exp(X) / np.exp(X).sum((2, 3), keepdims=True))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str) -> None:
    opset, operator, attributes, others, expected = CASES[name]
    arrays = {"x": X[0, 0] if operator == "Gemm" else X, **{f"w{n}": each for n, each in enumerate(others)}}
    node = helper.make_node(operator, list(arrays), ["y"], **attributes)
    (answer,) = ran(made(node, arrays, opset, fixed=tuple(arrays)[1:]), arrays)
    assert_near(answer, expected, summed=X.size, layers=3)


def test_a_split_by_its_second_input() -> None:
    arrays = {"x": X, "sizes": np.array([1, 2], np.float32)}
    node = helper.make_node("Split", ["x", "sizes"], ["y", "z"], axis=1)
    for answer, right in zip(ran(made(node, arrays, 1, fixed=("sizes",)), arrays), (X[:, :1], X[:, 1:]), strict=True):
        np.testing.assert_array_equal(answer, right)


@pytest.mark.parametrize(
    ("operator", "attributes", "shapes", "why"),
    [
        ("BatchNormalization", {}, [(3,)] * 4, "is in training mode"),
        ("Dropout", {}, [], "is in training mode"),
        ("BatchNormalization", {"is_test": 1, "spatial": 0}, [(3, 4, 5)] * 4, "separate weights for each pixel"),
        ("LpPool", {"kernel_shape": [2, 2], "p": 2.5}, [], "a norm of the power 2.5"),
        ("Cast", {"to": "DECIMAL"}, [], "casts to 'DECIMAL'"),
        ("Relu", {"slope": 0.5}, [], "has the attribute 'slope'"),
        ("Add", {"broadcast": 1, "axis": 3}, [(3, 4)], "broadcasts 2 axes from axis 3 of 4"),
    ],
)
def test_what_has_no_equal_is_refused_by_name(
    operator: str, attributes: dict[str, Any], shapes: list[tuple[int, ...]], why: str
) -> None:
    arrays = {"x": X, **{f"w{n}": np.ones(each, np.float32) for n, each in enumerate(shapes)}}
    version = 1 if operator == "LpPool" else 5
    node = helper.make_node(operator, list(arrays), ["y"], name="it", **attributes)
    with pytest.raises(
        SourceError, match=rf"the {operator} node 'it' is of version {version} of ONNX's operators, and .*{why}"
    ):
        ran(made(node, arrays, version, fixed=tuple(arrays)[1:]), arrays)


def test_ranks_that_are_not_known_are_refused() -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)
    built = model([node], [value("x", None), value("b", (6,))], opset=6)
    with pytest.raises(SourceError, match="needs the rank of its input 'x'"):
        with_known_versions(load(built.SerializeToString(), "model"), "model")


def test_ranks_are_inferred_through_the_graph_and_into_branches() -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["sum", "b"], ["inner"], broadcast=1, axis=1)], "inner", [], [value("inner", None)]
    )
    nodes = [
        helper.make_node("Reshape", ["x"], ["r"], shape=[2, 3, 20]),
        helper.make_node("Add", ["r", "b"], ["sum"], broadcast=1, axis=1),
        helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner),
    ]
    weights = [numpy_helper.from_array(C, "b"), numpy_helper.from_array(np.array(True), "yes")]
    built = model(nodes, [value("x", X.shape)], [value("y", (2, 3, 20))], weights, 4)
    (answer,) = ran(built, {"x": X})
    assert_near(answer, X.reshape(2, 3, 20) + 2 * C.reshape(3, 1), layers=2)


@pytest.mark.parametrize("axis", [None, 1])
def test_a_sum_after_a_convolution_is_its_bias_only_along_channels(axis: int | None, tmp_path: Any) -> None:
    """Of 6 channels and 6 columns, by their version's rules."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Add", ["c", "b"], ["y"], broadcast=1, **({} if axis is None else {"axis": axis})),
    ]
    weights = [
        numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in (("w", (6, 6, 1, 1)), ("b", (6,)))
    ]
    path = save(model(nodes, [value("x", (1, 6, 4, 6))], [value("y", (1, 6, 4, 6))], weights, 6), tmp_path)
    (node,) = read_model(path).nodes
    assert node.problem.bias == (axis == 1)
