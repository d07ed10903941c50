"""`tvmconv tune` of a network's file: its kernels' problems, each as often as it has them, for the target that it is for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tvmconv import cli
from tvmconv.signature import format_signature

pytest.importorskip("tvm")
SIGNATURE = "conv2d-n1-i16x6x6-o16x6x6-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [{"signature": SIGNATURE, "why": ""}, {"signature": "", "why": "no algorithm"}]
    free = [{"signature": SIGNATURE.replace("6x6", "?x?"), "why": ""}]
    sizes = [{"report": rows}, {"report": rows[1:]}]
    told = SimpleNamespace(description={"target": "x86-64-v3", "report": rows + free, "sizes": sizes})
    monkeypatch.setattr("tvmconv.runtime.networks.file.read_file", lambda path: told)
    path = tmp_path / "network.so"
    path.touch()
    return path


def test_its_kernels_are_tuned_for_its_target(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Counter[str], str]] = []
    monkeypatch.setattr("tvmconv.cli.tune.peak_of", lambda targets: None)
    monkeypatch.setattr(
        "tvmconv.tuning.tuner.tune",
        lambda problems, target, **options: asked.append((Counter(map(format_signature, problems)), target)) or [],
    )
    assert cli.main(["tune", str(network), "--trials", "2"]) == 0
    assert asked == [({SIGNATURE: 2}, "x86-64-v3")]
    assert cli.main(["tune", str(network), SIGNATURE, "--trials", "2"]) == 0
    assert asked[1:] == [({SIGNATURE: 3}, "x86-64-v3")]


def test_another_target_is_refused(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", str(network), "--target", "znver4"]) == 2
    assert "is for x86-64-v3, not for znver4; leave --target out" in capsys.readouterr().err
