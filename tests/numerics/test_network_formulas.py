"""Normalizations that exporters write as many operators, in one network: recognised as one, or computed as written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import model, save, value
from onnx import NodeProto, helper, numpy_helper
from tvm import relax

from tvmconv.network.compile import export
from tvmconv.network.ir.graph import Graph
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes
from tvmconv.network.rewrite.recognise_normalization import find_normalization
from tvmconv.runtime.networks.network import load_network

pytest.importorskip("onnxruntime")
from tvmconv.network.read.onnx import compare as compared

node = helper.make_node
RNG = np.random.default_rng(0)
# As PyTorch writes a normalization of layers up to opset 16, and what else there is, of x with the mean m, taken off as d.
MEAN = ["m = ReduceMean x", "d = Sub x m"]
SQUARE = ["s = Pow d two", "v = ReduceMean s"]
ROOT = ["e = Add v epsilon", "r = Sqrt e"]
SPELLINGS = {
    "layer": [*MEAN, *SQUARE, *ROOT, "n = Div d r", "g = Mul n scale", "y = Add g shift"],
    "squared": [*MEAN, "s = Mul d d", "v = ReduceMean s", *ROOT, "f = Reciprocal r", "n = Mul d f", "y = Mul n scale"],
    "summed": ["t = ReduceSum x", "m = Mul t eighth", "d = Sub x m", *SQUARE, *ROOT, "n = Div d r", "y = Add shift n"],
    "moments": ["m = ReduceMean x", "q = Mul x x", "p = ReduceMean q", "o = Mul m m", "v = Sub p o", "d = Sub x m", *ROOT, "y = Div d r"],
    "rms": ["s = Pow x two", "v = ReduceMean s", *ROOT, "n = Div x r", "y = Mul scale n"],
    # Of these none is recognised: epsilon is added after the root, the variance has one element less, another operator is between.
    "after": [*MEAN, *SQUARE, "r = Sqrt v", "e = Add r epsilon", "y = Div d e"],
    "unbiased": [*MEAN, *SQUARE, "u = Mul v more", "e = Add u epsilon", "r = Sqrt e", "y = Div d r"],
    "bounded": [*MEAN, "c = Relu d", "s = Pow c two", "v = ReduceMean s", *ROOT, "y = Div d r"],
}  # fmt: skip


def nodes_of(spelling: str, data: str, axis: int) -> list[NodeProto]:
    """Return a spelling's nodes, which read `data`."""
    made = []
    for line in SPELLINGS[spelling]:
        output, _, op, *inputs = line.split()
        names = [data if each == "x" else f"{spelling}{axis}_{each}" if len(each) == 1 else each for each in inputs]
        names = [f"{each}{axis}" if each in ("scale", "shift") else each for each in names]
        attributes = {"axes": [axis]} if op == "ReduceMean" else {}
        if op == "ReduceSum":  # as opset 13 has it
            names.append(f"axis{axis}")
        made.append(node(op, names, [f"{spelling}{axis}_{output}"], **attributes))
    return made


def test_normalizations_by_their_formulas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    # Of a part of a convolution's channels each; rows along them, then along the last axis of what is transposed.
    parts = [f"{spelling}{axis}" for spelling in SPELLINGS for axis in (1, -1)] + ["moved"]
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Split", ["c"], [f"{part}_x" for part in parts], axis=1)]
    for spelling in SPELLINGS:
        nodes.append(node("Transpose", [f"{spelling}-1_x"], [f"{spelling}_last"], perm=[0, 2, 3, 1]))
        nodes += nodes_of(spelling, f"{spelling}1_x", 1) + nodes_of(spelling, f"{spelling}_last", -1)
    # As onnxruntime leaves one that is transposed after the mean is taken off.
    nodes += [node("ReduceMean", ["moved_x"], ["am"], axes=[1]), node("Sub", ["moved_x", "am"], ["ad"]), node("Transpose", ["ad"], ["at"], perm=[0, 2, 3, 1])]  # fmt: skip
    nodes += [node("Pow", ["at", "two"], ["as"]), node("ReduceMean", ["as"], ["av"], axes=[-1])]
    nodes += [node("Add", ["av", "epsilon"], ["ae"]), node("Sqrt", ["ae"], ["ar"]), node("Div", ["at", "ar"], ["moved_y"])]  # fmt: skip
    outputs = [f"{part}_y" for part in parts]
    numbers = {"two": 2, "epsilon": 1e-2, "eighth": 1 / 8, "more": 8 / 7, "axis1": [1], "axis-1": [-1]}
    constants = {name: np.array(each, np.int64 if "axis" in name else np.float32) for name, each in numbers.items()}
    vectors = RNG.standard_normal((2, 8), np.float32)
    constants |= {f"{name}-1": each for name, each in zip(("scale", "shift"), vectors, strict=True)}
    constants |= {f"{name}1": each.reshape(8, 1, 1) for name, each in zip(("scale", "shift"), vectors, strict=True)}
    constants["w"] = RNG.standard_normal((8 * len(parts), 3, 3, 3), np.float32)
    weights = [numpy_helper.from_array(each, name) for name, each in constants.items()]
    source = save(
        model(nodes, [value("x", [1, 3, 6, 5])], [value(name, None) for name in outputs], weights, opset=13), tmp_path
    )
    proto = fix_shapes(source)
    module = use_kernels(as_relax(proto, source))
    export(module, tmp_path / "network.so")
    assert compared.differences(proto, load_network(tmp_path / "network.so")) == []
    graph = Graph(module["main"])
    names = [call.op.name for each in graph.values if (call := graph.call(each)) is not None]
    assert names.count("relax.nn.layer_norm") == 9 and names.count("relax.nn.rms_norm") == 2, names
    assert names.count("relax.divide") == 6


def test_their_numbers_are_found() -> None:
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((2, 5, 1), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            square = builder.emit(relax.op.mean(builder.emit(relax.op.multiply(data, data)), [1], keepdims=True))
            root = builder.emit(relax.op.rsqrt(builder.emit(relax.op.add(square, relax.const(1e-6)))))
            output = builder.emit_output(relax.op.multiply(data, root))
        builder.emit_func_output(output)
    graph = Graph(builder.finalize()["main"])
    (found,) = [found for each in graph.values if (found := find_normalization(each, graph))]
    assert (found.axis, found.takes_mean, found.order) == (1, False, (0, 1, 2))
    assert found.epsilon == pytest.approx(1e-6, rel=1e-4)
