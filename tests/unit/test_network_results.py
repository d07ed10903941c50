"""The benchmark of whole networks: its file, tables, picture and arguments; what the libraries are asked for; its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import network_report
from benchmarks.network_results import NetworkResult, NetworkRow, mean_ratio, read_result
from benchmarks.report import between
from benchmarks.result_files import resume, write_result
from tvmconv.errors import SourceError
from tvmconv.measuring.timing import Timing

ROOT = Path(__file__).parents[2]
PICTURE = "benchmarks/results/networks/networks.png"


def timing(seconds: float) -> Timing:
    return Timing(seconds, 0.5 * seconds, 9)


def row(network: str, ours: float, **peers: float) -> NetworkRow:
    return NetworkRow(
        network=network,
        ours=timing(ours),
        kernels=timing(0.75 * ours),
        others=timing(0.125 * ours),
        peers={name: timing(seconds) for name, seconds in peers.items()},
        unsupported={"onnxruntime": "it has no bf16"},
        by_torch=("conv1: no kernel",),
        date="2026-11-22T12:00:00+00:00",
        load=0.25,
    )


RESULT = NetworkResult(
    machine="a machine",
    versions={"tvmconv": "0.1.0", "torch": "2.13.0"},
    dtype="bf16",
    batch=8,
    threads=1,
    rounds=3,
    seconds=0.5,
    clock="cpu",
    rows=(row("unet", 1.0, openvino=2.0, pytorch_nxc=3.0), row("hifigan", 2.0, openvino=1.0)),
)


def test_ratios_are_of_the_fastest_peer() -> None:
    fast, slow = RESULT.rows
    assert (fast.fastest, fast.ratio, slow.ratio) == ("openvino", 2.0, 0.5)
    assert fast.by_parts == pytest.approx(1 / 0.875)
    assert fast.kernels_ratio == pytest.approx(2 / 0.75)
    assert mean_ratio(RESULT.rows) == pytest.approx(1.0)
    assert row("unet", 1.0).ratio is None and mean_ratio([row("unet", 1.0)]) is None


def test_a_file_keeps_what_was_measured_alike(tmp_path: Path) -> None:
    path, empty = tmp_path / "result.json", replace(RESULT, rows=())
    assert resume(path, empty, read_result) == empty
    write_result(RESULT, path)
    assert read_result(path) == RESULT
    again = resume(path, empty, read_result).with_row(row("unet", 4.0)).with_row(row("unet3d", 1.0))
    assert [(each.network, each.ours.median) for each in again.rows] == [
        ("unet", 4.0),
        ("hifigan", 2.0),
        ("unet3d", 1.0),
    ]
    with pytest.raises(SourceError, match="measured with threads 1, which is 2 now: give another file"):
        resume(path, replace(empty, threads=2), read_result)
    path.write_text("{}")
    with pytest.raises(SourceError, match="is no result of"):
        resume(path, empty, read_result)


def test_an_unknown_network_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    networks = pytest.importorskip("benchmarks.networks", exc_type=ImportError)
    assert networks.main(["resnet51"]) == 1
    assert "there is no network 'resnet51'; allowed: resnet50, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch", "0"], "--batch is 0: give 1 or more"),
        (["--clock", "cpu", "--threads", "2"], "give --threads 1 with it"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    networks = pytest.importorskip("benchmarks.networks", exc_type=ImportError)
    with pytest.raises(SystemExit):
        networks.main(arguments)
    assert message in capsys.readouterr().err


def test_tables_show_what_was_and_was_not_computed() -> None:
    text = network_report.report([RESULT, replace(RESULT, dtype="f32")])
    assert text.index("### f32, batch 8, a machine") < text.index("### bf16, batch 8, a machine")
    for line in (
        "| bf16, batch 8, a machine | 2 | 1.00 | 0.50 (hifigan) | 1 | 1.14 (unet) |",
        "| unet | 1000.0 | 3000.0 | **2000.0** | 2.00 | 2.00 | 750.0 | 125.0 | 1.14 | 2.67 |",
        "| hifigan | 2000.0 |  | **1000.0** | 0.50 | 0.50 | 1500.0 | 250.0 | 1.14 | 0.67 |",
        "- onnxruntime, all: it has no bf16",
        "- hifigan, conv1: no kernel",
    ):
        assert line in text
    assert network_report.report([]) == "No results are committed yet."


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_result(RESULT, tmp_path / "one.json")
    document = tmp_path / "page.md"
    document.write_text("\n".join(network_report.MARKERS))
    arguments = [str(tmp_path / "one.json"), "--update", str(document), "--plot", str(tmp_path / "networks.png")]
    assert network_report.main(arguments) == 0
    assert (tmp_path / "networks.png").stat().st_size > 1000
    assert "| unet | 1000.0 |" in document.read_text()


def test_the_page_shows_the_committed_results() -> None:
    results = [read_result(path) for path in sorted((ROOT / PICTURE).parent.glob("*/*.json"))]
    document = (ROOT / "benchmarks/results/networks.md").read_text()
    command = "python -m benchmarks.network_report benchmarks/results/networks/*/*.json --update benchmarks/results/networks.md"
    text = network_report.report(results)
    assert document == between(document, text, "benchmarks/results/networks.md", network_report.MARKERS), (
        f"run {command}"
    )


def test_the_libraries_are_called_with_a_network() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    from benchmarks import network_contenders as contenders
    from benchmarks.peers import UnsupportedError

    torch.manual_seed(0)
    model, data = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GELU()).eval(), torch.randn(1, 3, 6, 5)
    with torch.inference_mode():
        with pytest.raises(UnsupportedError, match="no convolution of bf16"):
            contenders.prepare("onnxruntime", model, data, "bf16", "")
        model = model.float()
        expected = model(data).numpy()
        for contender in ("pytorch_nxc", "pytorch_ncx", "onnxruntime", "openvino"):
            if contender == "openvino":
                pytest.importorskip(contender)
            call, _ = contenders.prepare(contender, model, data, "f32", "")
            answer = call()
            answer = answer[0] if isinstance(answer, tuple) else answer.numpy()
            assert abs(answer - expected).max() < 1e-5, contender
