"""`tvmconv run --bench --against`: a network beside onnxruntime, each in its own process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from tvmconv import cli

ARTEFACTS = Path(__file__).parents[1] / "compatibility/v0.1.0"
NETWORK, MODEL = str(ARTEFACTS / "network.so"), str(ARTEFACTS / "model.onnx")
pytestmark = pytest.mark.isa("avx2")


def test_both_are_timed_and_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", NETWORK, "--bench", "--against", MODEL, "--seconds", "0.05", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["contenders"]] == ["tvmconv", "onnxruntime"]
    assert all(each[key] > 0 for each in found["contenders"] for key in ("seconds", "start", "resident"))
    assert found["difference"] < 1e-5 and 0 <= found["largest"] < 1e-4


def test_the_table_has_three_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a process writes more to stderr than a pipe holds: of each import several lines."""
    monkeypatch.setenv("PYTHONVERBOSE", "1")
    assert cli.main(["run", NETWORK, "--bench", "--against", MODEL, "--seconds", "0.05", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4 and "1 threads each" in err


def test_what_cannot_be_raced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"none")
    assert cli.main(["run", NETWORK, "--bench", "--against", str(tmp_path / "broken.onnx")]) == 2
    assert "onnxruntime cannot run this" in capsys.readouterr().err
    assert cli.main(["run", NETWORK, "--against", MODEL]) == 2
    assert "--bench" in capsys.readouterr().err
