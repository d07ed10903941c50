"""Models in onnxruntime with a provider: answers, claims, refusals, and no leaks."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from models import model, save, value
from near import assert_near
from onnx import TensorProto, helper
from onnxruntime_sessions import feeds_of, options, providers_of
from provider_graphs import FILTER, GRAPHS, NUMBERS, RNG, conv, fixed, node
from toys import compile_bundle, small_problem

import tvmconv.onnxruntime
from tvmconv import cli
from tvmconv.errors import BundleError, InputError
from tvmconv.exporting.provider_library import export_provider
from tvmconv.frontends import read_source
from tvmconv.measuring.timing import Timing
from tvmconv.onnxruntime.racing import race

pytestmark = pytest.mark.usefixtures("warnings_are_said")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the models' files."""
    found = {}
    for name, (nodes, weights, _) in GRAPHS.items():
        read = {each for made in nodes for each in made.input}
        inputs = [value("x", (2, 8, 7, 6)), *([value("f", (8, 8, 3, 3))] if "f" in read else [])]
        used = [each for each in (*weights, *NUMBERS) if each.name in read]
        found[name] = save(model(nodes, inputs, [value("y", None)], used), tmp_path_factory.mktemp(name))
    return found


@pytest.fixture(scope="module")
def bundle(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of what the models' reader finds in them."""
    problems = list(dict.fromkeys(problem for path in files.values() for problem in read_source(path)))
    return compile_bundle(tmp_path_factory.mktemp("bundle") / "graphs.bundle", problems, strict=problems, quick=True)


@pytest.fixture(scope="module")
def provider(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_provider(bundle, tmp_path_factory.mktemp("provider") / "graphs.so")


def alone(path: str | bytes) -> Any:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", GRAPHS)
def test_answers_and_what_is_taken(name: str, files: dict[str, str], provider: Path, tmp_path: Path):
    session = tvmconv.onnxruntime.session(files[name], provider, options=options(tmp_path))
    feeds = feeds_of(session)
    (answer,) = session.run(None, feeds)
    assert_near(answer, alone(files[name]).run(None, feeds)[0], summed=8 * 9, layers=2)
    ran = providers_of(session)
    ours = [each for each in ran if each.startswith("tvmconv")]
    assert len(ours) == GRAPHS[name][2]
    assert name == "read_twice" or ran == ours


@pytest.mark.parametrize(("name", "inner"), [("silu", "g"), ("hardswish", "b"), ("hardsigmoid", "a"), ("gelu", "e")])
def test_outputs_within_an_activation(name: str, inner: str, files: dict[str, str], provider: Path, tmp_path: Path):
    """An activation of several nodes is not fused where the model has a tensor within it as an output."""
    read = onnx.load(files[name])
    read.graph.output.append(value(inner, None))
    path = save(read, tmp_path)
    session = tvmconv.onnxruntime.session(path, provider, options=options())
    feeds = feeds_of(session)
    for answer, expected in zip(session.run(None, feeds), alone(path).run(None, feeds), strict=True):
        assert_near(answer, expected, summed=8 * 9, layers=2)


def test_half_precision(tmp_path: Path):
    nodes = [conv(), node("Relu", "c", "y")]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT16, (1, 8, 7, 6))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)
    path = save(model(nodes, [given], [result], [fixed("w", 8, 8, 3, 3, dtype=np.float16)]), tmp_path)
    problems = read_source(path)
    bundle = compile_bundle(tmp_path / "half.bundle", problems, strict=problems, quick=True)
    library = export_provider(bundle, tmp_path / "half.so")
    session = tvmconv.onnxruntime.session(path, library, options=options(tmp_path))
    feeds = {"x": RNG.integers(-2, 3, (1, 8, 7, 6)).astype(np.float16)}
    np.testing.assert_array_equal(session.run(None, feeds)[0], alone(path).run(None, feeds)[0])
    assert all(each.startswith("tvmconv") for each in providers_of(session))


def test_threads_and_sessions(files: dict[str, str], provider: Path):
    sessions = [tvmconv.onnxruntime.session(files["residual"], provider, options=options()) for _ in range(2)]
    feeds = feeds_of(sessions[0])
    (expected,) = alone(files["residual"]).run(None, feeds)
    with ThreadPoolExecutor(4) as pool:
        for (answer,) in pool.map(lambda i: sessions[i % 2].run(None, feeds), range(200)):
            np.testing.assert_array_equal(answer, expected)


def test_other_shapes_are_left_to_onnxruntime(provider: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    nodes = [conv("a"), node("Relu", "a", "b"), conv("y", "b")]
    path = save(model(nodes, [value("x", (2, 8, 9, 9))], [value("y", None)], [FILTER]), tmp_path)
    session = tvmconv.onnxruntime.session(path, provider)
    feeds = feeds_of(session)
    np.testing.assert_array_equal(session.run(None, feeds)[0], alone(path).run(None, feeds)[0])
    said = capfd.readouterr().err
    assert said.count("onnxruntime itself computes 2 of 2 convolutions") == 1
    assert "tvmconv export-onnxruntime MODEL.onnx" in said


def test_a_model_of_which_there_is_the_lesser_part(provider: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """One of three convolutions has a kernel, then one of two, which is as much."""
    for more, ours in ((2, 0), (1, 1)):
        nodes = [conv(), node("Relu", "c", "d"), conv("e0", "d", "u", dilations=[1, 2], pads=[1, 2, 1, 2])]
        nodes += [
            conv(f"e{i}", f"e{i - 1}", "u", strides=[1, 1], dilations=[2, 1], pads=[2, 1, 2, 1]) for i in range(1, more)
        ]
        weights = [FILTER, fixed("u", 8, 8, 3, 3) if more == 2 else fixed("u", 7, 8, 3, 3)]
        path = save(model(nodes, [value("x", (2, 8, 7, 6))], [value(f"e{more - 1}", None)], weights), tmp_path)
        made = options(tmp_path)
        made.log_severity_level = 2
        session = tvmconv.onnxruntime.session(path, provider, options=made)
        feeds = feeds_of(session)
        np.testing.assert_array_equal(session.run(None, feeds)[0], alone(path).run(None, feeds)[0])
        assert sum(each.startswith("tvmconv") for each in providers_of(session)) == ours
        assert f"computes {more + 1 - ours} of {more + 1} convolutions" in capfd.readouterr().err


def test_free_shapes_are_bound(provider: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    path = save(
        model([conv(), node("Relu", "c", "y")], [value("x", ("n", 8, "h", "w"))], [value("y", None)], [FILTER]),
        tmp_path,
    )
    tvmconv.onnxruntime.session(path, provider)
    assert "is not known before it runs" in capfd.readouterr().err
    session = tvmconv.onnxruntime.session(path, provider, shapes={"x": (2, 8, 7, 6)}, options=options(tmp_path))
    feeds = feeds_of(session)
    np.testing.assert_array_equal(session.run(None, feeds)[0], alone(path).run(None, feeds)[0])
    assert providers_of(session)[0].startswith("tvmconv")


def test_declared_shapes_that_are_wrong(provider: Path, tmp_path: Path):
    """A tensor that has another shape than the model declares is an error, not a wrong answer."""
    nodes = [node("Reshape", "z shape", "x"), conv(), node("Relu", "c", "y")]
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 8, 7, 6))
    inputs = [value("z", (2, 8, 42)), helper.make_tensor_value_info("shape", TensorProto.INT64, (4,))]
    made = model(nodes, inputs, [value("y", None)], [FILTER])
    made.graph.value_info.append(declared)
    session = tvmconv.onnxruntime.session(save(made, tmp_path), provider, options=options())
    data = np.ones((2, 8, 42), np.float32)
    assert session.run(None, {"z": data, "shape": np.array([2, 8, 7, 6])})[0].shape == (2, 8, 7, 6)
    with pytest.raises(Exception, match="tvmconv: the data of a convolution has another shape"):
        session.run(None, {"z": data, "shape": np.array([2, 8, 6, 7])})


def test_bundles_serve_as_providers(files: dict[str, str], bundle: Path):
    session = tvmconv.onnxruntime.session(files["relu"], bundle, options=options())
    feeds = feeds_of(session)
    np.testing.assert_array_equal(session.run(None, feeds)[0], alone(files["relu"]).run(None, feeds)[0])


def test_a_decision_for_each_model(files: dict[str, str], bundle: Path, tmp_path: Path):
    """Of models in one library each is claimed as was decided for it: decisions are found by a graph's convolutions."""
    names = ("relu", "grouped")
    library = export_provider(bundle, tmp_path / "first.so")
    first = {name: race(files[name], library, claims=("convolutions",)).graphs for name in names}
    assert all(len(found) == 1 for found in first.values())
    assert first["relu"] != first["grouped"]
    decisions = {first["relu"][0][0]: "nothing", first["grouped"][0][0]: "convolutions"}
    library = export_provider(bundle, tmp_path / "decides.so", decisions=decisions)
    for name, ours in zip(names, (0, 1), strict=True):
        session = tvmconv.onnxruntime.session(files[name], library, options=options(tmp_path))
        session.run(None, feeds_of(session))
        assert sum(each.startswith("tvmconv") for each in providers_of(session)) == ours


def test_what_is_claimed_can_be_asked_for(files: dict[str, str], provider: Path, tmp_path: Path):
    for claims, ours in (("nothing", 0), ("convolutions", 1)):
        session = tvmconv.onnxruntime.session(files["relu"], provider, options=options(tmp_path), claims=claims)
        session.run(None, feeds_of(session))
        assert sum(each.startswith("tvmconv") for each in providers_of(session)) == ours
    with pytest.raises(InputError, match="claims is 'groups'; allowed: nothing, convolutions, network"):
        tvmconv.onnxruntime.session(files["relu"], provider, claims="groups")


def test_an_option_that_is_not_known(files: dict[str, str], provider: Path, capsys: pytest.CaptureFixture[str]):
    """onnxruntime's Python raises what a provider refuses; before 1.32, it says so and goes on without it."""
    made, name = options(), tvmconv.onnxruntime.register(provider)
    made.add_provider_for_devices([each for each in ort.get_ep_devices() if each.ep_name == name], {"claims": "all"})
    why = "tvmconv: the option claims is 'all'; allowed: nothing, convolutions, network"
    if tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 32):
        with pytest.raises(Exception, match=why):
            ort.InferenceSession(files["relu"], made)
        return
    with pytest.warns(UserWarning, match="has already been configured with providers"):
        ort.InferenceSession(files["relu"], made)
    assert why in capsys.readouterr().out


def test_bad_inputs(files: dict[str, str], provider: Path, tmp_path: Path):
    session = tvmconv.onnxruntime.session
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(BundleError, match=r"text\.so is no provider that tvmconv export-onnxruntime wrote"):
        session(files["relu"], tmp_path / "text.so")
    with pytest.raises(
        InputError, match=r"neither a library nor a bundle; write a library with: tvmconv export-onnxruntime"
    ):
        session(files["relu"], tmp_path / "none.so")
    with pytest.raises(InputError, match="no such file"):
        session(tmp_path / "none.onnx", provider)
    with pytest.raises(InputError, match=r"options is 3; it must be an onnxruntime\.SessionOptions"):
        session(files["relu"], provider, options=3)
    with pytest.raises(InputError, match="a session has one shape"):
        session(files["relu"], provider, shapes={"x": [(1, 8, 7, 6), (2, 8, 7, 6)]})
    with pytest.raises(InputError, match="a folder"):
        export_provider(tmp_path, tmp_path)
    other = compile_bundle(tmp_path / "nxc.bundle", [small_problem(data_format="NXC", filter_format="XIO")], quick=True)
    with pytest.raises(BundleError, match="no kernel in ONNX's layouts, NCX and OIX"):
        export_provider(other, tmp_path / "nxc.so")


class Base(ctypes.Structure):
    """What onnxruntime hands to a provider first."""

    _fields_ = (
        ("functions", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_uint32)),
        ("version", ctypes.CFUNCTYPE(ctypes.c_size_t)),
    )


def test_an_older_onnxruntime_is_refused(provider: Path, tmp_path: Path):
    said: list[bytes] = []

    @ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p)
    def create_status(code: int, text: bytes) -> int:
        said.append(text)
        return 1

    table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p))
    version, kinds = ctypes.create_string_buffer(b"1.22.1"), dict(Base._fields_)
    functions = kinds["functions"](lambda wanted: ctypes.addressof(table) if wanted < 23 else 0)
    base = Base(functions, kinds["version"](lambda: ctypes.addressof(version)))
    copy = shutil.copy(provider, tmp_path / "copy.so")  # onnxruntime has the other one
    create = ctypes.CDLL(str(copy)).CreateEpFactories
    create.restype = ctypes.c_void_p
    assert create(b"tvmconv", ctypes.byref(base), None, None, ctypes.c_size_t(1), None) == 1
    assert said == [
        b"tvmconv: this is onnxruntime 1.22.1, and providers need 1.23 or later: pip install -U onnxruntime"
    ]


FLAT = """
import gc, sys
import numpy as np, onnxruntime as ort
import tvmconv.onnxruntime
model, provider = sys.argv[1:]
def rss():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4
def make():
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return tvmconv.onnxruntime.session(model, provider, options=options)
def grown(count, call):
    call(count)
    return min(-(rss() - (call(count), rss())[1]) for _ in range(5))
feeds = {each.name: np.ones(each.shape, np.float32) for each in make().get_inputs()}
session = make()
print(grown(2000, lambda n: [session.run(None, feeds) for _ in range(n)] and None))
print(grown(30, lambda n: [make().run(None, feeds) for _ in range(n)] and None))
del session
name = tvmconv.onnxruntime.register(provider)
ort.unregister_execution_provider_library(name)
print(provider in open("/proc/self/maps").read())
"""


def test_nothing_is_left_behind(files: dict[str, str], provider: Path):
    command = [sys.executable, "-c", FLAT, files["residual"], str(provider)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    runs, sessions, loaded = done.stdout.split()
    assert int(runs) < 256
    # In kB: beside other programs glibc's heap grew by 280 to 548, of which nothing was a session's.
    assert int(sessions) < 1024
    newest = tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 27)  # older ones keep libraries
    assert loaded == str(not newest)


def test_threads_are_the_sessions(files: dict[str, str], provider: Path, tmp_path: Path):
    """Whatever their number, and nobody else starts any."""
    for threads in (1, 2, 5):
        made = options()
        made.intra_op_num_threads = threads
        before = len(list(Path("/proc/self/task").iterdir()))
        session = tvmconv.onnxruntime.session(files["residual"], provider, options=made)
        feeds = feeds_of(session)
        np.testing.assert_array_equal(session.run(None, feeds)[0], alone(files["residual"]).run(None, feeds)[0])
        assert len(list(Path("/proc/self/task").iterdir())) - before <= threads - 1
        del session


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main(["export-onnxruntime", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_command(command: Callable[..., tuple[int, str, str]], files: dict[str, str], bundle: Path, tmp_path: Path):
    library = tmp_path / "model.so"
    code, out, err = command(files["relu"], "--math", "strict", "-o", library)  # of which sums are exact
    assert (code, out.strip()) == (0, str(library))
    assert re.search(r"nothing claimed .* ms, convolutions claimed .* ms", err)
    session = tvmconv.onnxruntime.session(files["relu"], library, options=options())
    feeds = feeds_of(session)
    np.testing.assert_array_equal(session.run(None, feeds)[0], alone(files["relu"]).run(None, feeds)[0])
    assert command(bundle, "-o", tmp_path / "bundle.so")[0] == 0
    code, _, err = command(bundle, files["relu"], "-o", tmp_path / "both.so")
    assert code == 2
    assert "is a bundle; give either" in err


def test_command_leaves_models_that_are_not_faster(
    command: Callable[..., tuple[int, str, str]], files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    library = tmp_path / "model.so"
    monkeypatch.setattr("tvmconv.onnxruntime.racing.time_call", lambda *_: Timing(1.0, 1.0, 1))
    code, _, err = command(files["relu"], "-o", library)
    assert code == 0
    assert "the provider leaves it to onnxruntime" in err
    session = tvmconv.onnxruntime.session(files["relu"], library, options=options(tmp_path))
    session.run(None, feeds_of(session))
    assert set(providers_of(session)) == {"CPUExecutionProvider"}
