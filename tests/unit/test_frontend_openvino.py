"""OpenVINO IR: its four operations and their rules of padding, against OpenVINO's own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvmconv import reference
from tvmconv.errors import SourceError
from tvmconv.frontends import read_model

ov = pytest.importorskip("openvino")
opset: Any = ov.opset1 if hasattr(ov, "opset1") else pytest.importorskip("openvino.opset1")


def save(result: Any, inputs: list[Any], folder: Path, **options: Any) -> str:
    path = folder / "model.xml"
    ov.save_model(ov.Model([result], inputs), path, compress_to_fp16=options.get("compress_to_fp16", False))
    return str(path)


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Return small whole numbers, whose sums are exact."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


def convolution(taps: tuple[int, ...], groups: bool = False, **attributes: Any) -> Any:
    """Return what makes a convolution of a parameter."""
    given = {"strides": [2, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1], **attributes}
    make = opset.group_convolution if groups else opset.convolution
    return lambda data: make(data, opset.constant(numbers(taps)), **given)


def backprop(
    taps: tuple[int, ...], groups: bool = False, output_shape: list[int] | None = None, **attributes: Any
) -> Any:
    """Return what makes a transposed convolution of a parameter."""
    given = {"strides": [2, 3], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1], **attributes}
    if output_shape is not None:
        given["output_shape"] = opset.constant(np.array(output_shape, np.int64))
    make = opset.group_convolution_backprop_data if groups else opset.convolution_backprop_data
    return lambda data: make(data, opset.constant(numbers(taps)), **given)


CASES = {
    "dense": convolution((6, 4, 3, 3), pads_begin=[1, 0], pads_end=[0, 2], dilations=[1, 2]),
    "same_upper": convolution((6, 4, 4, 3), auto_pad="same_upper"),
    "same_lower": convolution((6, 4, 4, 3), auto_pad="same_lower"),
    "valid": convolution((6, 4, 3, 3), auto_pad="valid", pads_begin=[1, 1]),
    "groups": convolution((2, 3, 2, 3, 3), groups=True),
    "depthwise": convolution((4, 1, 1, 3, 3), groups=True, auto_pad="same_upper"),
    "backprop": backprop((4, 5, 3, 3), pads_begin=[1, 0], pads_end=[0, 1], output_padding=[1, 0]),
    "backprop valid": backprop((4, 5, 3, 3), auto_pad="valid"),
    "backprop same": backprop((4, 5, 3, 4), auto_pad="same_upper"),
    "backprop same_upper": backprop((4, 5, 3, 4), output_shape=[15, 24], auto_pad="same_upper"),
    "backprop same_lower": backprop((4, 5, 3, 4), output_shape=[15, 24], auto_pad="same_lower"),
    "backprop kept pads": backprop((4, 5, 3, 4), output_shape=[14, 20], pads_begin=[2, 1]),
    "backprop groups": backprop((2, 2, 3, 3, 3), groups=True, pads_begin=[1, 1], pads_end=[1, 1]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shapes_by", ["infer", "run"])
def test_the_answers_are_openvinos(name: str, shapes_by: str, tmp_path: Path) -> None:
    data = opset.parameter([2, 4, 8, 7], np.float32, name="data")
    path = save(CASES[name](data), [data], tmp_path)
    (node,) = read_model(path, shapes_by=shapes_by, with_constants=True).nodes
    assert node.constants is not None
    constants, values = node.constants(), numbers((2, 4, 8, 7))
    expected = ov.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([values])[0]
    np.testing.assert_array_equal(reference.compute(node.problem, values, constants.filter), expected)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (6, 1, 1)])
def test_an_added_constant_is_the_bias(compressed: bool, shape: tuple[int, ...], tmp_path: Path) -> None:
    data = opset.parameter([-1, 4, -1, 7], np.float32, name="data")
    added = opset.add(opset.constant(numbers(shape)), CASES["dense"](data))
    path = save(added, [data], tmp_path, compress_to_fp16=compressed)
    (node,) = read_model(path, shapes={"": (2, 4, 8, 7)}, with_constants=True).nodes
    assert node.problem.bias and node.problem.dtype == "f32" and node.constants is not None
    constants, values = node.constants(), numbers((2, 4, 8, 7))
    expected = ov.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([values])[0]
    output = reference.compute(node.problem, values, constants.filter, constants.bias)
    np.testing.assert_array_equal(output, expected)


def test_what_is_added_from_elsewhere_is_no_bias(tmp_path: Path) -> None:
    data = opset.parameter([2, 4, 8, 7], np.float32, name="data")
    other = opset.parameter([1, 6, 1, 1], np.float32, name="other")
    path = save(opset.add(CASES["dense"](data), other), [data, other], tmp_path)
    (node,) = read_model(path).nodes
    assert not node.problem.bias


def test_layers_that_networks_lack_are_around_convolutions(tmp_path: Path) -> None:
    """Of those the types and shapes are known: what is before and behind is read."""
    data = opset.parameter([2, 4, 8, 7], np.float32, name="data")
    first = CASES["dense"](data)
    moved = ov.opset2.reorg_yolo(ov.opset1.pad(opset.relu(first), [0] * 4, [0, 0, 0, 1], "constant"), [2])
    last = convolution((3, 24, 1, 1))(moved)
    path = save(opset.relu(last), [data], tmp_path)
    nodes = read_model(path).nodes
    assert [(node.problem.in_channels, [step.name for step in node.problem.epilogue]) for node in nodes] == [
        (4, ["relu"]), (24, ["relu"]),
    ]  # fmt: skip


@pytest.mark.parametrize("has_convolution", [True, False])
def test_bodies_are_skipped_for_their_convolutions_alone(has_convolution: bool, tmp_path: Path) -> None:
    condition, data = (opset.parameter(shape, dtype) for shape, dtype in (([], bool), ([2, 4, 8, 7], np.float32)))
    branches = []
    for make in (CASES["dense"] if has_convolution else opset.relu, opset.relu):
        given = opset.parameter([2, 4, 8, 7], np.float32)
        branches.append((ov.Model([make(given)], [given]), given))
    (then, first), (otherwise, second) = branches
    choice = ov.opset8.if_op(condition.output(0))
    choice.set_then_body(then)
    choice.set_else_body(otherwise)
    choice.set_input(data.output(0), first, second)
    result = choice.set_output(then.results[0], otherwise.results[0])
    model = read_model(save(opset.relu(result), [condition, data], tmp_path))
    assert not model.nodes and [each.op_type for each in model.skipped] == ["If"] * has_convolution


def test_free_shapes_and_files_that_are_none(tmp_path: Path) -> None:
    data = opset.parameter([-1, 4, -1, 7], np.float32, name="data")
    path = save(CASES["dense"](data), [data], tmp_path)
    (skipped,) = read_model(path).skipped
    assert "unknown extents" in skipped.reason and "--shape data=1x4x256x7" in skipped.cause
    with pytest.raises(SourceError, match="has 5 at dimension 1, which the model fixes"):
        read_model(path, shapes={"data": (1, 5, 8, 7)})
    Path(path).with_suffix(".bin").unlink()
    with pytest.raises(SourceError, match=r"its weights, .*model.bin, are missing"):
        read_model(path)
    Path(path).write_text("no xml")
    Path(path).with_suffix(".bin").write_bytes(b"")
    with pytest.raises(SourceError, match="is not an OpenVINO IR"):
        read_model(path)
