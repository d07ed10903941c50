"""A bundle for both architectures under each: this machine's Python, and one of 64-bit ARM under QEMU without the compiler."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulated import N1, V1, emulator_of, needs_emulator
from models import model, save, value
from onnx import helper, numpy_helper
from toys import small_problem

import tvmconv
from tvmconv import cli, fills
from tvmconv.exporting.provider_library import export_provider
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import EMULATED, read_bundle
from tvmconv.runtime.selection import obstacle
from tvmconv.signature import format_signature

ROOT = Path(__file__).parents[2]
# What `.ci/aarch64-python` makes.
FOREIGN = ROOT / "build/aarch64"
TARGETS = ("x86-64-v3", "x86-64-v4", N1, V1)
PROBLEMS = (
    small_problem(bias=True),
    small_problem("f16"),
    small_problem("bf16", True, in_channels=64, out_channels=64),
)
pytestmark = [
    needs_emulator,
    pytest.mark.skipif(not (FOREIGN / "done").exists(), reason="no Python for 64-bit ARM: .ci/aarch64-python gets it"),
]
CALLS = """
import json, platform, sys
import numpy as np
import tvmconv
from tvmconv import fills
registry = tvmconv.load(sys.argv[1])
taken = {}
for signature in registry:
    kernel = registry[signature]
    arrays, expected = fills.exact_case(kernel.problem)
    given = arrays.given()
    assert np.array_equal(kernel(**given), expected), signature
    given["filter"] = kernel.pack(given["filter"])
    assert np.array_equal(kernel(**given), expected), signature
    taken[signature] = kernel.info.target
data, taps = np.ones((2, 9, 7, 19), np.float32), np.ones((3, 3, 19, 21), np.float32)
called = registry.convolution(data, taps, np.zeros(21, np.float32), strides=(1, 1), dilations=(1, 1), auto_pad="same_upper")
nodes = {name: np.asarray(registry.node(name)(np.load(sys.argv[2]))).tolist() for name in sys.argv[3:]}
assert not {"tvm", "torch", "onnx"} & set(sys.modules)
print(json.dumps({"machine": platform.machine(), "taken": taken, "called": float(called[0, 4, 4, 0]), "nodes": nodes}))
"""
REFUSED = """
import sys
import tvmconv
try:
    tvmconv.load(sys.argv[1])
except tvmconv.errors.TvmconvError as error:
    print(type(error).__name__, error)
"""


def on_arm(cpu: str, script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script by the Python of ARM, under QEMU as one of its CPUs."""
    emulator = emulator_of(V1)
    assert emulator is not None
    python = next((FOREIGN / "root/usr/bin").glob("python3.*"))
    command = [emulator.program, "-cpu", cpu, "-L", FOREIGN / "root", python, "-c", script, *map(str, arguments)]
    paths = os.pathsep.join(map(str, (ROOT, FOREIGN / "packages")))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "2", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a model of one layer."""
    weights = np.random.default_rng(0).integers(-2, 3, (24, 8, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="layer", pads=[1, 1, 1, 1])
    graph = model([node], [value("x", (1, 8, 12, 12))], [value("y", None)], [numpy_helper.from_array(weights, "w")])
    assert isinstance(graph, onnx.ModelProto)
    return save(graph, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def both(source: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of four targets, which one command has built, with a layer's filter."""
    path = tmp_path_factory.mktemp("both") / "both.bundle"
    targets = [argument for target in TARGETS for argument in ("--target", target)]
    signatures = list(map(format_signature, PROBLEMS))
    assert cli.main(["build", *signatures, *targets, "--math", "strict", "--jobs", "2", "-o", str(path)]) == 0
    assert (
        cli.main(["build", source, "--with-filters", *targets, "--math", "strict", "--jobs", "2", "-o", str(path)]) == 0
    )
    return path


def test_one_bundle_is_called_under_both(both: Path, tmp_path: Path) -> None:
    bundle = read_bundle(both)
    assert len(bundle.entries) == len(TARGETS) * (len(PROBLEMS) + 1)
    here = {name for name in TARGETS if obstacle(bundle.targets[name]) is None}
    for entry in bundle.entries:
        assert entry.verified == (True if entry.target in here else EMULATED if entry.target in (N1, V1) else None)
    data = np.random.default_rng(1).integers(-4, 5, (1, 8, 12, 12)).astype(np.float32)
    np.save(tmp_path / "data.npy", data)
    registry = tvmconv.load(both)
    expected = np.asarray(registry.node("layer")(data))
    for problem in PROBLEMS:
        arrays, right = fills.exact_case(problem)
        np.testing.assert_array_equal(registry[problem](**arrays.given()), right)
        assert registry[problem].info.target in here
    for cpu, target in (("neoverse-n1", N1), ("max", V1)):
        done = on_arm(cpu, CALLS, both, tmp_path / "data.npy", "layer")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["machine"] == "aarch64" and set(answer["taken"].values()) == {target}
        assert answer["called"] == 9 * 19
        np.testing.assert_array_equal(np.asarray(answer["nodes"]["layer"], np.float32), expected)


def refusal(cpu: str, bundle: Path) -> str:
    """Return the error of Python on an ARM CPU that loads a bundle."""
    done = on_arm(cpu, REFUSED, bundle)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_cpu_lacks_is_an_error(tmp_path: Path) -> None:
    """Kernels for a V1 on an N1, whose instructions would end the process, and kernels for another instruction set."""
    problem: Problem = PROBLEMS[0]
    for target in (V1, "x86-64-v3"):
        assert cli.main(["build", format_signature(problem), "--target", target, "-o", str(tmp_path / target)]) == 0
    said = refusal("neoverse-n1", tmp_path / V1)
    assert said.startswith("UnsupportedMachineError") and "for neoverse-v1, this machine's CPU lacks bf16" in said
    said = refusal("max", tmp_path / "x86-64-v3")
    assert "for x86-64-v3, it is for x86-64, and this machine's CPU is aarch64" in said
    assert refusal("max", tmp_path / V1) == ""


SESSION = """
import json, sys
from pathlib import Path
import numpy as np
import onnxruntime
import tvmconv.onnxruntime
from tvmconv.errors import UnsupportedMachineError
options = onnxruntime.SessionOptions()
options.enable_profiling, options.profile_file_prefix = True, sys.argv[4]
options.log_severity_level, options.intra_op_num_threads = 3, 1
try:
    session = tvmconv.onnxruntime.session(sys.argv[1], sys.argv[2], options=options)
except UnsupportedMachineError as error:
    print(json.dumps({"refused": str(error)}))
    raise SystemExit
(answer,) = session.run(None, {"x": np.load(sys.argv[3])})
events = json.loads(Path(session.end_profiling()).read_text())
ran = [each["args"]["provider"] for each in events if each["name"].endswith("_kernel_time")]
print(json.dumps({"answer": answer.tolist(), "ours": [each.startswith("tvmconv") for each in ran]}))
"""


def test_onnxruntime_runs_a_provider(both: Path, source: str, tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(-4, 5, (1, 8, 12, 12)).astype(np.float32)
    np.save(tmp_path / "data.npy", data)
    expected = np.asarray(tvmconv.load(both).node("layer")(data))
    for cpu, targets, refused in (("neoverse-n1", [N1, V1], False), ("max", [V1], False), ("neoverse-n1", [V1], True)):
        provider = export_provider(both, tmp_path / "provider.so", targets=targets)
        done = on_arm(cpu, SESSION, source, provider, tmp_path / "data.npy", tmp_path / "profile")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        if refused:
            assert "onnxruntime cannot load" in answer["refused"] and "neoverse-v1" in answer["refused"]
        else:
            assert answer["ours"] == [True]
            np.testing.assert_array_equal(np.asarray(answer["answer"], np.float32), expected)


NETWORK = """
import sys
import numpy as np
import tvmconv
from tvmconv.errors import UnsupportedMachineError
try:
    network = tvmconv.load_network(sys.argv[1])
except UnsupportedMachineError as error:
    print(error)
    raise SystemExit
np.save(sys.argv[3], np.asarray(network(x=np.load(sys.argv[2]))["y"]))
assert not {"tvm", "torch", "onnx"} & set(sys.modules)
"""


def test_a_network_is_called(source: str, tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(-4, 5, (1, 8, 12, 12)).astype(np.float32)
    np.save(tmp_path / "data.npy", data)
    paths = {name: tmp_path / f"{name}.so" for name in ("x86-64-v3", N1, V1)}
    for name, path in paths.items():
        assert cli.main(["compile", source, "--math", "strict", "--target", name, "-o", str(path)]) == 0
    expected = tvmconv.load_network(paths["x86-64-v3"])(x=data)["y"]
    done = on_arm("neoverse-n1", NETWORK, paths[N1], tmp_path / "data.npy", tmp_path / "answer.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "answer.npy"), np.asarray(expected))
    done = on_arm("neoverse-n1", NETWORK, paths[V1], tmp_path / "data.npy", tmp_path / "answer.npy")
    assert done.returncode == 0, done.stderr
    assert "lacks bf16" in done.stdout
