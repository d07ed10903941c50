"""Sizes that are named beside free extents: kernels of their own where these come, in one file with equal weights once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import fixed, model, save, value
from onnx import helper
from onnxruntime import InferenceSession

from tvmconv import cli, load
from tvmconv.errors import InputError
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.networks.file import read_file
from tvmconv.runtime.networks.network import Network, load_network

node = helper.make_node
NAMED, OTHER = (2, 3, 12, 20), (1, 3, 9, 33)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a network of integers, whose sums are exact, with a head that is the same at every size."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w1"], ["y"]),
        node("ReduceMax", ["y", "axes"], ["m"], keepdims=0),
        node("MatMul", ["m", "w2"], ["z"]),
    ]
    axes = onnx.numpy_helper.from_array(np.array([2, 3]), "axes")
    weights = [fixed("w0", 8, 3, 3, 3), fixed("w1", 16, 8, 1, 1), fixed("w2", 16, 300), axes]
    made = model(nodes, [value("x", ["n", 3, "h", "w"])], [value("y", None), value("z", None)], weights=weights)
    return save(made, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def library(source: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "n.so"
    shapes = ["--shape", "x=?x3x?x?", "--shape", "x=2x3x12x20", "--shape", "x=1x3x16x16"]
    assert cli.main(["compile", source, *shapes, "--require-comparison", "-o", str(path)]) == 0
    return path


def integers(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [NAMED, OTHER, (1, 3, 16, 16), (2, 3, 20, 12)])
def test_a_call_takes_the_kernels_of_its_size(library: Path, source: str, shape: tuple[int, ...]) -> None:
    network, data = load_network(library), integers(shape)
    expected = InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"x": data})
    extents, shapes = network.sizes([shape])
    assert shapes == [each.shape for each in expected]
    addressed = [np.empty(each, np.float32) for each in shapes]
    for openmp in (False, True):
        network.run([data.ctypes.data], [each.ctypes.data for each in addressed], 3, openmp, extents)
        for found in (addressed, network(x=data).values(), network.call({"x": data})()):
            assert all(map(np.array_equal, found, expected))
    names = {each.name for each in network.operators({"x": data}, 0.0) if each.ours}
    assert any("?" in each for each in names) == (shape not in (NAMED, (1, 3, 16, 16)))


def test_weights_of_all_sizes_are_one(library: Path) -> None:
    file = read_file(library)
    assert file.weight_bytes < 3 * 300 * 16 * 4  # of the last product alone, were it there for each
    network = load_network(library, arena_limit=1)
    assert network.prepare(x=NAMED) == file.description["sizes"][0]["arena_bytes"] > 0
    assert network.prepare(x=OTHER) > 0
    assert isinstance(network.__reduce__()[0](*network.__reduce__()[1]), Network)
    with pytest.raises(InputError, match="the network takes"):
        network.prepare(x=(2, 4, 12, 20))


@pytest.mark.parametrize(
    ("shapes", "why"),
    [
        (["x=1x3x?%32x?", "x=1x3x40x48"], "extent 2 is 40, no multiple of 32; pad it by 24 to 64"),
        (["x=1x3xhxh", "x=1x3x40x48"], "h is 40 and 48, and must be one extent"),
        (["x=1x3x?x?", "x=3x40x48"], "give its shape, with as many extents"),
        (["x=1x3x8x8", "x=1x3x40x48"], "give one shape, or one with free extents"),
        (["x=1x3x?x8", "x=1x3x8x?"], "give one shape, or one with free extents"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], shapes: list[str], why: str
) -> None:
    options = [each for shape in shapes for each in ("--shape", shape)]
    assert cli.main(["compile", source, *options, "-o", str(tmp_path / "n.so")]) != 0
    assert why in capsys.readouterr().err


def test_a_bundle_has_exact_kernels_beside_families(source: str, tmp_path: Path) -> None:
    bundle = str(tmp_path / "b")
    shapes = ["--shape", "x=1x3x?x?", "--shape", "x=1x3x12x20", "--shape", "x=2x3x8x8"]
    assert cli.main(["build", source, *shapes, "--jobs", "1", "-o", bundle]) == 0
    made = read_bundle(bundle)
    assert len(made.families) == 2
    assert {each.signature.split("-")[2] for each in made.entries} == {"i3x12x20", "i8x6x10", "i3x8x8", "i8x4x4"}
    registry = load(bundle)
    text = "conv2d-n1-i3x{}-o8x{}-k3x3-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f32-relu"
    assert registry.explain(text.format("12x20", "6x10")).family is None
    assert registry.explain(text.format("12x22", "6x11")).family is not None
