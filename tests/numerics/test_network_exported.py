"""Nodes as exporters write them, in a network whose layout changes, and networks that are cut."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import model, save, value
from onnx import helper, numpy_helper

from tvmconv import cli
from tvmconv.errors import SourceError
from tvmconv.network.compile import build
from tvmconv.network.ir.graph import Graph
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes, read_onnx
from tvmconv.network.report import report
from tvmconv.runtime.networks.network import load_network

pytest.importorskip("onnxruntime")
from tvmconv.network.read.onnx import compare as compared

node = helper.make_node
RNG = np.random.default_rng(0)


def constant(name: str, array: Any) -> onnx.TensorProto:
    """Return a constant."""
    return numpy_helper.from_array(np.asarray(array), name)


def exported(
    nodes: Sequence[onnx.NodeProto],
    folder: Path,
    *constants: onnx.TensorProto,
    outputs: Sequence[str] = (),
    opset: int = 17,
) -> str:
    """Return the path of a model whose nodes read `c`, 8 channels of 6x5 that a convolution gives."""
    filter_ = constant("w", RNG.standard_normal((8, 3, 3, 3), np.float32))
    convolution = node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
    given = [value(name, None) for name in outputs] or None
    made = model([convolution, *nodes], [value("x", [1, 3, 6, 5])], given, [filter_, *constants], opset=opset)
    return save(made, folder)


def differences(source: str, folder: Path, cut: Sequence[str] = ()) -> list[str]:
    """Return what differs between a compiled model and onnxruntime."""
    proto = fix_shapes(source, cut=cut)
    build(as_relax(proto, source), folder / "network.so")
    return compared.differences(proto, load_network(folder / "network.so"))


@pytest.fixture(autouse=True)
def _no_records_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_sums_and_means_of_several_tensors(tmp_path: Path) -> None:
    nodes = [node("Relu", ["c"], ["r"]), node("Sum", ["c", "r", "b"], ["s"]), node("Mean", ["s", "c", "r"], ["y"])]
    source = exported(nodes, tmp_path, constant("b", RNG.standard_normal((8, 1, 1), np.float32)))
    assert differences(source, tmp_path) == []


def test_a_sum_of_two_convolutions_is_part_of_the_later_one(tmp_path: Path) -> None:
    nodes = [node("Conv", ["c", "v"], ["d"]), node("Sum", ["d", "c"], ["s"]), node("Relu", ["s"], ["y"])]
    source = exported(nodes, tmp_path, constant("v", RNG.standard_normal((8, 8, 1, 1), np.float32)))
    signatures = [row.signature for row in report(use_kernels(read_onnx(source), math="strict"))]
    assert len(signatures) == 2 and "add" in signatures[-1] and "relu" in signatures[-1], signatures


@pytest.mark.parametrize("beyond", [8, 100])
def test_a_shuffle_of_channels_needs_no_other_layout(beyond: int, tmp_path: Path) -> None:
    nodes = [
        node("Slice", ["c", "from", "to", "axis"], ["s"]), node("Split", ["s"], ["l", "r"], axis=1),
        node("Conv", ["r", "v"], ["m"]), node("Concat", ["l", "m"], ["j"], axis=1),
        node("Reshape", ["j", "cut"], ["t"]), node("Transpose", ["t"], ["u"], perm=[0, 2, 1, 3, 4]), node("Reshape", ["u", "whole"], ["h"]),
        node("Conv", ["h", "v2"], ["y"]),
    ]  # fmt: skip
    constants = [constant(f"v{at}", RNG.standard_normal((4, 4 * (1 + bool(at)), 1, 1), np.float32)) for at in ("", "2")]
    constants += [constant("cut", [1, 2, 4, 6, 5]), constant("whole", [1, 8, 6, 5])]
    constants += [constant("from", [0]), constant("to", [beyond]), constant("axis", [1])]
    source = exported(nodes, tmp_path, *constants)
    assert differences(source, tmp_path) == []
    module = use_kernels(as_relax(fix_shapes(source), source))
    graph = Graph(module["main"])
    moved = [each for each in graph.values if graph.call(each, "relax.permute_dims") is not None]
    assert len(moved) == 3  # of the input, in the shuffle, and of the output


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("before", ["Relu", "Add", "Identity"])
def test_a_pixel_shuffle_moves_pixels_once(before: str, mode: str, tmp_path: Path) -> None:
    nodes = [
        node(before, ["c", "b"] if before == "Add" else ["c"], ["r"]),
        node("DepthToSpace", ["r"], ["d"], blocksize=2, mode=mode), node("Conv", ["d", "v"], ["y"]),
    ]  # fmt: skip
    constants = [constant("v", RNG.standard_normal((4, 2, 1, 1), np.float32))]
    constants += [constant("b", RNG.standard_normal((1, 8, 1, 1), np.float32))] if before == "Add" else []
    source = exported(nodes, tmp_path, *constants)
    assert differences(source, tmp_path) == []
    graph = Graph(use_kernels(as_relax(fix_shapes(source), source))["main"])
    moved = [each for each in graph.values if graph.call(each, "relax.permute_dims") is not None]
    assert len(moved) <= 3  # of the input, in the shuffle, and of the output


def test_rows_that_are_replaced_keep_their_indices(tmp_path: Path) -> None:
    indices = np.stack(np.meshgrid([0], range(8), [1, 3, 5], range(5), indexing="ij"), -1)
    rows = constant("rows", RNG.standard_normal((1, 8, 3, 5), np.float32))
    nodes = [node("ScatterND", ["c", "i", "rows"], ["s"]), node("Conv", ["s", "v"], ["y"])]
    filter_ = constant("v", RNG.standard_normal((4, 8, 1, 1), np.float32))
    assert differences(exported(nodes, tmp_path, constant("i", indices), rows, filter_), tmp_path) == []


def test_scattered_elements_that_are_fewer_than_the_data(tmp_path: Path) -> None:
    indices = constant("i", RNG.integers(-8, 8, (1, 2, 3, 4)))
    updates = constant("u", RNG.standard_normal((1, 2, 3, 4), np.float32))
    nodes = [
        node("ScatterElements", ["c", "i", "u"], ["s"], axis=1, reduction="add"),
        node("Conv", ["s", "v"], ["y"]),
    ]
    filter_ = constant("v", RNG.standard_normal((4, 8, 1, 1), np.float32))
    assert differences(exported(nodes, tmp_path, indices, updates, filter_, opset=18), tmp_path) == []


def test_a_class_as_a_vector_has_the_type_of_its_values(tmp_path: Path) -> None:
    nodes = [
        node("ArgMax", ["c"], ["a"], axis=1, keepdims=0),
        node("OneHot", ["a", "depth", "values"], ["o"], axis=1),
        node("Mul", ["o", "c"], ["y"]),
    ]
    constants = constant("depth", np.int64(8)), constant("values", np.array([0, 1], np.float32))
    assert differences(exported(nodes, tmp_path, *constants), tmp_path) == []


def test_optional_outputs(tmp_path: Path) -> None:
    pool = node("MaxPool", ["c"], ["p", "indices"], kernel_shape=[2, 2])
    assert differences(exported([pool], tmp_path, outputs=["p"]), tmp_path) == []
    indices = node("Cast", ["indices"], ["y"], to=1)
    assert differences(exported([pool, indices], tmp_path, outputs=["p", "y"]), tmp_path) == []
    scale = constant("scale", np.ones(5, np.float32))
    more = node("LayerNormalization", ["c", "scale"], ["l", "mean", "scales"], axis=3, epsilon=1e-3)
    nodes = [more, node("Add", ["mean", "scales"], ["y"])]
    assert differences(exported(nodes, tmp_path, scale, outputs=["l", "y"]), tmp_path) == []


def test_a_detector_is_cut_before_its_boxes_are_selected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        node("Split", ["c", "parts"], ["b", "s"], axis=1),
        node("Reshape", ["b", "rows"], ["the boxes"]),
        node("Reshape", ["s", "classes"], ["scores"]),
        node("NonMaxSuppression", ["the boxes", "scores"], ["rows of boxes"], "select"),
        node("Cast", ["rows of boxes"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    constants = constant("parts", [4, 4]), constant("rows", [1, 30, 4]), constant("classes", [1, 4, 30])
    source = exported(nodes, tmp_path, *constants)
    with pytest.raises(SourceError, match=r"the NonMaxSuppression node 'select' .* \(--cut 'the boxes' --cut scores\)"):
        read_onnx(source)
    command = ["compile", source, "-o", str(tmp_path / "network.so")]
    assert cli.main([*command, "--cut", "the boxes", "--cut", "scores"]) == 0
    assert [each.name for each in load_network(tmp_path / "network.so").outputs] == ["the boxes", "scores"]
    assert cli.main([*command, "--cut", "score"]) == 2
    assert "no node gives a tensor 'score', but 'scores'" in capsys.readouterr().err
