"""A network's steps name the nodes of the model that they compute, and `run --profile` prints them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import fixed, model, save, value
from onnx import NodeProto, helper

import tvmconv
from tvmconv import cli
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import read_onnx

pytest.importorskip("onnxruntime")


def node(kind: str, name: str, *inputs: str, **attributes: object) -> NodeProto:
    """Return a node whose output has its name."""
    return helper.make_node(kind, list(inputs), [name], name, **attributes)


def steps_of(nodes: list[NodeProto], folder: Path, *weights: onnx.TensorProto) -> list[tuple[str, list[str]]]:
    """Return the functions of a model's network, and the nodes of each."""
    source = save(model(nodes, [value("x", [1, 4, 8, 8])], weights=weights), folder)
    build(read_onnx(source), folder / "network.so")
    description = tvmconv.load_network(folder / "network.so").description
    return [(each["function"].rstrip("0123456789"), each.get("nodes", [])) for each in description["steps"]]


def test_steps_name_nodes_of_branches_and_of_equal_functions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = [
        node("Conv", "left/conv", "x", "w", pads=[1] * 4),
        node("Conv", "right/conv", "x", "v", "b"),
        node("Relu", "left/relu", "left/conv"),
        node("Add", "sum", "left/relu", "right/conv"),
        node("MaxPool", "pool.1", "sum", kernel_shape=[2, 2]),
        node("Sin", "sin.1", "pool.1"),
        node("Mul", "mul.1", "sin.1", "pool.1"),
        node("Softmax", "softmax", "mul.1", axis=1),
        node("Sin", "sin.2", "softmax"),
        node("Mul", "mul.2", "sin.2", "softmax"),
        node("Split", "ignored", "mul.2", axis=1, num_outputs=2),
    ]
    joined[-1].output[:] = ["one", "two"]
    joined += [node("MaxPool", "pool.2", "one", kernel_shape=[2, 2]), node("Concat", "y", "pool.2", "pool.2", axis=1)]
    weights = [fixed("w", 4, 4, 3, 3), fixed("v", 4, 4, 1, 1), fixed("b", 4)]
    found = steps_of(joined, tmp_path, *weights)
    by_node = {name: function for function, names in found for name in names}
    assert {each.name for each in joined} <= {*by_node}
    assert by_node["left/conv"] == by_node["left/relu"] == by_node["right/conv"] == "tvmconv_convolution"
    kernels = [names for function, names in found if function == "tvmconv_convolution"]
    assert sorted(name for names in kernels for name in names) == ["left/conv", "left/relu", "right/conv", "sum"]
    # The softmax's division is joined, too.
    assert [names[-2:] for function, names in found if "sin" in function] == [["sin.1", "mul.1"], ["sin.2", "mul.2"]]

    library = str(tmp_path / "network.so")
    assert cli.main(["run", library, "--profile", "--seconds", "0.001", "--json"]) == 0
    assert [each["nodes"] for each in json.loads(capsys.readouterr().out)] == [names for _, names in found]
    assert cli.main(["run", library, "--profile", "--seconds", "0.001"]) == 0
    assert "sin.2, mul.2" in capsys.readouterr().out
    assert cli.main(["run", library, "--profile", "--bench"]) == 2


@pytest.mark.parametrize("seed", range(3))
def test_steps_of_a_chain_have_all_of_its_nodes_in_order(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    nodes: list[NodeProto] = []
    last = "x"
    for at in range(12):
        kind = draw.choice(("Conv", "Conv", "Relu", "Sin", "Tanh", "Scale", "MaxPool", "Softmax", "BatchNormalization"))
        name = f"{kind}/{at}"
        if kind == "Conv":
            nodes.append(node(kind, name, last, "w", pads=[1] * 4))
        elif kind == "Scale":
            nodes.append(node("Mul", name, last, "t"))
        elif kind == "MaxPool":
            nodes.append(node(kind, name, last, kernel_shape=[3, 3], pads=[1] * 4))
        elif kind == "BatchNormalization":
            nodes.append(node(kind, name, last, "s", "s", "s", "one"))
        else:
            nodes.append(node(kind, name, last, **({"axis": 1} if kind == "Softmax" else {})))
        last = name
    one = onnx.numpy_helper.from_array(np.ones(4, np.float32), "one")
    scale = onnx.numpy_helper.from_array(np.float32([0.5, 0.25, 2, 3]), "s")
    column = onnx.numpy_helper.from_array(np.float32([0.5, 0.25, 2, 3]).reshape(4, 1, 1), "t")
    found = steps_of(nodes, tmp_path, fixed("w", 4, 4, 3, 3), scale, one, column)
    assert all(names for _, names in found), found
    known = {each.name for each in nodes}
    ordered = list(dict.fromkeys(name for _, names in found for name in names))
    assert ordered == [each.name for each in nodes if each.name in known and each.name in ordered], seed
    assert {name for name in known if name.startswith(("Conv", "MaxPool", "Softmax"))} <= {*ordered}, seed


def test_steps_name_the_modules_of_a_pytorch_model(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import tvmconv.torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4))
            self.act = torch.nn.ReLU()

        def forward(self, x):
            return torch.sin(self.act(self.first(x) + x))

    blocks = torch.nn.Sequential(Block(), Block()).eval()
    tvmconv.torch.compile(blocks, (torch.zeros(1, 4, 8, 8),), tmp_path / "net.so")
    steps = tvmconv.load_network(tmp_path / "net.so").description["steps"]
    for at in range(2):
        (kernel,) = [
            each["nodes"]
            for each in steps
            if f"{at}.first.0: convolution" in each["nodes"] and "conv" in each["function"]
        ]
        assert [name.partition(":")[0] for name in kernel] == [f"{at}.first.0", f"{at}.first.1", f"{at}", f"{at}.act"]
    assert all(each["nodes"] for each in steps)
