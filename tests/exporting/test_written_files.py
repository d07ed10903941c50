"""What was written is used: after a change of folder as before; damaged, with an error that says so, or the right answer."""

from __future__ import annotations

import pickle
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import model, save, value
from near import assert_near
from onnx import helper, numpy_helper

from tvmconv import cli
from tvmconv.tuning.records import Records

pytest.importorskip("onnxruntime")
CASES = 3  # of each file
# Calls what is in a folder and was damaged, each time in a child of a process that has imported everything.
PROGRAM = """
import json, os, shutil, sys, warnings
from pathlib import Path
import numpy as np
import onnxruntime
import tvmconv, tvmconv.onnxruntime
from tvmconv.errors import BundleError, TvmconvError
from tvmconv.runtime.networks.network import Network

warnings.simplefilter("ignore")
original, cases, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
data = np.random.default_rng(0).integers(-3, 4, (1, 16, 9, 9)).astype(np.float32)


def bundle(folder):
    return tvmconv.load(folder / "m.bundle").node("first")(data)


def network(folder):
    return Network(folder / "network.so")(x=data)["y"]


def provider(folder):
    return tvmconv.onnxruntime.session(original / "model.onnx", folder / "provider.so").run(None, {"x": data})[0]


def loaded(folder):
    # onnxruntime alone, which knows no checksum
    onnxruntime.register_execution_provider_library("p", str(folder / "provider.so"))
    raise BundleError("registered")


def files(call):
    if call is bundle:
        return [each for each in (original / "m.bundle").rglob("*") if each.is_file()]
    return [original / ("network.so" if call is network else "provider.so")]


def damaged(content, rng, cut):
    kind = 0 if cut else rng.integers(4)
    at = int(rng.integers(len(content)))
    if kind == 0:
        return content[:at]
    content = bytearray(content)
    for _ in range(kind):
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    if kind == 3:
        content[at : at + 512] = bytes(min(512, len(content) - at))
    return bytes(content)


def attempt(call, folder, right):
    try:
        answer = call(folder)
    except BundleError as error:
        assert str(error)
        return 0
    except TvmconvError as error:
        print(type(error), error)
        return 3
    return 0 if np.array_equal(answer, right) else 4


right = bundle(original)
failed = []
for call in (bundle, network, provider, loaded):
    for file in files(call):
        for number in range(cases):
            rng = np.random.default_rng([seed, number])
            content = damaged(file.read_bytes(), rng, call is loaded)
            child = os.fork()
            if child == 0:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                code = 5
                try:
                    folder = Path(sys.argv[4]) / str(os.getpid())
                    shutil.copytree(original, folder, copy_function=os.link)
                    damage = folder / file.relative_to(original)
                    damage.unlink()
                    damage.write_bytes(content)
                    code = attempt(call, folder, right)
                    shutil.rmtree(folder)
                except BaseException as error:
                    code = 0 if call is loaded and "cannot read file data" in str(error) else 5
                    print(repr(error)[:300], flush=True)
                finally:
                    os._exit(code)
            status = os.waitpid(child, 0)[1]
            if status:
                failed.append((call.__name__, str(file.relative_to(original)), number, status))
print(failed)
sys.exit(bool(failed))
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, and the bundle, the network and the provider of it."""
    folder = tmp_path_factory.mktemp("written")
    rng = np.random.default_rng(0)
    taps = numpy_helper.from_array(rng.integers(-2, 3, (16, 16, 3, 3)).astype(np.float32), "w")
    bias = numpy_helper.from_array(rng.integers(-2, 3, 16).astype(np.float32), "b")
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name="first", pads=[1] * 4)
    source = save(model([node], [value("x", (1, 16, 9, 9))], weights=[taps, bias]), folder)
    exact = ("--math", "strict")
    assert cli.main(["build", source, "-o", str(folder / "m.bundle"), "--with-filters", "--jobs", "1", *exact]) == 0
    assert cli.main(["compile", source, "-o", str(folder / "network.so"), *exact]) == 0
    assert cli.main(["export-onnxruntime", str(folder / "m.bundle"), "-o", str(folder / "provider.so")]) == 0
    return folder


def test_files_that_were_cut_or_changed(written: Path, tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    arguments = (str(written), str(CASES), str(seed), str(tmp_path))
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], text=True, capture_output=True, check=False)
    assert done.returncode == 0, (seed, done.stdout, done.stderr)


def twice(each: Any) -> list[Any]:
    """Return an object, and its copy by a pickle."""
    return [each, pickle.loads(pickle.dumps(each))]


def test_paths_hold_when_the_folder_changes(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    import tvmconv.torch

    data = np.random.default_rng(0).integers(-3, 4, (1, 16, 9, 9)).astype(np.float32)
    expected = tvmconv.load(written / "m.bundle").node("first")(data)
    monkeypatch.chdir(written)
    registry, network, records = tvmconv.load("m.bundle"), tvmconv.load_network("network.so"), Records("records")
    kernels, node = [registry[each] for each in registry], registry.node("first")
    model, given = torch.nn.Linear(8, 8).eval(), torch.ones(2, 8)
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path / "models")
    modules = [tvmconv.torch.compile(model, (given,), path="m.so"), tvmconv.torch.optimize(model, (given,), bundle="m")]
    monkeypatch.chdir(tmp_path)
    assert records.folder == written / "records"
    for _ in range(2):  # unused, and used
        for each in twice(registry):
            np.testing.assert_array_equal(each.node("first")(data), expected)
        for each in twice(node):
            np.testing.assert_array_equal(each(data), expected)
        for each in twice(network):
            np.testing.assert_array_equal(each(x=data)["y"], expected)
        for kernel in kernels:
            zeros = [np.zeros(shape, np.float32) for shape, _ in kernel.problem.operands.values()]
            assert not any(each(*zeros).any() for each in twice(kernel))
        with torch.no_grad():
            for each in (each for module in modules for each in twice(module)):
                assert_near(each(given), model(given), 36)
