"""Networks of free extents: one library gives onnxruntime's answers at every size, and those of a network of that size."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import model, save, value
from onnx import helper, numpy_helper
from toys import run_python

from tvmconv import cli
from tvmconv.accuracy import describe_differences
from tvmconv.errors import InputError, SourceError
from tvmconv.family import Extent
from tvmconv.frontends.onnx.graph import declared_inputs
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.free import free_dims
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes, load_file, read_onnx
from tvmconv.runtime.networks.network import Network, load_network

onnxruntime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
SIZES = ((1, 1), (2, 3), (7, 13), (1, 31), (29, 1), (33, 64), (101, 97))
node = helper.make_node


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)


def integers(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def floats(name: str, *values: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.float32), name)


def free_network(source: str, shape: str, folder: Path) -> Network:
    given = {"": tuple(map(Extent.parse, shape.split("x")))}
    free = free_dims(declared_inputs(load_file(source).graph), given, source)
    build(as_relax(fix_shapes(source, free=free), source, free), folder / "free.so")
    return load_network(folder / "free.so")


def check(source: str, network: Network, shapes: Sequence[Sequence[int]]) -> None:
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    for shape in shapes:
        data = RNG.standard_normal(shape).astype(np.float32)
        found = network(x=data)
        expected = session.run(None, {"x": data})
        assert [each.shape for each in found.values()] == [each.shape for each in expected], shape
        assert describe_differences(found, expected) == [], shape


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Network]:
    """Return a network with a path down, one up, and a head behind a global pool."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Shape", ["r0"], ["s"]),
        node("Resize", ["p", "", "", "s"], ["u"], mode="linear"),
        node("Concat", ["u", "r0"], ["k"], axis=1),
        node("Conv", ["k", "w1"], ["c1"]),
        node("Sigmoid", ["c1"], ["y"]),
        node("GlobalAveragePool", ["p"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w2"], ["z"]),
    ]
    weights = [weight("w0", 8, 3, 3, 3), weight("b0", 8), weight("w1", 2, 16, 1, 1), weight("w2", 8, 5)]
    outputs = [value("y", None), value("z", None)]
    folder = tmp_path_factory.mktemp("free")
    source = save(model(nodes, [value("x", ["n", 3, "h", "w"])], outputs, weights=weights), folder)
    return source, free_network(source, "?x3x?x?", folder)


def test_one_library_serves_every_size(detector: tuple[str, Network]) -> None:
    source, network = detector
    check(source, network, [(batch, 3, *size) for size in SIZES for batch in (1, 3)])


def test_answers_are_those_of_a_network_of_the_size(detector: tuple[str, Network], tmp_path: Path) -> None:
    from tvmconv.frontends.shapes import Bucket

    source, network = detector
    build(read_onnx(source, Bucket({"x": (1, 3, 23, 42)})), tmp_path / "fixed.so")
    data = RNG.standard_normal((1, 3, 23, 42)).astype(np.float32)
    found, expected = network(x=data), load_network(tmp_path / "fixed.so")(x=data)
    assert describe_differences(found, list(expected.values())) == []


def test_operators_between_kernels(tmp_path: Path) -> None:
    """Channels first, as without convolutions; sums, moves and cuts along axes that are free."""
    nodes = [
        node("AveragePool", ["x"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        node("MaxPool", ["x"], ["b"], kernel_shape=[3, 2], pads=[1, 1, 1, 0]),
        node("ReduceMean", ["x", "spatial"], ["m"]),
        node("InstanceNormalization", ["x", "one", "one"], ["i"]),
        node("Softmax", ["x"], ["c"], axis=1),
        node("Softmax", ["x"], ["l"], axis=3),
        node("Reshape", ["x", "rows"], ["flat"]),
        node("Transpose", ["flat"], ["t"], perm=[0, 2, 1]),
        node("ReduceMax", ["t", "middle"], ["most"], keepdims=0),
        node("Slice", ["x", "from", "to", "last", "two"], ["even"]),
        node("Concat", ["x", "a"], ["wide"], axis=3),
        node(
            "Resize", ["x", "", "scales"], ["near"], coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        ),
        node("Resize", ["x", "", "scales"], ["ends"], mode="linear", coordinate_transformation_mode="align_corners"),
        node("Pad", ["x", "pads"], ["padded"]),
        node("Mul", ["m", "c"], ["product"]),
        node("Clip", ["product", "low"], ["clipped"]),
    ]
    weights = [
        integers("spatial", 2, 3), integers("rows", 0, 3, -1), integers("middle", 1), integers("from", 0), integers("to", 2**62),
        integers("last", 3), integers("two", 2), integers("pads", 0, 0, 1, 0, 0, 0, 2, 3), floats("one", 1, 1, 1),
        floats("scales", 1, 1, 2, 3), numpy_helper.from_array(np.float32(0.1), "low"),
    ]  # fmt: skip
    names = ("a", "b", "i", "l", "t", "most", "even", "wide", "near", "ends", "padded", "clipped")
    outputs = [value(each, None) for each in names]
    source = save(model(nodes, [value("x", [1, 3, "h", "w"])], outputs, weights=weights), tmp_path)
    check(source, free_network(source, "1x3x?x?", tmp_path), [(1, 3, height, width + 1) for height, width in SIZES])


def test_extents_of_one_name_and_multiples(tmp_path: Path) -> None:
    nodes = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p", "", "scales"], ["u"]),
        node("Add", ["u", "x"], ["y"]),
    ]
    outputs, weights = [value("y", None)], [floats("scales", 1, 1, 2, 2)]
    source = save(model(nodes, [value("x", [1, 3, "h", "w"])], outputs, weights=weights), tmp_path)
    network = free_network(source, "1x3xh%4[4:64]xh%4[4:64]", tmp_path)
    check(source, network, [(1, 3, 4, 4), (1, 3, 12, 12), (1, 3, 64, 64)])
    for shape, message in (
        ((1, 3, 6, 6), "extent 2 of x is 6, no multiple of 4; pad it by 2 to 8"),
        ((1, 3, 68, 68), "extent 2 of x is 68; it must be"),
        ((1, 3, 8, 12), "extent 3 of x is 12 and extent 2 of x 8, both h, which is one extent: pad the smaller"),
        ((1, 4, 8, 8), "x (1x4x8x8 float32) was given; the network takes x (1x3xhxh float32)"),
    ):
        with pytest.raises(InputError, match=message.replace("(", r"\(").replace(")", r"\)")):
            network(x=np.zeros(shape, np.float32))
    with pytest.raises(
        SourceError, match=r"the extents of the Add node .* may differ"
    ):  # h and (h // 2) * 2 are two extents
        free_network(source, "1x3x?x?", tmp_path)


def test_sizes_that_leave_nothing(tmp_path: Path) -> None:
    nodes = [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3])]
    source = save(model(nodes, [value("x", [1, 3, "h", "w"])], [value("y", None)]), tmp_path)
    network = free_network(source, "1x3x?x?", tmp_path)
    for shape in ((1, 3, 2, 9), (1, 3, 60000, 60000)):
        with pytest.raises(InputError, match="no elements, or more than"):
            network.prepare(x=shape)
    for shape in (None, 3, "abcd", (1, 3, 3.0, 9)):
        with pytest.raises(InputError, match="give a shape, a sequence of integers"):
            network.prepare(x=shape)
    check(source, network, [(1, 3, 3, 3)])


MEMORY = """
import resource, sys
import numpy as np
import tvmconv

network, rng = tvmconv.load_network(sys.argv[1], arena_limit=1), np.random.default_rng(0)
most = network.prepare(x=(1, 3, 128, 128))
assert most > network.prepare(x=(1, 3, 16, 16)) > 0

def call(count):
    for height, width in rng.integers(1, 128, (count, 2)):
        network(x=np.zeros((1, 3, height, width), np.float32))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

print(-call(100) + call(int(sys.argv[2])))
"""


@pytest.mark.parametrize("sizes", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_is_flat(detector: tuple[str, Network], sizes: int) -> None:
    """In a process of its own: what other tests have left to the allocator grows by itself."""
    assert int(run_python(MEMORY, detector[1].file.path, sizes)) < 1024  # KiB


def test_windows_whose_pads_depend_on_extents(tmp_path: Path) -> None:
    """Pads to a quotient, at either end, sizes that are rounded up, and a filter beside filter, which leaves a row of some sizes."""
    upper, lower = {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}
    nodes = [
        node("Conv", ["x", "w3"], ["c1"], strides=[2, 2], **upper),
        node("Conv", ["x", "w3"], ["c2"], strides=[3, 3], **lower),
        node("Conv", ["x", "w3"], ["c3"], **lower),
        node("Conv", ["x", "w2"], ["c4"], strides=[2, 2]),
        node("MaxPool", ["x"], ["p1"], kernel_shape=[3, 3], strides=[2, 2], **lower),
        node("MaxPool", ["x"], ["p2"], kernel_shape=[2, 2], strides=[1, 1], **upper),
        node("MaxPool", ["x"], ["p3"], kernel_shape=[3, 3], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1),
        node("MaxPool", ["x"], ["p4"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    ]
    outputs = [value(name, None) for each in nodes for name in each.output]
    weights = [weight("w3", 6, 4, 3, 3), weight("w2", 6, 4, 2, 2)]
    source = save(model(nodes, [value("x", [1, 4, "h", "w"])], outputs, weights=weights), tmp_path)
    network = free_network(source, "1x4x?x?", tmp_path)
    check(source, network, [(1, 4, height + 1, width + 1) for height, width in SIZES])


def test_resizes_by_any_factor(tmp_path: Path) -> None:
    modes = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    nodes = [
        node("Resize", ["x", "", factor], [f"{kind}{factor}{mode}"], coordinate_transformation_mode=mode, mode=kind)
        for kind in ("linear", "cubic")
        for mode in modes
        for factor in ("half", "more", "less")
    ]
    nodes += [node("Resize", ["x", "", "more"], ["excluding"], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1)]
    nodes += [
        node(
            "Resize",
            ["x", "", factor],
            [f"near{factor}"],
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        for factor in ("half", "more", "less")
    ]
    row = [
        node("ReduceMean", ["x", "axis"], ["line"], keepdims=0),
        node("Resize", ["line", "", "row"], ["long"], mode="linear"),
        node("GlobalAveragePool", ["x"], ["one"]),
        node("Shape", ["x"], ["all"]),
        node("Resize", ["one", "", "", "all"], ["spread"], mode="linear"),
        node("MaxPool", ["x"], ["less_of_it"], kernel_shape=[3, 2], strides=[3, 2]),
        node("Resize", ["less_of_it", "", "", "all"], ["back"], mode="cubic"),
    ]
    outputs = [value(each.output[0], None) for each in (*nodes, row[1], row[4], row[-1])]
    weights = [
        floats("half", 1, 1, 0.5, 0.5), floats("more", 1, 1, 1.5, 2.25), floats("less", 1, 1, 0.3, 0.75), floats("row", 1, 1, 1.5),
        integers("axis", 2),
    ]  # fmt: skip
    source = save(model([*nodes, *row], [value("x", [1, 3, "h", "w"])], outputs, weights=weights), tmp_path)
    sizes = ((4, 5), (7, 13), (33, 64), (101, 97))
    check(source, free_network(source, "1x3x?x?", tmp_path), [(1, 3, *each) for each in sizes])


def test_attention_of_any_length(tmp_path: Path) -> None:
    """A layer of a transformer on rows of any number, with a normalization before it and the greatest's place behind it."""
    nodes = [
        node("InstanceNormalization", ["x", "scale", "shift"], ["g"]),
        node("Transpose", ["g"], ["rows"], perm=[0, 2, 1]),
        *(node("MatMul", ["rows", f"w{each}"], [each]) for each in "qkv"),
        *(node("Reshape", [each, "heads"], [f"{each}4"]) for each in "qkv"),
        *(
            node("Transpose", [f"{each}4"], [f"{each}h"], perm=[0, 2, 3, 1] if each == "k" else [0, 2, 1, 3])
            for each in "qkv"
        ),
        node("MatMul", ["qh", "kh"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "vh"], ["read"]),
        node("Transpose", ["read"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["y"]),
        node("ArgMax", ["y"], ["z"], axis=2),
    ]
    weights = [weight(f"w{each}", 8, 8) for each in "qkv"]
    weights += [
        integers("heads", 0, 0, 2, 4),
        integers("joined", 0, 0, 8),
        floats("scale", *range(1, 9)),
        floats("shift", *range(8)),
    ]
    made = model(
        nodes,
        [value("x", ["n", 8, "t"])],
        [value("y", None), onnx.helper.make_tensor_value_info("z", 7, None)],
        weights=weights,
    )
    source = save(made, tmp_path)
    check(source, free_network(source, "?x8x?", tmp_path), [(1, 8, 1), (2, 8, 7), (1, 8, 64), (3, 8, 97)])


def test_arithmetic_of_shapes(tmp_path: Path) -> None:
    """Sizes that are picked, cut, joined, multiplied and rounded, as PyTorch's older exporter writes them; some become tensors."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "moved"], ["moving"]),  # n, w, h, 6
        node("Slice", ["moving", "i1", "i3"], ["plane"]),  # w, h
        node("ReduceProd", ["plane"], ["pixels"], keepdims=1),
        node("Gather", ["s", "at2"], ["h"]),
        node("Unsqueeze", ["h", "i0"], ["h1"]),
        node("Concat", ["i0", "h1", "minus"], ["rows"], axis=0),
        node("Reshape", ["x", "rows"], ["a"]),  # n, h, 6 w
        node("Transpose", ["x"], ["t"], perm=[0, 3, 2, 1]),
        node("Concat", ["first", "pixels", "i3"], ["pairs"], axis=0),
        node("Reshape", ["t", "pairs"], ["b"]),  # 2 n, w h, 3
        node("Cast", ["h"], ["hf"], to=1),
        node("Mul", ["hf", "half"], ["hm"]),
        node("Ceil", ["hm"], ["hc"]),
        node("Cast", ["hc"], ["hi"], to=7),
        node("Unsqueeze", ["hi", "i0"], ["top"]),
        node("Slice", ["x", "i0", "top", "i2"], ["c"]),  # the upper half
        node("Slice", ["x", "minus2", "far", "i2"], ["last"]),
        node("Slice", ["x", "i0", "minus", "i2"], ["but"]),
        node("Slice", ["x", "i1", "far", "i2"], ["rest"]),
        node("Add", ["but", "rest"], ["d"]),  # neighbours
        node("Div", ["x", "hf"], ["e"]),
        node("Equal", ["s", "minus4"], ["none"]),
        node("ConstantOfShape", ["i4"], ["ones"], value=integers("", 1)),
        node("Where", ["none", "ones", "s"], ["all"]),
        node("Expand", ["column", "all"], ["f"]),
        node("Range", ["zero", "h", "one"], ["g"]),
        node("Cast", ["s"], ["z"], to=1),
        node("Gather", ["x", "ends"], ["picked"], axis=1),
        node("Gather", ["x", "minus1"], ["k"], axis=3),
        node("MaxPool", ["x"], ["half_size"], kernel_shape=[1, 1], strides=[2, 2]),
        node("Concat", ["half_size", "half_size"], ["twice"], axis=1),
        node("Reshape", ["half_size", "lines"], ["lined"]),
        node("Reshape", ["twice", "more_lines"], ["more_lined"]),
        node("Slice", ["more_lined", "i0", "six", "i1"], ["some_lined"]),
        node("Add", ["lined", "some_lined"], ["m"]),  # the same number of pixels, each from its own product
    ]
    weights = [
        integers("moved", 0, 3, 2, 1), integers("i0", 0), integers("i1", 1), integers("i2", 2), integers("i3", 3), integers("i4", 4),
        integers("minus", -1), integers("minus2", -2), integers("minus4", -1, -1, -1, -1), integers("first", -1), integers("far", 2**62),
        integers("ends", 1, -1), integers("six", 6), integers("lines", 0, 6, -1), integers("more_lines", 0, 12, -1), numpy_helper.from_array(np.int64(-1), "minus1"),
        *(numpy_helper.from_array(np.array(each, np.int64), name) for name, each in (("at2", 2), ("zero", 0), ("one", 1))),
        numpy_helper.from_array(np.float32(0.5), "half"), weight("column", 1, 6, 1, 1),
    ]  # fmt: skip
    outputs = [value(each, None) for each in ("a", "b", "c", "last", "d", "e", "f", "z", "picked", "k", "m")]
    outputs.append(onnx.helper.make_tensor_value_info("g", 7, None))
    source = save(model(nodes, [value("x", ["n", 6, "h", "w"])], outputs, weights=weights), tmp_path)
    shapes = [(n, 6, height + 1, width) for height, width in SIZES for n in (1, 3)]
    check(source, free_network(source, "?x6x?x?", tmp_path), shapes)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("LpPool", ["x"], ["y"], kernel_shape=[2, 2], ceil_mode=1)], "rounds its size up"),
        (
            [node("Resize", ["x", "", "half"], ["y"], mode="linear", antialias=1)],
            "Resize node 'y' is of opset 10, antialiased",
        ),
        (
            [
                node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
                node("Resize", ["p", "", "twice"], ["u"]),
                node("Concat", ["x", "u"], ["y"], axis=1),
            ],
            r"the extents of the Concat node 'y' may differ \(1x3xhxw, 1x3xh // 2 \* 2xw // 2 \* 2\)",
        ),
        ([node("Reshape", ["x", "example"], ["y"])], "the model's exporter kept a number of the example"),
    ],
)
def test_what_is_refused_is_named(nodes: list[Any], message: str, tmp_path: Path) -> None:
    weights = [
        floats("half", 1, 1, 0.5, 0.5),
        floats("twice", 1, 1, 2, 2),
        integers("example", 3, 64),
    ]
    source = save(model(nodes, [value("x", [1, 3, "h", "w"])], [value("y", None)], weights=weights), tmp_path)
    with pytest.raises(SourceError, match=message):
        free_network(source, "1x3x?x?", tmp_path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("Relu", ["x"], ["y"])]
    source = save(model(nodes, [value("x", [1, 3, "h", 8])], [value("y", None)]), tmp_path)
    library = str(tmp_path / "relu.so")
    assert cli.main(["compile", source, "--shape", "x=1x3x?[2:50]x8", "-o", library]) == 0
    assert load_network(library)(x=np.full((1, 3, 37, 8), -1, np.float32))["y"].shape == (1, 3, 37, 8)
    assert cli.main(["run", library, "--inputs", "x=3"]) == 0
    assert "1x3x50x8" in capsys.readouterr().out
    assert cli.main(["compile", source, "--shape", "x=1x?x?x8", "-o", library]) != 0
    assert "extent 1 of x was given as ?, and the model fixes 3" in capsys.readouterr().err


def test_several_tensors_are_combined_channels_last(tmp_path: Path) -> None:
    """Two by two, for a stack of them has no layout; a warning would say that the network keeps its own."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "w1"], ["b"], pads=[1, 1, 1, 1]),
        node("Max", ["a", "b"], ["c"]),
        node("Sum", ["a", "c", "bias"], ["d"]),
        node("Mean", ["d", "b"], ["e"]),
        node("Min", ["e"], ["f"]),
        node("Conv", ["f", "w2"], ["y"]),
    ]
    weights = [weight("w0", 8, 3, 3, 3), weight("w1", 8, 3, 3, 3), weight("w2", 4, 8, 1, 1), weight("bias", 8, 1, 1)]
    source = save(model(nodes, [value("x", ["n", 3, "h", "w"])], [value("y", None)], weights=weights), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = free_network(source, "?x3x?x?", tmp_path)
    check(source, network, [(1, 3, *size) for size in SIZES])
