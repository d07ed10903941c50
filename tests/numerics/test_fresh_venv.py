"""A bundle in an environment that holds only NumPy, tvm-ffi and tvmconv, as production has it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import importlib.util, json, sys, time
start = time.perf_counter()
import tvmconv
registry = tvmconv.load(sys.argv[1])
opened_s = time.perf_counter() - start
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
    "opened_s": opened_s,
    "right": right,
    "called": float(called[0, 4, 4, 0]),
    "importable": [name for name in ("tvm", "torch", "ml_dtypes", "rich") if importlib.util.find_spec(name)],
    "tvm libraries": sorted(name for name in mapped if "tvm" in name),
    "tvm modules": sorted(name for name in sys.modules if name.split(".")[0] == "tvm"),
}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of an environment with the run-time half alone, installed from a copy of this checkout."""
    folder = tmp_path_factory.mktemp("fresh")
    source = folder / "source"  # building in the checkout itself would leave files there
    for name in ("tvmconv", "schedules", "tuning_logs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", source)
    (source / "README.md").touch()  # the package's description, which nothing here reads
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = str(folder / "venv" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"apache-tvm-ffi=={version('apache-tvm-ffi')}", "numpy"], check=True)
    subprocess.run([*pip, "--no-deps", source], check=True)
    return python


def _run(program: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)


def test_load_and_call(python: str, small_bundle: Path, tmp_path: Path) -> None:
    done = _run(python, "-c", SCRIPT, small_bundle, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert str(ROOT) not in found["file"]
    assert "libtvm_ffi.so" in found["tvm libraries"]
    assert found["right"] == [True] * 7
    assert found["called"] == 3 * 3 * 19
    assert found["importable"] == []
    assert found["tvm modules"] == []
    assert all(name.startswith("libtvm_ffi") for name in found["tvm libraries"]), found["tvm libraries"]


def test_commands_say_which_extra_is_missing(python: str, tmp_path: Path) -> None:
    signature = "conv2d-n1-i3x8x8-o4x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
    done = _run(str(Path(python).with_name("tvmconv")), "build", signature, "-o", "b", cwd=tmp_path)
    assert done.returncode not in (0, -11)
    assert "pip install 'tvmconv[compile]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
