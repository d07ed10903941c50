"""What the tests with a GPU do, as far as the launches, on a driver that has no GPU: kernels compile, load and are launched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fake_cuda import compile_driver
from gpu_kernels import SHAPES, cases, compile_kernels

from tvmconv.errors import ToolchainError
from tvmconv.lowering.cuda.nvcc import check_nvcc
from tvmconv.problem import DTYPES
from tvmconv.targets.target import Target

TARGET = Target.parse("cuda:sm_90")
SHAPE = "conv2d-n1-i8x5x5-o8x5x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias"


def test_every_problem_has_an_algorithm() -> None:
    covered = {signature for signature, _ in cases(TARGET)}
    assert covered == {shape.format(dtype) for shape in SHAPES for dtype in DTYPES}


def test_kernels_are_launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        check_nvcc(TARGET)  # type: ignore[arg-type]
    except ToolchainError as error:
        pytest.skip(str(error))
    kernels = compile_kernels(tmp_path, TARGET, [SHAPE])
    assert kernels.of(SHAPE).info.target == "cuda:sm_90"
    (tmp_path / "some").mkdir()
    kernels.copy([SHAPE], tmp_path / "some")
    compile_driver(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    script = Path(__file__).parents[1] / "gpu" / "sanitized.py"
    done = subprocess.run([sys.executable, script, tmp_path / "some"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *wrong, last = done.stdout.splitlines()
    # Nothing was computed, which is noticed.
    assert last == "every kernel was called" and len(wrong) == len(kernels.made)
    assert all("outputs differ" in line and "is nan and should be" in line for line in wrong)
