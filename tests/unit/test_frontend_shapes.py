"""Shapes that a model leaves free: how they are given, contradicted, and seen in a run."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import pytest
from models import conv_model, model, save, value
from near import assert_near
from onnx import TensorProto, helper, numpy_helper

from tvmconv import reference
from tvmconv.errors import InvalidProblemError, SourceError
from tvmconv.frontends import read_model, read_source
from tvmconv.frontends.onnx import observe
from tvmconv.frontends.shapes import Bucket, Input, advice, bind, make_buckets
from tvmconv.signature import format_signature

IMAGES, STATE, RATE = Input("images", ("batch", 3, "h", "w")), Input("state", (2, "batch", 8)), Input("sr", ())


def test_a_shape_fixes_the_dimensions_of_its_names_elsewhere() -> None:
    bound = bind([IMAGES, STATE, RATE], Bucket({"images": (4, 3, 8, 9)}), "m")
    assert bound == {"images": (4, 3, 8, 9), "state": (2, 4, 8), "sr": ()}
    assert bind([IMAGES, STATE], Bucket(dims={"batch": 5, "h": 7}), "m")["state"] == (2, 5, 8)
    assert bind([IMAGES, STATE], Bucket(batch=6), "m") == {"images": (6, 3, "h", "w"), "state": (2, 6, 8)}


def test_a_batch_agrees_with_one_that_is_the_same() -> None:
    fixed = Input("x", (2, 3))
    assert bind([fixed], Bucket(batch=2), "m") == {"x": (2, 3)}
    assert bind([Input("x", ("", 3))], Bucket({"": (2, 3)}, batch=2), "m") == {"x": (2, 3)}


@pytest.mark.parametrize(
    ("inputs", "bucket", "words"),
    [
        ([IMAGES], Bucket({"image": (1, 3, 8, 8)}), ["no input 'image'", "images (batchx3xhxw)", "did you mean images?"]),
        ([IMAGES, STATE], Bucket({"": (1, 3, 8, 8)}), ["2 inputs", "--shape NAME=SHAPE", "state"]),
        ([IMAGES], Bucket({"images": (1, 3, 8)}), ["--shape images=1x3x8 has 3 dimensions", "batchx3xhxw"]),
        ([IMAGES], Bucket({"images": (1, 4, 8, 8)}), ["has 4 at dimension 1, which the model fixes"]),
        ([IMAGES], Bucket({"images": (1, 3, 8, 8)}, {"h": 9}), ["has 8 for 'h', which is 9 elsewhere"]),
        ([IMAGES, STATE], Bucket({"images": (1, 3, 8, 8), "state": (2, 2, 8)}), ["has 2 for 'batch', which is 1"]),
        ([IMAGES], Bucket(dims={"height": 8}), ["no dimension 'height'", "batch, h, w"]),
        ([Input("x", ("", 3))], Bucket(dims={"n": 8}), ["it names none", "--shape"]),
        ([Input("x", (1, 3))], Bucket(batch=8), ["batch 8 was given", "no free dimension 0", "x (1x3)"][:1]),
        ([Input("x", ("M",)), Input("y", ("N",))], Bucket(batch=8), ["not the same in all inputs: M, N", "--dim M=8 --dim N=8"]),
    ],
)  # fmt: skip
def test_what_contradicts_the_model(inputs: list[Input], bucket: Bucket, words: list[str]) -> None:
    with pytest.raises(SourceError) as caught:
        bind(inputs, bucket, "m.onnx")
    assert all(word in str(caught.value) for word in ["m.onnx", *words])


def test_buckets() -> None:
    (one,) = make_buckets({"x": [1, 2]}, {"h": 3}, 4)
    assert one == Bucket({"x": (1, 2)}, {"h": 3}, 4)
    first, second = make_buckets({"x": [(1, 2), (1, 4)], "y": (5,)}, {"h": [6, 7]}, None)
    assert first == Bucket({"x": (1, 2), "y": (5,)}, {"h": 6})
    assert second == Bucket({"x": (1, 4), "y": (5,)}, {"h": 7})
    assert make_buckets(None, None, None) == [Bucket()]
    with pytest.raises(SourceError, match="--shape x 2 times, --dim h 3 times"):
        make_buckets({"x": [(1, 2), (1, 4)]}, {"h": [1, 2, 3]}, None)
    with pytest.raises(InvalidProblemError, match="dimension 'h' is -1"):
        make_buckets(None, {"h": -1}, None)


def test_several_batches_are_buckets() -> None:
    assert make_buckets(None, None, [1, 8]) == [Bucket(batch=1), Bucket(batch=8)]
    assert make_buckets(None, {"h": 3}, [4]) == [Bucket(dims={"h": 3}, batch=4)]
    first, second = make_buckets(None, {"h": [6, 7]}, [1, 8])
    assert (first, second) == (Bucket(dims={"h": 6}, batch=1), Bucket(dims={"h": 7}, batch=8))
    with pytest.raises(SourceError, match="--dim h 3 times, --batch 2 times"):
        make_buckets(None, {"h": [6, 7, 8]}, [1, 8])
    with pytest.raises(InvalidProblemError, match="batch is -1"):
        make_buckets(None, None, [1, -1])
    with pytest.raises(SourceError, match="batch has no value"):
        make_buckets(None, None, [])


def test_a_model_at_several_batches(tmp_path: Any) -> None:
    path = save(conv_model(x=("N", 3, 8, 9)), tmp_path)
    assert [problem.batch for problem in read_source(path, batch=[1, 8])] == [1, 8]
    with pytest.raises(SourceError, match=r"batch 8 is for models .* fixes its own, 1"):
        read_source(format_signature(read_source(path, batch=1)[0]), batch=[1, 8])


def test_the_advice_can_be_pasted() -> None:
    assert advice({"images": ("batch", 3, "h", ""), "state": (2, "batch")}) == "--shape images=1x3x256x256"
    assert advice({"x": ("N", 3), "y": (4,)}) == "--shape x=1x3, or --batch N"
    assert advice({"x": None}) == "--shape x=1x256"


@pytest.mark.parametrize("free", [("N", 3, "?", "?"), (-1, 3, -1, -1), (0, 3, 0, 0), (None, 3, None, None)])
def test_every_way_of_leaving_a_dimension_free(free: tuple[Any, ...], tmp_path: Any) -> None:
    path = save(conv_model(x=free), tmp_path)
    assert [p.in_spatial for p in read_source(path, shapes={"": [(1, 3, 8, 9), (2, 3, 5, 5)]})] == [(8, 9), (5, 5)]
    found = read_model(path)
    assert not found.nodes and found.summary() == "1 convolution, 0 kernels, 1 skipped"
    assert "--shape x=1x3x256x256" in found.skipped[0].cause


def weights(name: str, shape: tuple[int, ...]) -> onnx.TensorProto:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


def computed(opset: int = 22) -> onnx.ModelProto:
    """Return a model whose convolution reads a tensor that inference cannot follow: a crop as long as the sum of a tensor."""
    zero, one, axis = (
        helper.make_tensor(n, TensorProto.INT64, [1], [v]) for n, v in (("zero", 0), ("one", 1), ("axis", 2))
    )
    nodes = [
        helper.make_node("ReduceSum", ["n"], ["sum"], keepdims=1),
        helper.make_node("Slice", ["x", "zero", "sum", "axis"], ["crop"]),
        helper.make_node("Conv", ["crop", "w"], ["y"], name="conv", pads=[1, 1, 1, 1]),
    ]
    inputs = [value("x", (1, 3, 16, 8)), value("n", (5,), TensorProto.INT64)]
    made = model(nodes, inputs, weights=[zero, one, axis, weights("w", (4, 3, 3, 3))])
    made.opset_import[0].version = opset
    return made


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_shapes_are_seen_in_a_run(engine: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    else:
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    path = save(computed(18), tmp_path)
    assert read_source(path)[0].in_spatial == (5, 8)  # integers are ones
    assert read_source(path, shapes_by="run", inputs={"n": np.array([1, 2, 3, 4, 1])})[0].in_spatial == (11, 8)
    assert read_source(path, inputs={"n": np.array(2)})[0].in_spatial == (10, 8)
    (skipped,) = read_model(path, shapes_by="infer").skipped
    assert "unknown extents" in skipped.reason and "--shapes auto" in skipped.cause


@pytest.mark.parametrize(("number", "fits"), [(255, True), (256, False), (-1, False), (1.0, False)])
def test_numbers_fit_the_integers_of_an_input(number: float, fits: bool) -> None:
    given = {"n": np.array(number)}
    if fits:
        assert observe._fill_input(value("n", (2,), TensorProto.UINT8), (2,), given).tolist() == [number, number]
    else:
        with pytest.raises(SourceError, match=r"The input 'n' is uint8, but .*64 was given"):
            observe._fill_input(value("n", (2,), TensorProto.UINT8), (2,), given)


def test_a_run_that_fails(tmp_path: Any) -> None:
    path = save(computed(), tmp_path)
    with pytest.raises(SourceError, match="The input 'n' is int64, but float64 was given"):
        read_model(path, shapes_by="run", inputs={"n": np.ones(5)})
    with pytest.raises(SourceError, match="has no input 'm'; its inputs: x"):
        read_model(path, inputs={"m": np.ones(5)})
    with pytest.raises(SourceError, match=r"--shape n=3.* has 3 at dimension 0, which the model fixes"):
        read_model(path, inputs={"n": np.ones(3, np.int64)})
    with pytest.raises(SourceError, match="shapes_by is 'guess'; allowed: auto, infer, run"):
        read_model(path, shapes_by="guess")
    made = computed()
    made.graph.node.insert(0, helper.make_node("Mystery", ["x"], ["q"], domain="nobody"))
    made.opset_import.append(helper.make_opsetid("nobody", 1))
    (skipped,) = read_model(save(made, tmp_path)).skipped
    assert skipped.cause.startswith("Running the model once fails: ")


def branches(conv: Any) -> onnx.ModelProto:
    """Return a model with a convolution in each branch of an If, and in a Loop in one of them."""

    def graph(name: str, nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [value(output, None)])

    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]), conv("inner", "v", "v2")],
        "body",
        [value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL), value("v", None)],
        [value("c2", (), TensorProto.BOOL), value("v2", None)],
    )
    loop = helper.make_node("Loop", ["turns", "", "x"], ["z"], body=body)
    node = helper.make_node(
        "If",
        ["flag"],
        ["y"],
        then_branch=graph("a", [loop], "z"),
        else_branch=graph("b", [conv("other", "x", "o")], "o"),
    )
    inputs = [value("flag", (), TensorProto.BOOL), value("x", (1, 3, 9, 9))]
    turns = helper.make_tensor("turns", TensorProto.INT64, [], [3])
    return model([node], inputs, [value("y", None)], [turns, weights("w", (3, 3, 3, 3))])


def test_inside_if_and_loop(tmp_path: Any) -> None:
    """A Loop's convolution has a shape for each turn; the branch that did not run is skipped."""
    pytest.importorskip("onnxruntime")

    def conv(name: str, data: str, output: str) -> onnx.NodeProto:
        return helper.make_node("Conv", [data, "w"], [output], name=name)

    path = save(branches(conv), tmp_path)
    found = read_model(path, shapes_by="run")
    assert [(node.name, node.problem.in_spatial) for node in found.nodes] == [("inner", (n, n)) for n in (9, 7, 5)]
    assert [(each.name, "If node did not run" in each.reason) for each in found.skipped] == [("other", True)]
    found = read_model(path, shapes_by="run", inputs={"flag": np.array(False)})
    assert [node.name for node in found.nodes] == ["other"]
    assert [each.name for each in found.skipped] == ["inner"]


def test_one_unknown_node_does_not_stop_the_others(tmp_path: Any) -> None:
    made = conv_model()
    made.graph.node.append(helper.make_node("QLinearConv", ["x"] * 8, ["q"], name="q"))
    made.graph.node.append(helper.make_node("Conv", ["x"], ["r"]))
    found = read_model(save(made, tmp_path))
    assert [node.name for node in found.nodes] == ["conv"]
    assert [str(each).partition(";")[0] for each in found.skipped] == [
        "QLinearConv node 'q': it computes in integers, as tvmconv compile does", "Conv node 'r': it lacks its inputs or its output",
    ]  # fmt: skip
    assert found.summary() == "3 convolutions, 1 kernel, 2 skipped"
    with pytest.raises(SourceError, match="QLinearConv node 'q'"):
        read_source(str(tmp_path / "model.onnx"))


def test_names_are_unlike_each_other(tmp_path: Any) -> None:
    made = conv_model()
    made.graph.node.append(helper.make_node("Conv", ["x", "w"], ["z"], name="conv"))
    assert [node.name for node in read_model(save(made, tmp_path)).nodes] == ["conv#1", "conv#2"]


def test_a_normalization_and_an_addition_are_folded(tmp_path: Any) -> None:
    """Against onnxruntime, for a convolution and a transposed one with groups."""
    onnxruntime = pytest.importorskip("onnxruntime")

    for op, shape in (("Conv", (6, 2, 3, 3)), ("ConvTranspose", (4, 3, 3, 3))):
        rng = np.random.default_rng(1)
        scales = [numpy_helper.from_array(rng.uniform(0.5, 2, 6).astype(np.float32), name) for name in "smvb"]
        added = numpy_helper.from_array(rng.standard_normal((1, 6, 1, 1)).astype(np.float32), "a")
        nodes = [
            helper.make_node(op, ["x", "w"], ["c"], name="conv", group=2),
            helper.make_node("Add", ["a", "c"], ["d"]),
            helper.make_node("BatchNormalization", ["d", "s", "b", "m", "v"], ["n"]),
            helper.make_node("Relu", ["n"], ["y"]),
        ]
        made = model(nodes, [value("x", (2, 4, 8, 8))], weights=[weights("w", shape), added, *scales])
        made.graph.output.append(value("n", None))
        path = save(made, tmp_path)
        (node,) = read_model(path, with_constants=True).nodes
        assert node.problem.bias and node.constants is not None
        constants = node.constants()
        assert constants.output == "n"
        data = rng.standard_normal((2, 4, 8, 8)).astype(np.float32)
        expected = onnxruntime.InferenceSession(path).run(["n"], {"x": data})[0]
        output = reference.compute(node.problem, data, constants.filter, constants.bias)
        assert_near(output, expected, summed=4 * 9, layers=4, dtype="float32")
        assert read_source(path) == [node.problem]
        assert not read_source(path, fuse=False)[0].bias  # then folded only where filters are asked for
        assert read_model(path, with_constants=True, fuse=False).nodes == (node,)
