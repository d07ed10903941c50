"""The activations, products and normalizations that are fused into a convolution: each as onnxruntime computes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from followed import built, check, epilogue, fixed, make
from models import model, save, value
from onnx import TensorProto, helper, numpy_helper

from tvmconv.frontends import read_model

# What follows c, as (operator, inputs, output, attributes), the epilogue, and whether there is a bias.
NORMALIZED = ("BatchNormalization", "c s b m v", "n", {})
ADDED = ("Add", "c vector", "n", {})
PATTERNS: dict[str, tuple[list[tuple[str, str, str, dict[str, Any]]], str, bool]] = {
    "relu": ([("Relu", "c", "y", {})], "relu", False),
    "sigmoid": ([("Sigmoid", "c", "y", {})], "sigmoid", False),
    "tanh": ([("Tanh", "c", "y", {})], "tanh", False),
    "leaky": ([("LeakyRelu", "c", "y", {})], "leaky_0.01", False),
    "leaky, given": ([("LeakyRelu", "c", "y", {"alpha": 0.2})], "leaky_0.2", False),
    "elu": ([("Elu", "c", "y", {})], "elu_1", False),
    "elu, given": ([("Elu", "c", "y", {"alpha": 0.5})], "elu_0.5", False),
    "hardsigmoid": ([("HardSigmoid", "c", "y", {})], "hardsigmoid_0.2_0.5", False),
    "hardsigmoid, given": ([("HardSigmoid", "c", "y", {"alpha": 0.25})], "hardsigmoid_0.25_0.5", False),
    "hardswish": ([("HardSwish", "c", "y", {})], "hardswish", False),
    "gelu": ([("Gelu", "c", "y", {})], "gelu", False),
    "gelu, tanh": ([("Gelu", "c", "y", {"approximate": "tanh"})], "gelu_tanh", False),
    "clip": ([("Clip", "c zero six", "y", {})], "clip_0_6", False),
    "clip from below": ([("Clip", "c minus", "y", {})], "clip_-0.25_inf", False),
    "clip from above": ([("Clip", "c - half", "y", {})], "clip_-inf_0.5", False),
    "clip by the largest number": ([("Clip", "c zero most", "y", {})], "relu", False),
    "prelu of a number": ([("PRelu", "c halves", "y", {})], "leaky_0.5", False),
    "prelu of channels": ([("PRelu", "c slopes", "y", {})], "prelu", False),
    "bn": ([("BatchNormalization", "c s b m v", "y", {"epsilon": 0.1})], "", True),
    "bn relu": ([NORMALIZED, ("Relu", "n", "y", {})], "relu", True),
    "bn mul add clip": (
        [NORMALIZED, ("Mul", "n factors", "o", {}), ("Add", "vector o", "p", {}), ("Clip", "p zero six", "y", {})], "clip_0_6", True,
    ),
    "mul": ([("Mul", "factors c", "n", {}), ("Relu", "n", "y", {})], "relu", False),
    "mul by a number": ([("Mul", "c halves", "n", {}), ("Tanh", "n", "y", {})], "tanh", False),
    "bias leaky scale": ([ADDED, ("LeakyRelu", "n", "o", {}), ("Mul", "o factors", "y", {})], "leaky_0.01-scale", True),
    "relu scale by a number": ([("Relu", "c", "o", {}), ("Mul", "half o", "y", {})], "relu-scale", False),
    "scale twice": ([("Relu", "c", "o", {}), ("Mul", "o factors", "p", {}), ("Mul", "p factors", "y", {})], "relu-scale", False),
    "silu": ([("Sigmoid", "c", "n", {}), ("Mul", "c n", "y", {})], "silu", False),
    "silu, the other way": ([("Sigmoid", "c", "n", {}), ("Mul", "n c", "y", {})], "silu", False),
    "bn silu": ([NORMALIZED, ("Sigmoid", "n", "o", {}), ("Mul", "n o", "y", {})], "silu", True),
    "hardsigmoid mul": ([("HardSigmoid", "c", "n", {"alpha": 1 / 6}), ("Mul", "c n", "y", {})], "hardswish", False),
    "clip, mul, div": (
        [("Add", "c three", "n", {}), ("Clip", "n zero six", "o", {}), ("Mul", "c o", "p", {}), ("Div", "p six", "y", {})], "hardswish", False,
    ),
    "clip, div, mul": (
        [("Add", "three c", "n", {}), ("Clip", "n zero six", "o", {}), ("Div", "o six", "p", {}), ("Mul", "c p", "y", {})], "hardswish", False,
    ),
    "clip, sixth, mul": (
        [("Add", "c three", "n", {}), ("Clip", "n zero six", "o", {}), ("Mul", "o sixth", "p", {}), ("Mul", "p c", "y", {})], "hardswish", False,
    ),
    "clip of a sixth": (
        [("Div", "c six", "n", {}), ("Add", "n half", "o", {}), ("Clip", "o zero one", "p", {}), ("Mul", "c p", "y", {})], "hardswish", False,
    ),
    "hardsigmoid in parts": ([("Add", "c three", "n", {}), ("Clip", "n zero six", "o", {}), ("Div", "o six", "y", {})], "hardsigmoid_0.16666667_0.5", False),
    # As PyTorch's exporter writes it before opset 20.
    "erf": (
        [("Div", "c root", "n", {}), ("Erf", "n", "o", {}), ("Add", "o one", "p", {}), ("Mul", "c p", "q", {}), ("Mul", "q half", "y", {})], "gelu", False,
    ),
    "erf, half first": (
        [("Mul", "half c", "h", {}), ("Mul", "c inverse", "n", {}), ("Erf", "n", "o", {}), ("Add", "one o", "p", {}), ("Mul", "h p", "y", {})], "gelu", False,
    ),
    "erf, half of the sum": (
        [("Div", "c root", "n", {}), ("Erf", "n", "o", {}), ("Add", "o one", "p", {}), ("Mul", "p half", "q", {}), ("Mul", "c q", "y", {})], "gelu", False,
    ),
    "erf, divided by two": (
        [("Div", "c root", "n", {}), ("Erf", "n", "o", {}), ("Add", "o one", "p", {}), ("Mul", "p c", "q", {}), ("Div", "q two", "y", {})], "gelu", False,
    ),
    "tanh gelu by pow": (
        [("Pow", "c three", "k", {}), ("Mul", "k cubic", "l", {}), ("Add", "c l", "m2", {}), ("Mul", "m2 pi", "n", {}), ("Tanh", "n", "o", {}),
         ("Add", "o one", "p", {}), ("Mul", "c half", "h", {}), ("Mul", "h p", "y", {})], "gelu_tanh", False,
    ),
    "tanh gelu by mul": (
        [("Mul", "c c", "j", {}), ("Mul", "j c", "k", {}), ("Mul", "cubic k", "l", {}), ("Add", "c l", "m2", {}), ("Mul", "pi m2", "n", {}),
         ("Tanh", "n", "o", {}), ("Add", "one o", "p", {}), ("Mul", "c p", "q", {}), ("Mul", "q half", "y", {})], "gelu_tanh", False,
    ),
    "relu sigmoid": ([("Relu", "c", "n", {}), ("Sigmoid", "n", "y", {})], "relu-sigmoid", False),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str, tmp_path: Path) -> None:
    parts, expected, bias = PATTERNS[name]
    nodes = [make(op, inputs, output, **attributes) for op, inputs, output, attributes in parts]
    node = check(built(nodes), tmp_path)
    assert (epilogue(node), node.problem.bias) == (expected, bias)
    taken = len(nodes) - (name == "scale twice")  # an epilogue takes one such array
    assert node.serves[0] == "conv" and {*node.serves[1:]} == {each.name for each in nodes[:taken]}
    assert node.constants is not None and node.constants().output == nodes[taken - 1].output[0]


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int, tmp_path: Path) -> None:
    nodes = [make("Add", "c vector", "n"), make("PRelu", "n slopes", "o"), make("Mul", "o factors", "y")]
    node = check(built(nodes, rank), tmp_path)
    assert (epilogue(node), node.problem.bias) == ("prelu-scale", True)


def drawn(rng: np.random.Generator) -> list[onnx.NodeProto]:
    """Return nodes that compute y of c, each of two of the tensors before it or of one and a number."""
    names, nodes = ["c"], []
    for number in range(rng.integers(1, 6)):
        op = rng.choice(
            ["Add", "Sub", "Mul", "Div", "Max", "Min", "Relu", "Sigmoid", "Tanh", "Erf", "Clip", "HardSigmoid", "Neg"]
        )
        one = names[-1] if rng.random() < 0.8 else rng.choice(names)
        other = (
            rng.choice(names)
            if rng.random() < 0.3
            else rng.choice(["half", "one", "three", "six", "root", "vector", "minus"])
        )
        inputs = {"Clip": f"{one} zero {rng.choice(['one', 'six', 'most'])}"}.get(op, one)
        if op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
            inputs = f"{one} {other}" if rng.random() < 0.7 or op == "Div" else f"{other} {one}"
        names.append(f"t{number}")
        nodes.append(make(str(op), inputs, names[-1]))
    nodes[-1].output[0] = "y"
    return nodes


def test_drawn_formulas(tmp_path: Path) -> None:
    """Compare fused formulas with onnxruntime."""
    fused = 0
    for seed in range(80):
        print("seed", seed)
        fused += len(check(built(drawn(np.random.default_rng(seed))), tmp_path).serves) > 1
    assert fused > 30


def test_attributes_of_old_models(tmp_path: Path) -> None:
    node = check(built([make("Clip", "c", "y", min=-1.0, max=2.0)], opset=10), tmp_path)
    assert epilogue(node) == "clip_-1_2"
    node = check(built([make("Clip", "c", "y", min=0.0)], opset=10), tmp_path)
    assert epilogue(node) == "relu"


def test_a_transposed_convolution_with_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    arrays = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        **{n: fixed()[n] for n in ("factors", "vector")},
    }
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w"], ["c"], name="conv", group=2),
        *(make("Mul", "c factors", "n"), make("Add", "n vector", "o"), make("Relu", "o", "y")),
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    node = check(model(nodes, [value("x", (2, 4, 5, 6))], weights=weights), tmp_path)
    assert (epilogue(node), node.problem.bias, len(node.serves)) == ("relu", True, 4)


def test_constants_may_be_computed(tmp_path: Path) -> None:
    """Bounds of Constant nodes, and a factor that is a weight with more dimensions."""
    nodes = [
        helper.make_node("Constant", [], ["lo"], value_float=-1.0),
        helper.make_node("Mul", ["lo", "lo"], ["hi"]),
        make("Clip", "c lo hi", "y"),
    ]
    assert epilogue(check(built(nodes), tmp_path)) == "clip_-1_1"


def test_half(tmp_path: Path) -> None:
    """In f16, the numbers of a formula are those of f16."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        *(make("Div", "c root", "n"), make("Erf", "n", "o"), make("Add", "o one", "p")),
        *(make("Mul", "c p", "q"), make("Mul", "q half", "y")),
    ]
    read = {name for node in nodes for name in node.input}
    weights = [numpy_helper.from_array(a.astype(np.float16), n) for n, a in fixed().items() if n in read]
    made = model(
        nodes, [value("x", (1, 4, 6, 6), TensorProto.FLOAT16)], [value("y", None, TensorProto.FLOAT16)], weights
    )
    (node,) = read_model(save(made, tmp_path)).nodes
    assert (epilogue(node), node.problem.dtype) == ("gelu", "f16")
