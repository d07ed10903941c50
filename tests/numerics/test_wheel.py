"""The wheel: complete, and enough with tvm-ffi and NumPy alone, as production has it, in a virtual environment of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import tvmconv

ROOT = Path(__file__).parents[2]
F32 = "conv2d-n1-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"
F16 = "backprop2d-n1-i8x5x5-o16x10x10-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f16"
CALLS = """
import sys
import numpy
import tvmconv
from tvmconv.fills import exact_case
registry = tvmconv.load(sys.argv[1])
for signature in sys.argv[2:]:
    arrays, expected = exact_case(tvmconv.parse_signature(signature))
    assert numpy.array_equal(registry[signature](*arrays), expected), signature
assert not {"tvm", "torch", "ml_dtypes", "rich"} & set(sys.modules)
"""


LOADED = """
import importlib.util, json, sys
import re
import tvmconv
registry = tvmconv.load(sys.argv[1])
from tvmconv import fills, reference
right = []
for signature in registry:
    kernel = registry[signature]
    if kernel.problem.dtype == "bf16":
        continue  # there is no bfloat16 in NumPy alone
    (*inputs, bias), expected = fills.exact_case(kernel.problem)
    right.append(bool((kernel(*inputs, bias) == expected).all()))
import numpy as np
data, taps = np.ones((2, 9, 7, 19), np.float32), np.ones((3, 3, 19, 21), np.float32)
called = registry.convolution(data, taps, strides=(1, 1), dilations=(1, 1), auto_pad="same_upper")
mapped = {line.split()[-1].rsplit("/", 1)[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps({
    "file": tvmconv.__file__,
    "right": right,
    "called": float(called[0, 4, 4, 0]),
    "importable": [name for name in ("tvm", "torch", "ml_dtypes", "rich") if importlib.util.find_spec(name)],
    "tvm libraries": sorted(name for name in mapped if "tvm" in name),
    "tvm modules": sorted(name for name in sys.modules if name.split(".")[0] == "tvm"),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the source, which the build would litter."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "*.bundle", "__pycache__")
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(folder / "source")], check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a fresh virtual environment; return the folder of its programs."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    # What is imported is compiled then.
    command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile", str(wheel)]
    subprocess.run(command, check=True)
    return folder / "bin"


@pytest.fixture(autouse=True)
def nothing_else_is_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs find no checkout that whoever runs the tests has in PYTHONPATH."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a bundle that was built here, where the compiler is."""
    problems = [tvmconv.parse_signature(signature) for signature in (F32, F16)]
    return str(tvmconv.build(problems, tmp_path_factory.mktemp("wheel") / "b", math="strict", jobs=1))


def run(bare: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed `tvmconv`, outside the checkout."""
    return subprocess.run([bare / "tvmconv", *arguments], capture_output=True, text=True, cwd=bare, check=False)


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, installed in (("tvmconv", "tvmconv"), ("schedules", "tvmconv/schedules"), ("tuning_logs", "tvmconv/tuning_logs")):  # fmt: skip
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".c", ".h", ".cuh", ".jsonl", ".typed", ".css", ".js"):
                assert f"{installed}/{path.relative_to(ROOT / folder)}" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


def test_only_tvm_ffi_and_numpy_come_with_it(bare: Path) -> None:
    listed = subprocess.run(
        [bare / "python", "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    )
    names = {line.partition("==")[0].replace("_", "-") for line in listed.stdout.splitlines()}
    assert names - {"pip", "setuptools"} == {"tvmconv", "numpy", "apache-tvm-ffi", "typing-extensions"}


def test_kernels_are_right_there(bare: Path, bundle: str) -> None:
    subprocess.run([bare / "python", "-c", CALLS, bundle, F32, F16], cwd=bare, check=True)


def test_nothing_else_is_loaded(bare: Path, small_bundle: Path, tmp_path: Path) -> None:
    command = [bare / "python", "-c", LOADED, small_bundle]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert str(ROOT) not in found["file"]
    assert "libtvm_ffi.so" in found["tvm libraries"]
    assert found["right"] == [True] * 7
    assert found["called"] == 3 * 3 * 19
    assert found["importable"] == []
    assert found["tvm modules"] == []
    assert all(name.startswith("libtvm_ffi") for name in found["tvm libraries"]), found["tvm libraries"]


@pytest.mark.parametrize("command", ["list", "verify", "bench"])
def test_commands_on_a_bundle(command: str, bare: Path, bundle: str) -> None:
    done = run(bare, command, bundle)
    assert done.returncode == 0, done.stderr
    assert F32 in done.stdout and F16 in done.stdout


def test_a_report(bare: Path, bundle: str) -> None:
    done = run(bare, "report", bundle, "--seconds", "0.01", "--output", "report.html")
    assert done.returncode == 0, done.stderr
    page = (bare / "report.html").read_text()
    assert all(text in page for text in (f'"{F32}"', f'"{F16}"', "prefers-color-scheme", "aria-sort"))


def test_commands_without_a_bundle(bare: Path, bundle: str) -> None:
    assert "exit codes" in run(bare, "--help").stdout
    assert run(bare, "--version").stdout == f"tvmconv {tvmconv.__version__}\n"
    assert F32 in run(bare, "sig", F32, "--json").stdout
    assert json.loads(run(bare, "env", "--json").stdout)["apache-tvm"] == "not installed"
    assert run(bare, "explain", F32, bundle).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["build", F32, "-o", "b"], "compile"),
        (["build", F32, "-o", "b", "--trials", "1"], "compile"),
        (["tune", F32], "compile"),
        (["build", "model.onnx", "-o", "b"], "onnx"),
    ],
)
def test_a_missing_extra_is_named(arguments: list[str], extra: str, bare: Path) -> None:
    (bare / "model.onnx").write_bytes(b"")
    done = run(bare, *arguments)
    assert done.returncode == 3, done.stderr
    assert re.search(rf"pip install '.*tvmconv.*\[{extra}\]'", done.stderr) and "Traceback" not in done.stderr
    assert not (bare / "b").exists()
