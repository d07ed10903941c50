"""The commands that need a bundle, from `build` to `explain`, and Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toys import compile_bundle

from tvmconv import cli
from tvmconv.building.bench import bench
from tvmconv.signature import parse_signature

DENSE = "conv2d-n1-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
GROUPED = "conv2d-n1-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g2-NXC-XIO-f32"
EMPTY = "conv2d-n0-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
TOML = """
[[convolution]]
data_shape = [1, 9, 9, 16]
filter_shape = [3, 3, 8, 32]
groups = 2
strides = [1, 1]
dilations = [1, 1]
auto_pad = "same_upper"
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a bundle that `tvmconv build` made of a signature and a TOML file, with the user's records left alone."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "problems.toml").write_text(TOML)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        arguments = [
            "build",
            DENSE,
            EMPTY,
            str(folder / "problems.toml"),
            "-o",
            str(folder / "b"),
            "--jobs",
            "1",
            "--no-fallback",
        ]
        arguments += ["--math", "strict"]
        assert cli.main(arguments) == 0
    return str(folder / "b")


def test_build_prints_the_path_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["build", EMPTY, "-o", "b"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (f"{tmp_path / 'b'}\n", "")


def test_progress_on_a_terminal_leaves_stdout_to_the_path(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    command = [sys.executable, "-c", "import sys; from tvmconv.cli import main; sys.exit(main())", "build", EMPTY]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "TERM": "xterm"}
    command += ["-o", str(tmp_path / "b")]
    drawn = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env=environment) as process:
        os.close(terminal)
        # A terminal that nobody reads holds 4 KiB, then its writer waits. When the last writer is gone, reading fails.
        with contextlib.suppress(OSError):
            while chunk := os.read(ours, 4096):
                drawn += chunk
        assert process.stdout is not None and process.stdout.read().decode() == f"{tmp_path / 'b'}\n"
    os.close(ours)
    assert process.returncode == 0 and b"compiling" in drawn


def test_list(bundle: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", bundle]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.startswith("signature") and [row.split()[0] for row in rows] == [EMPTY, DENSE, GROUPED]
    assert cli.main(["list", bundle, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["signature"] for entry in entries] == [EMPTY, DENSE, GROUPED]
    assert all(entry["obstacle"] is None and entry["error"] == {"measure": "exact", "value": 0.0} for entry in entries)
    assert cli.main(["list", DENSE]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[1] == DENSE
    assert cli.main(["list", DENSE, bundle, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["convolutions"][0]["targets"]


@pytest.mark.smoke
def test_verify(bundle: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", bundle]) == 0
    out, err = capsys.readouterr()
    assert out.count("passed") == 3 and err == "3 passed, 0 failed, 0 skipped\n"


def test_verify_exits_with_1_when_a_kernel_is_wrong(
    bundle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoiled = Path(shutil.copytree(bundle, tmp_path / "b"))
    next(spoiled.rglob("*.so")).write_bytes(b"")
    assert cli.main(["verify", str(spoiled), "--json"]) == 1
    statuses = [verdict["status"] for verdict in json.loads(capsys.readouterr().out)]
    assert sorted(statuses) == ["right", "right", "wrong"]


def test_bench(bundle: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # On a busy machine kernels may exceed the measured limits, which then count as unknown.
    monkeypatch.setattr("tvmconv.reporting.kernels.confirm", lambda limits, rows: limits)
    assert cli.main(["bench", bundle, "--json", "--seconds", "0.01", "--threads", "1"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["threads"] == 1 and measured["peak"]["flops"] > 1e9
    assert [row["signature"] for row in measured["kernels"]] == [DENSE, GROUPED]  # nothing to time in an empty one
    for row in measured["kernels"]:
        assert 0 < row["timing"]["least"] <= row["timing"]["median"]
        for share, timing in ((row["peak_share"], row["timing"]), (row["packed_peak_share"], row["packed"])):
            expected = timing and row["flops"] / timing["median"] / measured["peak"]["flops"]
            assert share == (expected and pytest.approx(expected))
    assert cli.main(["bench", bundle, "--seconds", "0.01"]) == 0
    out, err = capsys.readouterr()
    assert "GFLOP/s" in out and "% of peak" in out and "threads; peak:" in err


def test_bench_of_integers_whose_output_is_of_another_type(tmp_path: Path) -> None:
    problem = parse_signature("conv2d-n1-i8x6x6-o16x6x6-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-u8s8f32-zx3-scale")
    (row,) = bench(compile_bundle(tmp_path / "b", [problem], quick=True), seconds=0.01, threads=1)
    assert row.flops == problem.flops and row.timing.least > 0


def test_bench_without_a_compiler_does_not_know_the_peak(
    bundle: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tvmconv.measuring.peak.measure", lambda threads: None)
    assert cli.main(["bench", bundle, "--seconds", "0.01"]) == 0
    assert "the peak is unknown" in capsys.readouterr().err
    assert cli.main(["bench", bundle, "--seconds", "0.01", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["peak"] is None and measured["kernels"][0]["peak_share"] is None


def test_explain(bundle: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", DENSE, bundle]) == 0
    assert "taken" in capsys.readouterr().out
    missing = DENSE.replace("k3x3", "k5x5").replace("p1x1_1x1", "p2x2_2x2")
    assert cli.main(["explain", missing, bundle]) == 1
    out = capsys.readouterr().out
    assert f"the nearest is {DENSE}" in out and f"tvmconv build {missing} -o {bundle}" in out and "kernel" in out
    assert cli.main(["explain", missing, bundle, "--json"]) == 1
    explanation = json.loads(capsys.readouterr().out)
    assert explanation["found"] is False
    assert [difference["field"] for difference in explanation["differences"]] == ["kernel", "pads_begin", "pads_end"]


def test_a_bundle_for_other_machines(bundle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = Path(shutil.copytree(bundle, tmp_path / "b"))
    manifest = json.loads((foreign / "manifest.json").read_text())
    for target in manifest["targets"].values():
        target["features"].append("ldir")
    (foreign / "manifest.json").write_text(json.dumps(manifest))
    for command in (["verify"], ["bench"]):
        assert cli.main([*command, str(foreign)]) == 3
        assert "ldir" in capsys.readouterr().err
    assert cli.main(["list", str(foreign)]) == 0
    out, err = capsys.readouterr()
    assert " no " in out and "ldir" in err
    assert cli.main(["explain", DENSE, str(foreign)]) == 1
    out = capsys.readouterr().out
    assert "rejected" in out and "ldir" in out and f"tvmconv build {DENSE}" in out
    assert cli.main(["explain", DENSE, str(foreign), bundle]) == 0
    assert "taken" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["list", "verify", "bench"])
@pytest.mark.parametrize(("text", "words"), [(None, "is not a bundle"), ("{", "truncated"), ("{}", "manifest")])
def test_what_is_no_bundle(
    command: str, text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    assert cli.main([command, str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent.onnx"], "there is no file"),
        (["nonsense"], "neither a file nor a signature"),
        ([DENSE, "--target", "8086"], "8086"),
        ([DENSE, "--batch", "4"], "batch 4"),
    ],
)
def test_bad_sources_and_targets(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["build", *arguments, "-o", str(tmp_path / "b")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err and os.listdir(tmp_path) == []


def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tvmconv.building.builder.find_spec", lambda name: None)
    assert cli.main(["build", DENSE, "-o", str(tmp_path / "b")]) == 3
    assert re.search(r"pip install '.+\[compile\]'", capsys.readouterr().err)


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    channels = range(16, 1616, 16)
    many = [f"conv2d-n1-i{c}x9x9-o{c}x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32" for c in channels]
    command = [sys.executable, "-c", "import sys; from tvmconv.cli import main; sys.exit(main())", "build", *many]
    process = subprocess.Popen(
        [*command, "-o", str(tmp_path / "b")],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path.parent)},
    )
    deadline = time.monotonic() + 600
    while not list(tmp_path.glob(".b.*/*/*.so")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (130, "", "tvmconv build: interrupted\n")
    assert os.listdir(tmp_path) == []


def test_listing_a_bundle_never_imports_the_compiler(bundle: str) -> None:
    script = (
        "import sys; from tvmconv.cli import main; main(sys.argv[1:]); "
        "sys.exit(any(name in sys.modules for name in ('tvm', 'torch', 'onnx', 'rich')))"
    )
    for arguments in (["list", bundle], ["explain", DENSE, bundle]):
        subprocess.run([sys.executable, "-c", script, *arguments], stdout=subprocess.DEVNULL, check=True)
