"""Models of free dimensions that a provider claims as one network: every size is its own, and what it does not take is an error."""

from __future__ import annotations

import random
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from models import fixed, model, save, value
from onnx import TensorProto, helper
from onnxruntime_sessions import options, providers_of

import tvmconv.onnxruntime
from tvmconv import cli
from tvmconv.accuracy import describe_differences
from tvmconv.errors import InputError, SourceError
from tvmconv.family import Extent
from tvmconv.measuring.timing import Timing
from tvmconv.network.ir.extents import extents_of
from tvmconv.network.read.onnx.partition import read_parts

Feeds = dict[str, np.ndarray]
SHAPES = ("--shape", "x=?[0:]x3x?%2[2:512]x?", "--shape", "z=?[0:]x5")


def free_model(seed: int = 0) -> onnx.ModelProto:
    """Return a model that computes with sizes, of two inputs with one batch, and outputs of two types; none declares its shape."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Shape", ["r"], ["s"]),
        node("Resize", ["p", "", "", "s"], ["u"], mode="linear"),
        node("Concat", ["u", "r"], ["k"], axis=1),
        node("Conv", ["k", "v"], ["y"]),
        node("GlobalMaxPool", ["r"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("MatMul", ["f", "m"], ["h"]),
        node("Add", ["h", "z"], ["a"]),
        node("ArgMax", ["a"], ["i"], axis=1, keepdims=0),
    ]
    weights = [fixed("w", 8, 3, 3, 3, seed=seed), fixed("v", 2, 16, 1, 1), fixed("m", 8, 5)]
    inputs = [value("x", ["n", 3, "h", "w"]), value("z", ["n", 5])]
    return model(nodes, inputs, [value("y", None), value("a", None), value("i", None, TensorProto.INT64)], weights)


def feeds_of(n: int, h: int, w: int) -> Feeds:
    rng = np.random.default_rng(n + h + w)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("x", (n, 3, h, w)), ("z", (n, 5)))}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(free_model(), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def provider(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the command's provider, with a clock by which the network is the fastest."""
    library = tmp_path_factory.mktemp("provider") / "p.so"
    times = iter([2.0, 0.5] * 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tvmconv.onnxruntime.racing.time_call", lambda *_: Timing(next(times), 1.0, 1))
        assert cli.main(["export-onnxruntime", file, *SHAPES, "-o", str(library)]) == 0
    return library


def check(session: ort.InferenceSession, file: str, feeds: Feeds) -> None:
    expected = ort.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, feeds)
    found = session.run(None, feeds)
    assert [each.shape for each in found] == [each.shape for each in expected]
    assert describe_differences(dict(zip("yai", found, strict=True)), expected) == []


def test_every_size_is_one_node_of_the_provider(file: str, provider: Path, tmp_path: Path) -> None:
    session = tvmconv.onnxruntime.session(file, provider, options=options(tmp_path))
    drawn = random.Random(0)
    sizes = [(1, 2, 1), (1, 2, 2), (3, 64, 33), (1, 2, 1)]
    sizes += [(drawn.randint(1, 4), 2 * drawn.randint(1, 60), drawn.randint(1, 130)) for _ in range(8)]
    for size in sizes:
        check(session, file, feeds_of(*size))
    assert [each[:7] for each in providers_of(session)] == ["tvmconv"] * len(sizes)


def test_threads_call_at_different_sizes(file: str, provider: Path) -> None:
    session = tvmconv.onnxruntime.session(file, provider, options=options())
    cases = [feeds_of(*size) for size in ((1, 30, 31), (2, 8, 9), (1, 64, 5), (3, 2, 2))]
    expected = [session.run(None, each) for each in cases]
    with ThreadPoolExecutor(4) as pool:
        for at, answer in enumerate(pool.map(lambda at: session.run(None, cases[at % 4]), range(80))):
            list(map(np.testing.assert_array_equal, answer, expected[at % 4]))


def test_memory_is_flat_over_many_sizes(file: str, provider: Path) -> None:
    chosen = options()
    chosen.enable_cpu_mem_arena = False
    session = tvmconv.onnxruntime.session(file, provider, options=chosen)
    drawn = random.Random(1)

    def call(count: int) -> int:
        for _ in range(count):
            session.run(None, feeds_of(1, 2 * drawn.randint(1, 40), drawn.randint(1, 80)))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    session.run(None, feeds_of(1, 80, 80))
    before = call(100)
    assert call(1000) - before < 4096  # KiB


@pytest.mark.parametrize(
    ("size", "batch", "message"),
    [
        ((1, 7, 9), 1, "extent h is 7, no multiple of 2; pad it by 1 to 8"),
        ((1, 514, 9), 1, "extent h is 514; it must be from 2 to 512"),
        ((2, 8, 9), 3, "extent 0 of z is 3 and another 2, both n, which is one extent: pad the smaller"),
        ((0, 8, 9), 3, "extent 0 of z is 3 and another 0, both n, which is one extent: pad the smaller"),
    ],
)
def test_sizes_that_it_does_not_take(
    size: tuple[int, int, int], batch: int, message: str, file: str, provider: Path
) -> None:
    session = tvmconv.onnxruntime.session(file, provider, options=options())
    feeds = feeds_of(*size) | {"z": np.zeros((batch, 5), np.float32)}
    with pytest.raises(Exception, match=message):
        session.run(None, feeds)
    check(session, file, feeds_of(1, 8, 9))


def test_other_graphs_are_left_to_onnxruntime(
    file: str, provider: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], warnings_are_said: None
) -> None:
    """Of fixed sizes, of other weights, of another level of optimization."""
    other = save(free_model(seed=1), tmp_path)

    def unlike() -> ort.SessionOptions:
        made = ort.SessionOptions()
        made.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return made

    cases = (
        (file, {"shapes": {"x": (1, 3, 8, 9), "z": (1, 5)}}, ort.SessionOptions),
        (other, {}, ort.SessionOptions),
        (file, {}, unlike),
    )
    for path, shapes, made in cases:
        session = tvmconv.onnxruntime.session(path, provider, options=made(), **shapes)  # type: ignore[arg-type]
        check(session, path, feeds_of(1, 8, 9))
        assert "its networks are of other models, or of other weights or shapes" in capfd.readouterr().err
        with pytest.raises(InputError, match="cannot be claimed as a network"):
            tvmconv.onnxruntime.session(path, provider, options=made(), claims="network", **shapes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_some_extents_are_fixed(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library for one of a batch is for sessions that say so, and for no other."""
    library = tmp_path / "one.so"
    times = iter([2.0, 0.5] * 5)
    monkeypatch.setattr("tvmconv.onnxruntime.racing.time_call", lambda *_: Timing(next(times), 1.0, 1))
    shapes = ("--shape", "x=1x3x?x?", "--shape", "z=1x5")
    assert cli.main(["export-onnxruntime", file, *shapes, "-o", str(library)]) == 0
    for how in ({"shapes": {"x": (1, 3, None, None), "z": (1, 5)}}, {"batch": 1}):
        session = tvmconv.onnxruntime.session(file, library, options=options(), claims="network", **how)  # type: ignore[arg-type]
        check(session, file, feeds_of(1, 24, 9))
    with pytest.raises(InputError, match="cannot be claimed as a network"):
        tvmconv.onnxruntime.session(file, library, options=options(), claims="network")
    with pytest.raises(SourceError, match=r"the shape 1x4x\?x\? was given, and the model's input is x \(nx3xhxw\)"):
        tvmconv.onnxruntime.session(file, library, shapes={"x": (1, 4, None, None)})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            ["--shape", "x=?x3x?x?", "--shape", "x=1x3x8x8"],
            "an input has several --shape with free extents",
        ),
        (["--shape", "q=?x3x?x?"], "has no input 'q'"),
    ],
)
def test_refusals(more: list[str], why: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export-onnxruntime", file, *more, "-o", str(tmp_path / "p.so")]) == 2
    assert why in capsys.readouterr().err


def detector(folder: Path) -> str:
    """Return a model of which numbers decide how much NonZero gives."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], ["r"]),
        node("Greater", ["r", "bound"], ["b"]),
        node("NonZero", ["b"], ["y"]),
        node("GlobalAveragePool", ["r"], ["m"]),
    ]
    outputs = [value("y", None, TensorProto.INT64), value("m", None)]
    bound = onnx.numpy_helper.from_array(np.float32(2.5), "bound")
    return save(model(nodes, [value("x", ["n", 3, "h", "w"])], outputs, [fixed("w", 8, 3, 3, 3), bound]), folder)


def test_what_needs_no_lacking_operator_is_a_part(tmp_path: Path) -> None:
    path, free = detector(tmp_path), tuple(Extent(name=name) for name in "nhw")
    (part,) = read_parts(path, free={"x": (free[0], Extent.of(3), *free[1:])})
    assert (part.inputs, part.outputs) == (("x",), ("b", "m"))
    assert [each.name for each in extents_of(part.module)] == ["n", "h", "w"]


@pytest.mark.slow
def test_a_part_is_one_node_at_every_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = detector(tmp_path)
    times = iter([2.0, 0.5] * 5)
    monkeypatch.setattr("tvmconv.onnxruntime.racing.time_call", lambda *_: Timing(next(times), 1.0, 1))
    library = tmp_path / "p.so"
    assert cli.main(["export-onnxruntime", path, "--shape", "?x3x?x?", "-o", str(library)]) == 0
    session = tvmconv.onnxruntime.session(path, library, options=options(tmp_path))
    alone = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for shape in ((1, 3, 1, 1), (2, 3, 33, 64), (1, 3, 64, 65)):
        feeds = {"x": np.random.default_rng(0).integers(-2, 3, shape).astype(np.float32)}
        for found, expected in zip(session.run(None, feeds), alone.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)  # tolerance: a mean's; the rest are integers
    assert {each[:7] for each in providers_of(session)} == {"tvmconv", "CPUExec"}


def test_what_no_network_of_free_extents_has_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node
    nodes = [
        node("NonZero", ["x"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("MatMul", ["w", "f"], ["y"]),
    ]
    made = model(nodes, [value("x", [1, 3, "h", "w"])], [value("y", None)], [fixed("w", 5, 4)])
    command = ["export-onnxruntime", save(made, tmp_path), "--shape", "1x3x?x?", "-o", str(tmp_path / "p.so")]
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert "no network: " in said
    assert "networks do not support NonZero" in said
    assert "no network can be compiled" in said
