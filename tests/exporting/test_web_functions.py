"""Functions of one number in browsers' modules, where a CPU may have no multiply-add, as near as those of other CPUs."""

from __future__ import annotations

from math import erf, erfc
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from models import model, save, value
from near import assert_near
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("tvm")
from tvmconv.epilogue import APPROXIMATED, parse_epilogue
from tvmconv.exporting.web_exporter import export_web
from tvmconv.lowering.compiler import Choice
from tvmconv.lowering.cpu.stages import show
from tvmconv.network.compile import export_part
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.runtime.networks.web import run_web
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

from .test_web import PLAIN, needs_web

# Relative to the answer, or to the least normal number.
ALLOWED, LEAST = 4e-7, 2.0**-126
ERF, ERFC = (np.vectorize(function, otypes=[float]) for function in (erf, erfc))
TANH = np.sqrt(2 / np.pi)
NUMBERS = {"elu": "(1.5)", "hardsigmoid": "(0.2,0.5)"}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


FUNCTIONS: dict[str, Any] = {
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
    "Silu": lambda x: x * sigmoid(x),
    "Gelu": lambda x: x * ERFC(-x / np.sqrt(2)) / 2,
    "GeluTanh": lambda x: x * sigmoid(2 * TANH * (x + 0.044715 * x**3)),
    "Exp": np.exp,
    "Erf": ERF,
    "Sin": np.sin,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Asinh": np.arcsinh,
    "Round": np.round,
}


def nodes_of(name: str, x: str) -> list[Any]:
    """Return the nodes that compute a function into `name`."""
    if name == "Silu":
        gate = helper.make_node("Sigmoid", [x], ["gate"])
        return [gate, helper.make_node("Mul", [x, "gate"], [name])]
    approximate = {"approximate": "tanh"} if name == "GeluTanh" else {}
    return [helper.make_node(name.removesuffix("Tanh") or name, [x], [name], **approximate)]


def compiled(file: str, folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of a model compiled for engines without relaxed instructions."""
    module = use_kernels(read_onnx(file), "wasm32", progress=lambda *_: None)
    export_web({"wasm32": export_part(module, "wasm32")}, "functions", folder / "net")
    return run_web(folder / "net", given, PLAIN)


@needs_web
def test_functions_are_as_near_as_promised(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.uniform(-20, 20, 3000), rng.uniform(-3.1, 3.1, 1000), rng.uniform(-80, 80, 1000), [0, 88, -87]]
    )
    x = np.resize(x, 5008).astype(np.float32)
    nodes = [node for name in FUNCTIONS for node in nodes_of(name, "x")]
    ends = [value(name, x.shape) for name in FUNCTIONS]
    file = save(model(nodes, [value("x", x.shape)], ends), tmp_path)
    found = compiled(file, tmp_path, {"x": x})
    for name, function in FUNCTIONS.items():
        with np.errstate(over="ignore"):
            right = function(x.astype(np.float64))
        error = np.abs(found[name] - right) / np.maximum(np.abs(right), LEAST)
        assert error.max() <= ALLOWED, (name, error.max(), x.ravel()[error.argmax()])


def test_no_step_calls_a_function_for_each_lane() -> None:
    target = Target.parse("wasm32")
    plain = parse_signature("conv1d-n1-i4x16-o8x16-k1-s1-d1-p0_0-g1-NXC-XIO-f32")
    for name in (*APPROXIMATED, *NUMBERS, "hardswish"):
        problem = plain.with_(epilogue=parse_epilogue(f"{name}{NUMBERS.get(name, '')}"))
        assert "fmaf" not in show("asm", problem, target, Choice("direct")), name


@needs_web
def test_functions_of_c_take_what_they_are_called_with(tmp_path: Path) -> None:
    """A module has a trap where a call and a function differ in types."""
    x = np.random.default_rng(0).standard_normal((1, 4, 12, 16)).astype(np.float32)
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["most"], **pool),
        helper.make_node("AveragePool", ["x"], ["mean"], **pool),
        helper.make_node("TopK", ["x", "three"], ["top", "places"], axis=-1),
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["x", "t"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "x"], ["attention"]),
        helper.make_node("Resize", ["x", "", "scales"], ["resized"], mode="linear"),
    ]
    ends = [value(name, None) for name in ("most", "mean", "top", "attention", "resized")]
    ends += [value("places", None, TensorProto.INT64)]
    weights = [
        numpy_helper.from_array(np.array([3]), "three"),
        numpy_helper.from_array(np.float32([1, 1, 2, 1.5]), "scales"),
    ]
    file = save(model(nodes, [value("x", x.shape)], ends, weights, opset=17), tmp_path)
    found = compiled(file, tmp_path, {"x": x})
    right = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert_near([found[each.name] for each in ends], right, 16, 2)
