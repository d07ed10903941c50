"""Nodes of ONNX files in any order: each reader sorts them, and tells a cycle."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from models import fixed, model, save, value
from onnx import helper, numpy_helper

import tvmconv.onnxruntime
from tvmconv.errors import SourceError
from tvmconv.frontends import read_model
from tvmconv.frontends.onnx.load import load

SEED = 20261128
node = helper.make_node


def branching() -> onnx.ModelProto:
    """Return a chain of convolutions with a branch, whose graphs read tensors around them."""
    branches = [
        helper.make_graph(
            [node("Conv", ["t2", "w"], [f"{op}_c"], pads=[1, 1, 1, 1]), node(op, [f"{op}_c", "t4"], [f"{op}_y"])],
            op,
            [],
            [value(f"{op}_y", None)],
        )
        for op in ("Add", "Mul")
    ]
    nodes = [
        node("Conv", ["x", "w"], ["t1"], pads=[1, 1, 1, 1]),
        node("Relu", ["t1"], ["t2"]),
        node("Conv", ["t2", "w"], ["t3"], pads=[1, 1, 1, 1]),
        node("Add", ["t3", "t1"], ["t4"]),
        node("If", ["yes"], ["t5"], then_branch=branches[0], else_branch=branches[1]),
        node("Neg", ["t5"], ["y"]),
    ]
    weights = [fixed("w", 4, 4, 3, 3), numpy_helper.from_array(np.array(True), "yes")]
    return model(nodes, [value("x", (1, 4, 5, 5))], [value("y", (1, 4, 5, 5))], weights)


def shuffled(made: onnx.ModelProto, number: int) -> onnx.ModelProto:
    generator = random.Random(SEED + number)

    def mix(graph: onnx.GraphProto) -> None:
        nodes = [onnx.NodeProto.FromString(each.SerializeToString()) for each in graph.node]
        for each in nodes:
            for attribute in each.attribute:
                if attribute.HasField("g"):
                    mix(attribute.g)
        generator.shuffle(nodes)
        del graph.node[:]
        graph.node.extend(nodes)

    copy = onnx.ModelProto()
    copy.CopyFrom(made)
    mix(copy.graph)
    return copy


@pytest.mark.parametrize("number", range(8))
def test_any_order(number: int, tmp_path: Path) -> None:
    made = branching()
    given = shuffled(made, number)
    loaded = load(given.SerializeToString(), "model")
    onnx.checker.check_model(loaded)  # which wants them in order
    x = {"x": np.random.default_rng(number).integers(-2, 3, (1, 4, 5, 5)).astype(np.float32)}
    first, second = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, x)
        for each in (made, loaded)
    )
    np.testing.assert_array_equal(first, second)
    expected = {node.problem for node in read_model(save(made, tmp_path)).nodes}
    path = save(given, tmp_path)
    assert {node.problem for node in read_model(path).nodes} == expected
    assert onnx.load_from_string(tvmconv.onnxruntime.with_shapes(path)).graph.node == loaded.graph.node


def test_what_is_in_order_stays_as_it_is() -> None:
    made = branching()
    assert load(made.SerializeToString(), "model") == made


def test_a_chain_of_thousands_backwards() -> None:
    nodes = [node("Neg", [f"t{number}"], [f"t{number + 1}"]) for number in range(5000)]
    made = model(nodes[::-1], [value("t0", (3,))], [value("t5000", (3,))])
    assert list(load(made.SerializeToString(), "model").graph.node) == nodes


@pytest.mark.parametrize("inside", [False, True])
def test_a_cycle_is_told(inside: bool) -> None:
    nodes = [node("Abs", ["c"], ["behind"])]
    nodes += [node("Add", ["x", "c"], ["a"]), node("Neg", ["a"], ["b"]), node("Relu", ["b"], ["c"])]
    outputs = [value("c", (3,))]
    if inside:
        graph = helper.make_graph(nodes, "inside", [], outputs)
        nodes = [node("If", ["yes"], ["y"], then_branch=graph, else_branch=graph)]
        outputs = [value("y", (3,))]
    weights = [numpy_helper.from_array(np.array(True), "yes")]
    with pytest.raises(SourceError, match=r"^model: the graph is a cycle: the Relu node 'c' needs its own output$"):
        load(model(nodes, [value("x", (3,))], outputs, weights).SerializeToString(), "model")
