"""compute-sanitizer finds nothing, the tuner finds something, and the commands work."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_kernels import SHAPES, SOME, Kernels, target_of_gpu

from tvmconv import build, cli
from tvmconv.problem import DTYPES
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import parse_signature
from tvmconv.tuning.records import Records
from tvmconv.tuning.tuner import tune

# One of each kind of window; the sanitizer makes a kernel hundreds of times slower.
SANITIZED = [SHAPES[number].format(dtype) for number, dtype in enumerate(DTYPES)] + [
    SHAPES[number].format("f16") for number in (4, 8, 10, 16, 17, 18)
]


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_compute_sanitizer(kernels: Kernels, tmp_path: Path, tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer", path="/usr/local/cuda/bin") or shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed")
    kernels.copy(SANITIZED, tmp_path)
    script = [sys.executable, str(Path(__file__).with_name("sanitized.py")), str(tmp_path)]
    # The launcher asks the driver whether there is a context: that there is none is no error.
    quietly = ["--report-api-errors", "no"] if tool == "memcheck" else []
    command = [sanitizer, "--tool", tool, *quietly, "--error-exitcode", "9", *script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    if "Device not supported" in done.stdout + done.stderr:
        pytest.skip("compute-sanitizer does not support this device or system")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "differ" not in done.stdout, done.stdout[-4000:]
    assert "every kernel was called" in done.stdout


def test_tuning(tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="TVM, which compiles candidates, is not installed")
    problem, target = parse_signature(SOME.format("f16")), target_of_gpu()
    records = Records(tmp_path)
    (result,) = tune([problem], target, trials=24, records=records)
    record = result.record
    assert record is not None and result.trials > 1
    assert record.default_seconds is None or record.seconds <= record.default_seconds * 1.02
    assert not [trial for trial in result.failures if trial.status in ("wrong", "crashed", "timeout")]
    # At least the launch of a kernel, at most a thousandth of what a GPU does.
    assert 5e-7 < record.seconds < 1e-3
    assert f"sm_{target.features[-1][3:]}" in record.machine
    assert records.best(problem, target) == record
    again = tune([problem], target, trials=24, records=records)[0]
    assert again.trials == result.trials


def test_building_verifies(tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="TVM, which compiles kernels, is not installed")
    problem, target = parse_signature(SOME.format("bf16")), target_of_gpu()
    (entry,) = read_bundle(build([problem], tmp_path / "some.bundle", target.name)).entries
    assert entry.error == {"measure": "exact", "value": 0.0}


def test_commands(both: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle, signature = str(both), SOME.format("bf16")
    assert cli.main(["verify", bundle, "--json"]) == 0
    assert [verdict["status"] for verdict in json.loads(capsys.readouterr().out)] == ["right"] * 2 * len(DTYPES)
    assert cli.main(["bench", bundle, "--seconds", "0.05", "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["kernels"] if row["kind"] == "cuda"]
    assert len(rows) == len(DTYPES) and all(5e-7 < row["timing"]["median"] < 1e-3 for row in rows)
    assert cli.main(["explain", signature, bundle]) == 0
    assert "runs its machine code for sm_" in capsys.readouterr().out
    assert cli.main(["list", bundle]) == 0
