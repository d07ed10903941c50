"""Parts of an ONNX model between operators that cannot be read, found in few rounds."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from models import fixed, model, save, value
from onnx import TensorProto
from onnx.helper import make_node as node

from tvmconv.errors import LackingOperatorsError, SourceError
from tvmconv.network.read.onnx import partition as onnx_parts
from tvmconv.network.read.onnx.partition import read_parts


@pytest.mark.parametrize("by_name", [True, False])
def test_many_operators_are_refused_in_few_rounds(by_name: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """500 nodes, each another: the model is cut twice, and each node and each part is read once beside the whole."""
    count, nodes = 500, []
    for number in range(count):
        nodes.append(node("MatMul", [f"t{number}" if number else "x", "w"], [f"g{number}"]))
        nodes.append(node("Elu", [f"g{number}"], [f"t{number + 1}"], alpha=1 + number / 8))
    path = save(model(nodes, [value("x", (3, 8))], [value(f"t{count}", (3, 8))], [fixed("w", 8, 8)]), tmp_path)
    read, rounds = [], []

    def as_relax(made: onnx.ModelProto, source: str, free: Any) -> Any:
        read.append([each.op_type for each in made.graph.node])
        if "Elu" in read[-1]:
            raise LackingOperatorsError("Elu", ["Elu"]) if by_name else SourceError("unreadable")
        return object()

    groups = onnx_parts._Cut._groups
    monkeypatch.setattr(onnx_parts, "as_relax", as_relax)
    monkeypatch.setattr(onnx_parts._Cut, "_groups", lambda self: rounds.append(1) or groups(self))
    parts = read_parts(path)
    assert [each.outputs for each in parts] == [(f"g{number}",) for number in range(count)]
    assert len(rounds) == 2
    assert len(read) == count + 2 + (0 if by_name else count + 1)


def test_a_reason_that_names_no_operator_refuses_that_part_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Tanh after Gemm cannot be read, either alone can: the part beside it, and the one behind what is lacking, stay."""
    nodes = [
        node("Gemm", ["x", "w"], ["g"]),
        node("Tanh", ["g"], ["y"]),
        node("Gemm", ["x", "u"], ["h"]),
        node("NonZero", ["h"], ["n"]),
        node("Shape", ["n"], ["s"]),
        node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        node("ReduceMax", ["f"], ["most"], keepdims=0),
        node("Mul", ["h", "most"], ["m"]),
        node("MatMul", ["m", "v"], ["z"]),
    ]
    outputs = [value("y", (3, 16)), value("z", (3, 4))]
    path = save(
        model(
            nodes,
            [value("x", (3, 8))],
            outputs,
            [fixed("w", 8, 16), fixed("v", 16, 4, seed=1), fixed("u", 8, 16, seed=3)],
        ),
        tmp_path,
    )

    def as_relax(made: onnx.ModelProto, source: str, free: Any) -> Any:
        kinds = {each.op_type for each in made.graph.node}
        if {"Gemm", "Tanh"} <= kinds:
            raise SourceError("unreadable")
        return object()

    monkeypatch.setattr(onnx_parts, "as_relax", as_relax)
    assert [each.outputs for each in read_parts(path)] == [("h",), ("z",)]
