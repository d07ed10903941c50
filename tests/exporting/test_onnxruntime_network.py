"""Models that a provider claims as one network: its answers, which graphs are its own, what it refuses."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from models import fixed, model, save, value
from onnx import TensorProto, helper
from onnxruntime_sessions import feeds_of, options, providers_of
from toys import compile_bundle

import tvmconv.onnxruntime
from tvmconv import cli
from tvmconv.errors import InputError
from tvmconv.exporting.network_part import NetworkPart
from tvmconv.exporting.provider_library import export_provider
from tvmconv.frontends import read_source
from tvmconv.measuring.timing import Timing
from tvmconv.network.compile import export_part
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.onnxruntime.racing import RaceResult, graph_of, race

from .test_onnxruntime import FLAT


def network_model(
    seed: int = 0, channels: int = 8, size: tuple[int, int] = (7, 6), **attributes: Any
) -> onnx.ModelProto:
    """Return a model of two inputs, one of them a scalar, and outputs of two types."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], **({"pads": [1, 1, 1, 1]} | attributes)),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalMaxPool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "m"], ["g"]),
        helper.make_node("Mul", ["g", "z"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["i"], axis=1, keepdims=0),
    ]
    inputs = [value("x", (2, channels, *size)), value("z", ())]
    outputs = [value("y", (2, 5)), value("i", (2,), TensorProto.INT64)]
    return model(nodes, inputs, outputs, [fixed("w", 8, channels, 3, 3, seed=seed), fixed("m", 8, 5)])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(network_model(), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def bundle(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    problems = read_source(file)
    return compile_bundle(tmp_path_factory.mktemp("bundle") / "b.bundle", problems, strict=problems, quick=True)


@pytest.fixture(scope="module")
def part(file: str) -> NetworkPart:
    return export_part(use_kernels(read_onnx(file), math="strict"))


@pytest.fixture(scope="module")
def found(file: str, provider: Path) -> RaceResult:
    return race(file, provider)


@pytest.fixture(scope="module")
def graph(file: str, asked: Path) -> int:
    return graph_of(file, asked)


@pytest.fixture(scope="module")
def provider(bundle: Path, part: NetworkPart, graph: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_provider(bundle, tmp_path_factory.mktemp("provider") / "p.so", networks={graph: [part]})


def expected_of(path: str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    answers: list[np.ndarray] = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    return answers


def test_the_race_has_the_network(found: RaceResult, graph: int):
    assert [identity for _, identity in found.graphs] == [graph]
    assert set(found.seconds) == {"nothing", "convolutions", "network"}
    assert not found.refused


@pytest.mark.parametrize("threads", [1, 2])
def test_it_computes_its_model_as_one_node(file: str, provider: Path, threads: int, tmp_path: Path):
    chosen = options(tmp_path)
    chosen.intra_op_num_threads = threads
    session = tvmconv.onnxruntime.session(file, provider, options=chosen)
    feeds = feeds_of(session)
    expected = expected_of(file, feeds)
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: session.run(None, feeds), range(40)):
            list(map(np.testing.assert_array_equal, answer, expected))
    assert [each[:7] for each in providers_of(session)] == ["tvmconv"] * 40


def test_bindings_and_sessions_without_an_arena(file: str, provider: Path):
    """Several threads call two sessions by bindings, of arrays that begin at a cache line and of such that do not."""
    sessions = []
    for arena in (True, False):
        chosen = options()
        chosen.enable_cpu_mem_arena = arena
        sessions.append(tvmconv.onnxruntime.session(file, provider, options=chosen, claims="network"))
    feeds = feeds_of(sessions[0])
    expected = expected_of(file, feeds)

    def call(i: int) -> list[np.ndarray]:
        binding, memory = sessions[i % 2].io_binding(), np.empty(256, np.uint8)
        begin = -memory.ctypes.data % 64 + 16 * (i % 3)
        answers = [memory[begin:][:40].view(np.float32).reshape(2, 5), memory[begin + 64 :][:16].view(np.int64)]
        for name, each in feeds.items():
            binding.bind_cpu_input(name, each)
        for name, each in zip(("y", "i"), answers, strict=True):
            binding.bind_output(name, "cpu", 0, each.dtype.type, each.shape, each.ctypes.data)
        sessions[i % 2].run_with_iobinding(binding)
        return answers

    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(call, range(60)):
            list(map(np.testing.assert_array_equal, answer, expected))


OTHERS = {
    "weights": network_model(seed=1),
    "attributes": network_model(dilations=[2, 2], pads=[2, 2, 2, 2]),
    "shape": network_model(channels=9),
    "nodes": None,
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_graphs_are_not_its_own(what: str, file: str, provider: Path, tmp_path: Path):
    made = OTHERS[what]
    if made is None:
        made = onnx.load(file)
        made.graph.node[1].op_type = "Abs"
    path = save(made, tmp_path)
    session = tvmconv.onnxruntime.session(path, provider, options=options(tmp_path))
    feeds = feeds_of(session)
    list(map(np.testing.assert_array_equal, session.run(None, feeds), expected_of(path, feeds)))
    assert "CPUExecutionProvider" in providers_of(session)  # of the Gemm
    with pytest.raises(InputError, match="networks are of other models, or of other weights"):
        tvmconv.onnxruntime.session(path, provider, options=options(), claims="network")


def test_names_of_nodes_and_tensors_between_do_not_count(file: str, provider: Path, tmp_path: Path):
    made = onnx.load(file)
    for node in made.graph.node:
        node.name = f"other_{node.output[0]}"
        for names in (node.input, node.output):
            names[:] = [f"other_{each}" if each in "crpfg" else each for each in names]
    session = tvmconv.onnxruntime.session(save(made, tmp_path), provider, options=options(tmp_path))
    session.run(None, feeds_of(session))
    assert [each[:7] for each in providers_of(session)] == ["tvmconv"]


def test_an_input_of_another_shape(file: str, provider: Path):
    """onnxruntime only warns where a model declares one shape of an inner tensor, and refuses those of inputs itself."""
    session = tvmconv.onnxruntime.session(file, provider, options=options(), claims="network")
    feeds = feeds_of(session)
    with pytest.raises(Exception, match="invalid dimensions"):
        session.run(None, feeds | {"x": feeds["x"][:1]})


@pytest.mark.parametrize(
    ("inputs", "outputs", "why"),
    [
        (["x"], None, "reads an input that the network has not"),
        (["x", "z", "more"], None, "the network has an input that the graph does not read"),
        # A network of fewer outputs would be one of a part, which is another.
        (None, ["y"], "its networks are of other models"),
        (None, ["y", "i", "more"], "its networks are of other models"),
    ],
)
def test_ends_that_differ(
    inputs: list[str] | None,
    outputs: list[str] | None,
    why: str,
    file: str,
    graph: int,
    part: NetworkPart,
    tmp_path: Path,
):
    ends = dict(part.description)
    for key, names in (("inputs", inputs), ("outputs", outputs)):
        if names is not None:
            known = {each["name"]: each for each in ends[key]}
            ends[key] = [known.get(name, {"name": name, "shape": [1], "dtype": "float32"}) for name in names]
    library = export_provider(None, tmp_path / "p.so", networks={graph: [replace(part, description=ends)]})
    with pytest.raises(InputError, match=why):
        tvmconv.onnxruntime.session(file, library, options=options(), claims="network")


def test_without_a_network(file: str, bundle: Path, tmp_path: Path):
    library = export_provider(bundle, tmp_path / "p.so")
    with pytest.raises(InputError, match="the library has no network"):
        tvmconv.onnxruntime.session(file, library, options=options(), claims="network")


def test_wrong_answers_are_not_claimed(file: str, graph: int, tmp_path: Path):
    wrong = export_part(use_kernels(read_onnx(save(network_model(seed=1), tmp_path)), math="strict"))
    library = export_provider(None, tmp_path / "p.so", networks={graph: [wrong]})
    found = race(file, library)
    assert found.refused.startswith("its answers are off by")
    assert "network" not in found.seconds


def test_a_library_that_is_cut_off(file: str, provider: Path, tmp_path: Path):
    library = tmp_path / "cut.so"
    shutil.copy(provider, library)
    with library.open("r+b") as opened:
        opened.truncate(library.stat().st_size - 100)
    with pytest.raises(Exception, match=r"is cut off: its end is missing; export it again"):
        tvmconv.onnxruntime.session(file, library, options=options())


def test_nothing_is_left_behind(file: str, provider: Path):
    command = [sys.executable, "-c", FLAT, file, str(provider)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    runs, sessions, loaded = done.stdout.split()
    assert int(runs) < 256
    assert int(sessions) < 1024  # in kB, as of kernels
    assert loaded == str(not tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 27))


def test_command(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    times = iter([2.0, 1.0, 0.5] * 5)
    monkeypatch.setattr("tvmconv.onnxruntime.racing.time_call", lambda *_: Timing(next(times), 1.0, 1))
    library = tmp_path / "model.so"
    assert cli.main(["export-onnxruntime", file, "--math", "strict", "-o", str(library)]) == 0
    assert re.search(r"convolutions claimed 1000.000 ms, network claimed 500.000 ms", capsys.readouterr().err)
    session = tvmconv.onnxruntime.session(file, library, options=options(tmp_path))
    session.run(None, feeds_of(session))
    assert [each[:7] for each in providers_of(session)] == ["tvmconv"]
