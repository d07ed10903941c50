"""Models of a convolution and operators after it, and onnxruntime's answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import model, save, value
from near import assert_near
from onnx import NodeProto, helper, numpy_helper

from tvmconv import reference
from tvmconv.epilogue import format_epilogue
from tvmconv.frontends import SourceNode, read_model

CHANNELS = 6
ROOT = float(np.sqrt(2 / np.pi))


def make(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    """Return a node that is named as its operator and its output; of `inputs`, a hyphen is one that is left out."""
    names = [name.replace("-", "") for name in inputs.split()]
    return helper.make_node(op, names, [output], name=f"{op}_{output}", **attributes)


def fixed(rank: int = 2) -> dict[str, np.ndarray]:
    """Return the fixed tensors that the models' nodes may read."""
    rng = np.random.default_rng(5)
    ones = (1,) * rank
    numbers = {
        "half": 0.5, "one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "sixth": 1 / 6, "zero": 0, "minus": -0.25,
        "root": np.sqrt(2), "inverse": np.sqrt(0.5), "cubic": 0.044715, "pi": ROOT, "most": np.finfo(np.float32).max,
        "quick": 1.702, "nan": np.nan,
    }  # fmt: skip
    arrays = {name: np.array(number, np.float32) for name, number in numbers.items()}
    arrays |= {"halves": np.full((1,) * (rank + 2), 0.5, np.float32), "long": np.ones((1,) * (rank + 3), np.float32)}
    for name in ("vector", "factors", "slopes"):
        arrays[name] = rng.uniform(0.25, 2, (CHANNELS, *ones)).astype(np.float32)
    arrays["last"] = rng.uniform(1, 2, CHANNELS + 1).astype(np.float32)
    for name in "smvb":
        arrays[name] = rng.uniform(0.5, 2, CHANNELS).astype(np.float32)
    arrays["w"] = rng.standard_normal((CHANNELS, 4, *(3,) * rank)).astype(np.float32) / 4
    arrays["w2"] = rng.standard_normal((CHANNELS, CHANNELS, *ones)).astype(np.float32)
    return arrays


def built(
    nodes: Sequence[NodeProto], rank: int = 2, opset: int = 22, outputs: Sequence[str] = ("y",), **more: Any
) -> Any:
    """Return a model whose convolution ``conv`` computes c, and whose other nodes follow it."""
    conv = helper.make_node("Conv", ["x", "w"], ["c"], name="conv")
    read = {name for node in nodes for name in node.input} | {"w"}
    weights = [numpy_helper.from_array(array, name) for name, array in fixed(rank).items() if name in read]
    out = [value(name, None) for name in outputs]
    inputs = [value("x", (2, 4, *(7, 8, 5)[:rank])), *more.pop("inputs", [])]
    made = model([*more.pop("before", []), conv, *nodes], inputs, out, weights, **more)
    made.opset_import[0].version = opset
    return made


def run(path: str, outputs: Sequence[str]) -> dict[str, np.ndarray]:
    """Return tensors of a model, and its inputs, as onnxruntime computes them from random inputs."""
    onnxruntime = pytest.importorskip("onnxruntime")
    proto = onnx.load(path)
    declared = [each.name for each in proto.graph.output]
    proto.graph.output.extend(value(name, None) for name in outputs if name not in declared)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {
        each.name: rng.standard_normal(each.shape).astype({"tensor(float)": np.float32, "tensor(float16)": np.float16}[each.type])
        for each in session.get_inputs()
    }  # fmt: skip
    return feeds | dict(zip(outputs, session.run(list(outputs), feeds), strict=True))


def check(made: onnx.ModelProto, folder: Path, name: str = "conv") -> SourceNode:
    """Compare what a node computes, by its constants and the reference, with the tensor of the model that it names."""
    path = save(made, folder)
    nodes = read_model(path, with_constants=True).nodes
    (node,) = (each for each in nodes if each.name == name)
    assert read_model(path).nodes == nodes
    (data,) = (each.input[0] for each in made.graph.node if each.name == name)
    assert node.constants is not None
    found = node.constants()
    wanted = {data, found.output} | ({node.residual} if node.residual else set())
    inputs = {each.name for each in made.graph.input}
    tensors = run(path, sorted(wanted - inputs))
    residual = tensors[node.residual] if node.residual else None
    arrays = (found.filter, found.bias, found.scale, found.slope, residual)
    output = reference.compute(node.problem, tensors[data], *arrays)
    # Constants are folded, each by a few roundings of numbers that may be larger than what is left of them.
    assert_near(output, tensors[found.output], summed=node.problem.in_channels * 9, layers=8)
    assert all(array is None or array.dtype == np.float32 for array in (found.scale, found.slope))
    return node


def epilogue(node: SourceNode) -> str:
    return format_epilogue(node.problem.epilogue)
