"""How far the epilogue of an ONNX model's convolution reaches: sums, and everything that ends it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from followed import CHANNELS, built, check, epilogue, fixed, make
from models import model, save, value, weight
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tvmconv.errors import SourceError
from tvmconv.frontends import SourceNode, read_model


def residual(*after: NodeProto, shape: Sequence[int] = (2, CHANNELS, 5, 6), **options: Any) -> onnx.ModelProto:
    """Return a model that adds an input r of a shape to c, which gives d."""
    return built([make("Add", "r c", "d"), *after], inputs=[value("r", shape)], **options)


def test_add_then_relu(tmp_path: Path) -> None:
    node = check(residual(make("Relu", "d", "y")), tmp_path)
    assert (epilogue(node), node.residual, node.serves) == ("add-relu", "r", ("conv", "Add_d", "Relu_y"))
    summed = residual(make("Relu", "d", "y"))
    summed.graph.node[1].op_type = "Sum"
    assert check(summed, tmp_path).problem == node.problem


def test_silu_then_add(tmp_path: Path) -> None:
    nodes = [make("BatchNormalization", "c s b m v", "n"), make("Sigmoid", "n", "o"), make("Mul", "n o", "p")]
    nodes += [make("Add", "p r", "q"), make("Mul", "q factors", "y")]
    made = built(nodes, inputs=[value("r", (2, CHANNELS, 5, 6))])
    node = check(made, tmp_path)
    assert (epilogue(node), node.residual, node.problem.bias) == ("silu-add-scale", "r", True)


def test_a_sum_of_two_convolutions_belongs_to_the_later_one(tmp_path: Path) -> None:
    """As in a ResNet: what the other computes, its own epilogue included, is the residual."""
    second = [helper.make_node("Conv", ["x", "w"], ["e"], name="second"), make("LeakyRelu", "e", "f")]
    nodes = [make("Relu", "c", "d"), *second, make("Add", "d f", "g"), make("Tanh", "g", "y")]
    made = built(nodes)
    node = check(made, tmp_path, "second")
    assert (epilogue(node), node.residual) == ("leaky_0.01-add-tanh", "d")
    other = check(made, tmp_path)
    assert (epilogue(other), other.residual, other.serves) == ("relu", None, ("conv", "Relu_d"))


def test_a_skip_connection_around_the_convolution(tmp_path: Path) -> None:
    """Fuse the sum with the convolution's own input; a convolution before it, read twice, keeps its result."""
    second = helper.make_node("Conv", ["d", "w2"], ["e"], name="second")
    made = built([make("Relu", "c", "d"), second, make("Add", "e d", "y")])
    assert epilogue(check(made, tmp_path)) == "relu"
    node = check(made, tmp_path, "second")
    assert (epilogue(node), node.residual) == ("add", "d")


def test_two_sums(tmp_path: Path) -> None:
    """An epilogue has one; the second is left."""
    made = residual(make("Add", "d r", "y"))
    node = check(made, tmp_path)
    assert (epilogue(node), node.serves) == ("add", ("conv", "Add_d"))


@pytest.mark.parametrize(
    "shape", [(2, CHANNELS, 1, 1), (1, CHANNELS, 5, 6), (2, CHANNELS, 5, 1), (5, 6), (2, CHANNELS, "h", 6)]
)
def test_a_sum_that_is_broadcast_or_of_unknown_shape_is_left(shape: Sequence[int], tmp_path: Path) -> None:
    assert epilogue(check_plain(residual(make("Relu", "d", "y"), shape=shape), tmp_path)) == ""


def check_plain(made: onnx.ModelProto, folder: Path) -> SourceNode:
    """Return the node conv, of which nothing was fused."""
    nodes = read_model(save(made, folder), shapes_by="infer").nodes
    (node,) = (each for each in nodes if each.name == "conv")
    assert (node.serves, node.residual, node.problem.bias) == (("conv",), None, False)
    return node


STOPPED = {
    "two readers": [("Relu", "c", "y", {}), ("Tanh", "c", "z", {})],
    "read twice by one": [("Add", "c c", "y", {})],
    "squared": [("Mul", "c c", "y", {})],
    "not an activation": [("Softplus", "c", "y", {})],
    "bounds that are computed": [("ReduceMax", "x", "hi", {"keepdims": 0}), ("Clip", "c zero hi", "y", {})],
    "bounds of a convolution": [("ReduceMax", "c", "hi", {"keepdims": 0}), ("Clip", "x zero hi", "y", {})],
    "bounds that cross": [("Clip", "c six zero", "y", {})],
    "a bound that is no number": [("Clip", "c nan", "y", {})],
    "a slope that is computed": [("ReduceMax", "x", "a", {}), ("PRelu", "c a", "y", {})],
    "a slope of the last axis": [("Slice", "last zero1 six1", "a", {}), ("PRelu", "c a", "y", {})],
    "the slope": [("PRelu", "x c", "y", {})],
    "a factor of more dimensions": [("Mul", "c long", "y", {})],
    "quick gelu": [("Mul", "c quick", "n", {}), ("Sigmoid", "n", "o", {}), ("Mul", "c o", "y", {})],
    "mish": [("Softplus", "c", "n", {}), ("Tanh", "n", "o", {}), ("Mul", "c o", "y", {})],
    "a gate of another": [("Sigmoid", "x2", "n", {}), ("Mul", "c n", "y", {})],
    "a group that is read inside": [("Sigmoid", "c", "n", {}), ("Mul", "c n", "y", {}), ("Relu", "n", "z", {})],
    "a group whose input is read": [("Sigmoid", "c", "n", {}), ("Mul", "c n", "y", {}), ("Relu", "c", "z", {})],
    "hardswish of four": [("Add", "c three", "n", {}), ("Clip", "n zero four", "o", {}), ("Mul", "c o", "p", {}), ("Div", "p four", "y", {})],
    "erf of a sixth": [("Mul", "c sixth", "n", {}), ("Erf", "n", "o", {}), ("Add", "o one", "p", {}), ("Mul", "c p", "q", {}), ("Mul", "q half", "y", {})],
    "a quarter of gelu": [("Div", "c root", "n", {}), ("Erf", "n", "o", {}), ("Add", "o one", "p", {}), ("Mul", "c p", "y", {})],
    "cut off by integers": [("Cast", "c", "n", {"to": TensorProto.INT32}), ("Cast", "n", "o", {"to": TensorProto.FLOAT}), ("Relu", "o", "y", {})],
    "rounded to f16": [("Cast", "c", "n", {"to": TensorProto.FLOAT16}), ("Cast", "n", "o", {"to": TensorProto.FLOAT}), ("Relu", "o", "y", {})],
    "divided by zero": [("Sigmoid", "c", "n", {}), ("Mul", "c n", "o", {}), ("Div", "c zero", "p", {}), ("Mul", "o p", "y", {})],
    "a normalization that learns": [("BatchNormalization", "c s b m v", "y", {"training_mode": 1})],
    "a normalization of other channels": [("BatchNormalization", "c last last last last", "y", {})],
    "a node of another domain": [("Relu", "c", "y", {"domain": "com.example"})],
    "nothing": [("Relu", "x", "y", {})],
}  # fmt: skip


@pytest.mark.parametrize("name", STOPPED)
def test_refusals(name: str, tmp_path: Path) -> None:
    nodes = [make(op, inputs, output, **attributes) for op, inputs, output, attributes in STOPPED[name]]
    made = built(nodes, inputs=[value("x2", (2, CHANNELS, 5, 6))])
    for each, number in (("zero1", 0), ("six1", 6)):
        made.graph.initializer.append(helper.make_tensor(each, TensorProto.INT64, [1], [number]))
    made.opset_import.append(helper.make_opsetid("com.example", 1))
    assert epilogue(check_plain(made, tmp_path)) == ""


def test_what_the_graph_gives_is_computed(tmp_path: Path) -> None:
    assert epilogue(check_plain(built([make("Relu", "c", "y")], outputs=["y", "c"]), tmp_path)) == ""
    # Nothing may be missing inside of a group, either.
    silu = [make("Sigmoid", "c", "n"), make("Mul", "c n", "y")]
    assert epilogue(check_plain(built(silu, outputs=["y", "n"]), tmp_path)) == ""
    node = check(built([make("Relu", "c", "n"), make("Tanh", "n", "y")], outputs=["n", "y"]), tmp_path)
    assert (epilogue(node), node.serves) == ("relu", ("conv", "Relu_n"))


def test_what_a_branch_reads_is_computed(tmp_path: Path) -> None:
    """A tensor that a graph inside a node reads is read by that node."""
    branches = {
        f"{name}_branch": helper.make_graph([make("Relu", "c", name)], name, [], [value(name, None)])
        for name in ("then", "else")
    }
    inputs = [value("flag", (), TensorProto.BOOL)]
    made = built([helper.make_node("If", ["flag"], ["y"], **branches)], inputs=inputs)
    assert epilogue(check_plain(made, tmp_path)) == ""
    made = built([helper.make_node("If", ["flag"], ["z"], **branches), make("Tanh", "c", "y")], inputs=inputs)
    assert epilogue(check_plain(made, tmp_path)) == ""


def test_a_convolution_in_a_branch_is_fused_there(tmp_path: Path) -> None:
    """With a sum of what the graph around it has."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1] * 4),
        make("Add", "c x", "d"),
        make("Relu", "d", "e"),
    ]
    then = helper.make_graph(nodes, "then", [], [value("e", None)])
    other = helper.make_graph([make("Identity", "x", "f")], "else", [], [value("f", None)])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)
    inputs = [value("flag", (), TensorProto.BOOL), value("x", (1, 3, 5, 5))]
    (found,) = read_model(save(model([node], inputs, weights=[weight("w", (3, 3, 3, 3))]), tmp_path)).nodes
    assert (epilogue(found), found.residual) == ("add-relu", "x")


def test_a_filter_that_is_given(tmp_path: Path) -> None:
    """Only what takes no array of its own is fused: these are the model's, and so would be the filter."""
    inputs = [value("x", (2, 4, 7, 8)), value("given", (CHANNELS, 4, 3, 3)), value("r", (2, CHANNELS, 5, 6))]
    conv = helper.make_node("Conv", ["x", "given"], ["c"], name="conv")
    weights = [numpy_helper.from_array(fixed()[name], name) for name in ("vector", "slopes")]

    def read(*nodes: NodeProto) -> SourceNode:
        (node,) = read_model(save(model([conv, *nodes], inputs, weights=weights), tmp_path), with_constants=True).nodes
        assert node.constants is None and not node.problem.bias
        return node

    node = read(make("Add", "c r", "d"), make("Relu", "d", "y"))
    assert (epilogue(node), node.residual) == ("add-relu", "r")
    assert epilogue(read(make("PRelu", "c slopes", "y"))) == ""
    assert epilogue(read(make("Add", "c vector", "n"), make("Relu", "n", "y"))) == ""


def test_without_fusion(tmp_path: Path) -> None:
    path = save(residual(make("Relu", "d", "y")), tmp_path)
    (node,) = read_model(path, with_constants=True, fuse=False).nodes
    assert (epilogue(node), node.serves, node.residual) == ("", ("conv",), None)
    assert node.constants is not None and node.constants().output == "c"


def test_numbers_that_cannot_be_read(tmp_path: Path) -> None:
    """Weights are not needed to read a model's shapes; the bounds of a Clip are."""
    made = built([make("Clip", "c zero six", "y")])
    del made.graph.initializer[:]
    made.graph.initializer.extend([weight("w", (CHANNELS, 4, 3, 3)), weight("zero", ()), weight("six", ())])
    path = save(made, tmp_path)
    with pytest.raises(
        SourceError, match=r"what follows Conv node 'conv': the weights 'zero' cannot be read: .*--no-fuse"
    ):
        read_model(path)
    assert len(read_model(path, fuse=False).nodes) == 1
    # Nothing else is fixed than what ONNX's evaluator can compute; if that fails, it says so.
    foreign = [helper.make_node("Sixth", ["one"], ["hi"], domain="com.example"), make("Clip", "c zero hi", "y")]
    made = built(foreign)
    made.opset_import.append(helper.make_opsetid("com.example", 1))
    assert epilogue(check_plain(made, tmp_path)) == ""
    wrong = [helper.make_node("Gather", ["last", "far"], ["hi"]), make("Clip", "c zero hi", "y")]
    made = built(wrong)
    made.graph.initializer.append(helper.make_tensor("far", TensorProto.INT64, [], [99]))
    with pytest.raises(SourceError, match=r"cannot compute the fixed tensor 'hi': .*--no-fuse"):
        read_model(save(made, tmp_path))
