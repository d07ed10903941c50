"""Kernels that an earlier build left: the same bytes, and built anew where anything that decides them is another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tvm")

import tvmconv
from tvmconv.building import builder
from tvmconv.errors import TvmconvWarning
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import parse_signature
from tvmconv.support.cache import VARIABLE, open_cache

PROBLEMS = [
    parse_signature(text)
    for text in (
        "conv2d-n1-i16x6x6-o16x6x6-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
        "conv1d-n1-i8x9-o8x9-k1-s1-d1-p0_0-g1-NXC-XIO-bf16-bias-relu",
    )
]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that jobs are added to which are run, not taken from the cache."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    jobs: list[str] = []
    run_all = builder.run_all

    def counted(function, tasks, *more):  # type: ignore[no-untyped-def]
        jobs.extend(map(str, tasks))
        return run_all(function, tasks, *more)

    monkeypatch.setattr(builder, "run_all", counted)
    return jobs


def content(bundle: Path) -> dict[str, bytes]:
    return {str(path.relative_to(bundle)): path.read_bytes() for path in sorted(bundle.rglob("*")) if path.is_file()}


def test_a_second_build_compiles_nothing(tmp_path: Path, ran: list[str]) -> None:
    shown: list[tuple[int, int]] = []
    for name in ("first", "second"):
        tvmconv.build(PROBLEMS, tmp_path / name, progress=lambda done, total, _: shown.append((done, total)))
    assert len(ran) == len(PROBLEMS) and shown == [(1, 2), (2, 2)] * 2
    assert content(tmp_path / "first") == content(tmp_path / "second")
    assert [each.verified for each in read_bundle(tmp_path / "second").entries] == [True, True]


def test_what_decides_a_kernel_is_in_its_key(tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = PROBLEMS[:1]
    tvmconv.build([problem], tmp_path / "first")
    count = len(ran)
    for number, (options, change) in enumerate(
        [
            ({"math": "strict"}, {}),
            ({"verify": False}, {}),
            ({"prepacked": True}, {}),
            ({"target": "x86-64-v3"}, {}),
            ({}, {"tvmconv.building.keys.sources": lambda: "changed"}),
            ({}, {"tvmconv.building.cache.model_name": lambda: "another CPU"}),
        ]
    ):
        for path, value in change.items():
            monkeypatch.setattr(path, value)
        tvmconv.build([problem], tmp_path / str(number), **options)
        count += 1
        assert len(ran) == count, options


def test_a_damaged_file_is_compiled_again(tmp_path: Path, ran: list[str]) -> None:
    (problem,) = PROBLEMS[:1]
    tvmconv.build([problem], tmp_path / "first")
    known = open_cache()
    assert known is not None
    for file in known.files():
        path = known.folder / file.key[:2] / file.key[2:]
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(TvmconvWarning, match="is damaged"):
        tvmconv.build([problem], tmp_path / "second")
    assert len(ran) == 2 and content(tmp_path / "first") == content(tmp_path / "second")
    tvmconv.build([problem], tmp_path / "third")
    assert len(ran) == 2


def test_networks_are_the_same_bytes(tmp_path: Path) -> None:
    """With and without the kernels that the cache has, and by whatever order sets have in a process."""
    model = Path(__file__).parents[1] / "compatibility/v0.1.0/model.onnx"
    outputs = []
    for seed in ("1", "2"):
        output = tmp_path / seed / "network.so"
        output.parent.mkdir()
        environment = {**os.environ, VARIABLE: str(tmp_path / "cache"), "PYTHONHASHSEED": seed}
        compiled = "from tvmconv.cli.networks.known import KnownLibrary; KnownLibrary.write = lambda *_: None"
        main = f"import sys; from tvmconv import cli; {compiled}; sys.exit(cli.main())"
        command = [sys.executable, "-c", main, "compile", str(model), "-o", str(output)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]
