"""`tvmconv compare`: how far one network's answers are from another's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from models import model, save, value
from onnx import helper, numpy_helper

from tvmconv import cli
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import read_onnx


def written(folder: Path, name: str, weight: np.ndarray, dtype: str | None = None) -> str:
    """Compile a product with a matrix, and a sum over it; return the library's file."""
    nodes = [helper.make_node("MatMul", [name, "w"], ["y"]), helper.make_node("ReduceSum", ["y"], ["z"], keepdims=0)]
    made = model(
        nodes, [value(name, [2, 3])], [value("y", None), value("z", None)], [numpy_helper.from_array(weight, "w")]
    )
    (folder / name).mkdir()
    build(read_onnx(save(made, folder / name)), folder / f"{name}.so", dtype=dtype)
    return str(folder / f"{name}.so")


def test_outputs_are_compared_over_all_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = np.eye(3, 4, dtype=np.float32)
    other = weight.copy()
    other[0] = [0.5, 1, 0, 0]
    networks = written(tmp_path, "x", weight), written(tmp_path, "same", weight), written(tmp_path, "off", other)
    x = np.zeros((2, 2, 3), np.float32)
    x[0, 0], x[0, 1], x[1, 0], x[1, 1] = [1, 0, 0], [0, 2, 0], [0, 0, 3], [0, 0, 1]
    np.savez(tmp_path / "x.npz", x=x)
    given = ["--inputs", str(tmp_path / "x.npz"), "--json"]
    assert cli.main(["compare", networks[0], networks[1], *given]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first == {"output": "y", "shape": "2x4", "largest": 0, "relative": 0, "cosine": pytest.approx(1), "top1": 1}
    assert second["output"] == "z" and second["top1"] is None and second["largest"] == 0
    assert cli.main(["compare", networks[0], networks[2], *given]) == 0
    captured = capsys.readouterr()
    (first, second) = json.loads(captured.out)
    # One row of four differs: by 0.5 and 1, of a norm of sqrt(1 + 4 + 9 + 1).
    assert first["largest"] == 1 and first["top1"] == 0.75 and second["largest"] == 0.5
    assert first["relative"] == pytest.approx((1.25 / 15) ** 0.5) and "2 calls" in captured.err
    assert cli.main(["compare", networks[0], networks[2]]) == 0
    captured = capsys.readouterr()
    assert "same top 1" in captured.out and "random inputs" in captured.err


def test_networks_of_two_floating_point_types_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = written(tmp_path, "half", np.eye(3, 4, dtype=np.float32), "f16")
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    full = written(tmp_path, "x", np.eye(3, 4, dtype=np.float32))
    assert cli.main(["compare", full, half, "--inputs", str(tmp_path / "x.npy"), "--json"]) == 0
    assert [row["largest"] for row in json.loads(capsys.readouterr().out)] == [0, 0]
    assert cli.main(["run", full, "--inputs", f"x={tmp_path / 'x.npy'}"]) == 0
    assert "random inputs" not in capsys.readouterr().err
    # In a process of its own: NumPy knows bf16 only once ml_dtypes is imported.
    bf16 = written(tmp_path, "bf16", np.eye(3, 4, dtype=np.float32), "bf16")
    done = subprocess.run([sys.executable, "-m", "tvmconv", "compare", full, bf16, "--json"], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_other_networks_and_inputs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (written(tmp_path, name, np.ones((3, size), np.float32)) for name, size in (("x", 4), ("u", 5)))
    np.save(tmp_path / "none.npy", np.zeros((0, 2, 3), np.float32))
    for arguments, message in (
        ([one, other], "compare networks with the same shapes"),
        ([one, one, "--inputs", str(tmp_path / "none.npy")], "hold no call: give at least one"),
        ([one, one, "--inputs", "a=1"], "the network has no input 'a'"),
    ):
        assert cli.main(["compare", *arguments]) == 2
        assert message in capsys.readouterr().err
