"""Networks of free extents: one library gives onnxruntime's answers at every size, and those of a network of that size."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import model, save, value
from onnx import helper, numpy_helper

from tvmconv import cli
from tvmconv.accuracy import differing
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
        assert differing(found, expected) == [], shape


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
    assert differing(found, list(expected.values())) == []


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
        ((1, 4, 8, 8), "given is x (1x4x8x8 float32); the network takes x (1x3xhxh float32)"),
    ):
        with pytest.raises(InputError, match=message.replace("(", r"\(").replace(")", r"\)")):
            network(x=np.zeros(shape, np.float32))
    with pytest.raises(SourceError, match=r"the extents of add .* may differ"):  # h and (h // 2) * 2 are two extents
        free_network(source, "1x3x?x?", tmp_path)


def test_sizes_that_leave_nothing(tmp_path: Path) -> None:
    nodes = [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3])]
    source = save(model(nodes, [value("x", [1, 3, "h", "w"])], [value("y", None)]), tmp_path)
    network = free_network(source, "1x3x?x?", tmp_path)
    for shape in ((1, 3, 2, 9), (1, 3, 60000, 60000)):
        with pytest.raises(InputError, match="no elements, or more than"):
            network.prepare(x=shape)
    check(source, network, [(1, 3, 3, 3)])


def test_memory_is_flat(detector: tuple[str, Network]) -> None:
    path = detector[1].file.path
    network = load_network(path, arena_limit=1)
    most = network.prepare(x=(1, 3, 128, 128))
    assert most > network.prepare(x=(1, 3, 16, 16)) > 0

    def call(count: int) -> int:
        for height, width in RNG.integers(1, 128, (count, 2)):
            network(x=np.zeros((1, 3, height, width), np.float32))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = call(100)
    assert call(1000) - before < 4096  # KiB


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], auto_pad="SAME_UPPER")],
            "MaxPool node 'y' pads by SAME_UPPER",
        ),
        ([node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], ceil_mode=1)], "rounds its size up"),
        ([node("Resize", ["x", "", "half"], ["y"], mode="cubic")], "Resize node 'y' is cubic"),
        ([node("Resize", ["x", "", "half"], ["y"], mode="linear")], "no whole factors"),
        ([node("CumSum", ["x", "axis"], ["y"])], "the network has cumsum"),
    ],
)
def test_what_is_refused_is_named(nodes: list[Any], message: str, tmp_path: Path) -> None:
    weights = [floats("half", 1, 1, 0.5, 0.5), numpy_helper.from_array(np.int64(3), "axis")]
    source = save(model(nodes, [value("x", [1, 3, "h", "w"])], [value("y", None)], weights=weights), tmp_path)
    with pytest.raises(SourceError, match=message):
        free_network(source, "1x3x?x?", tmp_path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("Relu", ["x"], ["y"])]
    source = save(model(nodes, [value("x", [1, 3, "h", 8])], [value("y", None)]), tmp_path)
    library = str(tmp_path / "relu.so")
    assert cli.main(["compile", source, "--shape", "x=1x3x?[2:50]x8", "-o", library]) == 0
    assert load_network(library)(x=np.full((1, 3, 37, 8), -1, np.float32))["y"].shape == (1, 3, 37, 8)
    assert cli.main(["compile", source, "--shape", "x=1x?x?x8", "-o", library]) != 0
    assert "extent 1 of x was given as ?, and the model fixes 3" in capsys.readouterr().err
