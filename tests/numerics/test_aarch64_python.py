"""A bundle for both architectures under each: this machine's Python, and one of 64-bit ARM under QEMU without the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


OPERATORS = """
import ctypes, sys
import numpy as np
import tvmconv
registry = tvmconv.load(sys.argv[1])
library = registry[next(iter(registry))].addressed().library
draw, outputs = np.random.default_rng(3), []
INT, LONG, POINTER, FLOAT = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_float

def numbers(*shape, bf16=False, special=True):
    values = draw.standard_normal(shape).astype(np.float32)
    if special:
        flat = values.reshape(-1)
        for value in (np.nan, np.inf, -np.inf, 0.0, -0.0):
            flat[draw.integers(0, flat.size, 1 + flat.size // 40)] = value
    return (values.view(np.uint32) >> 16).astype(np.uint16) if bf16 else values

def address(array):
    return None if array is None else POINTER(array.ctypes.data)

def longs(*values):
    return (LONG * len(values))(*values)

def empty(*shape, bf16=False):
    return np.full(shape, 7, np.uint16 if bf16 else np.float32)

for bf16 in (False, True):
    for channels in (1, 3, 8, 17, 40, 67):
        data, out = numbers(2, 9, 11, channels, bf16=bf16), empty(2, 5, 10, channels, bf16=bf16)
        axes = longs(1, 1, 1, 1, 0, 1, 9, 5, 3, 2, 1, 1, 11, 10, 2, 1, 1, 2)
        library.tvmconv_max_pool(INT(2), INT(bf16), address(data), address(out), LONG(2), LONG(channels), axes)
        outputs.append(out)
        for mode in range(4):
            out, size = empty(2, 12, 13, channels, bf16=bf16), data.itemsize
            axes = longs(1, 1, 0, 0, 9, 12, 2, 11 * channels * size, 11, 13, 1, channels * size)
            constant, image = numbers(1, bf16=bf16, special=False), 99 * channels * size
            library.tvmconv_pad(
                INT(2), INT(size), INT(mode), address(data), address(out), LONG(2), LONG(channels), LONG(image), LONG(size), axes,
                address(constant),
            )
            outputs.append(out)
        parts = [numbers(50, count, bf16=bf16) for count in (channels, 5, 32)]
        out = empty(50, channels + 37, bf16=bf16)
        places = (POINTER * 3)(*(part.ctypes.data for part in parts))
        sizes = longs(*(part.shape[1] * part.itemsize for part in parts))
        library.tvmconv_concatenate(INT(2), LONG(3), places, sizes, address(out), LONG(50))
        assert np.array_equal(out.view(np.uint8), np.concatenate(parts, 1).view(np.uint8))
        outputs.append(out)
        data = numbers(20, channels, bf16=bf16, special=False)
        for weight in (None, numbers(channels, bf16=bf16, special=False)):
            out = empty(20, channels, bf16=bf16)
            library.tvmconv_layer_norm(
                INT(2), INT(bf16), address(data), address(out), address(weight), address(weight), LONG(20), LONG(channels), FLOAT(1e-5)
            )
            outputs.append(out)
np.savez(sys.argv[2], *outputs)
"""


def test_operators_between_kernels(both: Path, tmp_path: Path) -> None:
    """As this machine's, which are compared with PyTorch's: bit for bit but for the sums of a LayerNorm and what a NaN is."""
    subprocess.run([sys.executable, "-c", OPERATORS, both, tmp_path / "here.npz"], check=True)
    done = on_arm("neoverse-n1", OPERATORS, both, tmp_path / "there.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "here.npz") as here, np.load(tmp_path / "there.npz") as there:
        assert len(here) == len(there) == 2 * 6 * (1 + 4 + 1 + 2)
        for number, name in enumerate(here):
            ours, theirs = (widened(each[name]) for each in (here, there))
            error = (2**-7 if here[name].dtype == np.uint16 else 1e-5) if number % 8 > 5 else 0
            np.testing.assert_allclose(theirs, ours, rtol=error, atol=error)


def widened(array: np.ndarray) -> np.ndarray:
    """Return numbers of bf16 as f32."""
    return (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == np.uint16 else array
