"""The benchmarks' pure parts: arguments, statistics, files, tables, what pictures show; and the tables in documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks import compare, front_page, measure, report
from benchmarks.peers import INTEGERS, PEERS, as_integers, data_as, filter_as_oix, from_layout
from benchmarks.result_files import write_result
from benchmarks.results import Result, Row, read_result, summarize_rows
from benchmarks.turns import openmp_libraries, take_turns
from tvmconv import reference
from tvmconv.errors import SourceError, TargetError, VerificationError
from tvmconv.fills import random_fill
from tvmconv.isa.x86 import ISA as X86
from tvmconv.measuring.peak import Peak
from tvmconv.measuring.timing import Timing
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.cuda import CudaTarget
from tvmconv.targets.target import CpuTarget

ROOT = Path(__file__).parents[2]
CONV = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
VERSIONS = "tvmconv 0.1.0, pytorch 2.13.0, onnxruntime 1.31.1"
TRANSPOSED = "backprop2d-n1-i512x4x4-o256x8x8-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


def timing(seconds: float) -> Timing:
    return Timing(seconds, seconds, 10)


def row(signature: str, plain: float, packed: float, suite: str = "a", **peers: float) -> Row:
    problem = parse_signature(signature)
    return Row(
        suite=suite,
        signature=signature,
        flops=problem.flops,
        nbytes=problem.nbytes,
        algorithm="direct",
        origin="default",
        plain=timing(plain),
        packed=timing(packed),
        peers={name: timing(seconds) for name, seconds in peers.items()},
        unsupported={"openvino_nxc": "asymmetric padding"},
    )


ROWS = (
    row(CONV, 2.0, 1.0, pytorch_nxc=4.0, onnxruntime=2.0),
    row(TRANSPOSED, 2.0, 2.0, suite="b", pytorch_nxc=1.0, onnxruntime=3.0),
)
RESULT = Result(
    date="2026-11-21T12:00:00+00:00",
    machine="a machine",
    versions={"tvmconv": "0.1.0", "torch": "2.13.0", "onnxruntime": "1.31.1"},
    dtype="f32",
    layout="nxc",
    target="host",
    math="default",
    untuned=True,
    threads=2,
    rounds=2,
    seconds=0.05,
    load=0.1,
    peak=Peak(2e11, None, 5e10, 1e11, 2),
    rows=ROWS,
)


def test_a_ratio_is_of_the_fastest_peer_and_of_packed_filters() -> None:
    assert (ROWS[0].fastest, ROWS[0].ratio, ROWS[0].plain_ratio) == ("onnxruntime", 2.0, 1.0)
    assert (ROWS[1].fastest, ROWS[1].ratio, ROWS[1].plain_ratio) == ("pytorch_nxc", 0.5, 0.5)
    alone = row(CONV, 1.0, 1.0)
    assert alone.fastest is None and alone.ratio is None


def test_plain_filters_beside_plain_ones_alone() -> None:
    assert [row.given_ratio for row in ROWS] == [2.0, 0.5]
    assert row(CONV, 2.0, 1.0, pytorch_packed=1.0, openvino_nxc=1.0).given_ratio is None
    assert row(CONV, 2.0, 1.0, pytorch_packed=1.0, pytorch_ncx=3.0, pytorch_nxc=5.0).given_ratio == 1.5
    summary = summarize_rows(ROWS)
    assert summary is not None and (summary.given_mean, summary.given_worst) == (pytest.approx(1.0), 0.5)
    without = summarize_rows([row(CONV, 2.0, 1.0, onnxruntime=1.0)])
    assert without is not None and without.given_mean is None and without.given_worst is None


def test_a_summary_is_of_the_rows_that_have_a_peer() -> None:
    summary = summarize_rows((*ROWS, row(CONV, 1.0, 1.0)))
    assert summary is not None
    assert (summary.shapes, summary.worst, summary.slower, summary.worst_signature) == (2, 0.5, 1, TRANSPOSED)
    assert summary.mean == pytest.approx(1.0) and summary.plain_mean == pytest.approx(0.5**0.5)
    assert summarize_rows([row(CONV, 1.0, 1.0)]) is None


def test_the_limit_is_that_of_the_type() -> None:
    peak = Peak(2e11, 4e11, 5e10, 1e11, 2)
    limits = [replace(RESULT, dtype=dtype, peak=peak).flops_limit for dtype in ("f32", "f16", "bf16")]
    assert limits == [2e11, 2e11, 4e11]
    assert replace(RESULT, dtype="bf16").flops_limit == 2e11
    assert replace(RESULT, peak=None).flops_limit is None


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    for result in (RESULT, replace(RESULT, peak=None, rows=())):
        write_result(result, path)
        assert read_result(path) == result
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"peak": null, "rows": [{}]}'])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=r"result\.json is no result"):
        read_result(path)
    with pytest.raises(SourceError, match="cannot be read"):
        read_result(tmp_path / "missing.json")


def test_a_line_for_each_result_and_the_suites_side_by_side() -> None:
    tuned = replace(RESULT, untuned=False, rows=ROWS[:1])
    lines = report.report([RESULT, tuned]).splitlines()
    tables = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert tables == [
        list(report.HEADER),
        ["---"] * 8,
        ["f32, NXC/XIO", "1", "2.00", "2.00", "0", "1.00 (1.00)", "2.00 (2.00)"],
        ["f32, NXC/XIO, untuned", "2", "1.00", "0.50", "1", "0.71 (0.50)", "1.00 (0.50)", "0.50 (0.50)"],
        ["suite", "f32, NXC/XIO", "f32, NXC/XIO, untuned"],
        ["---"] * 3,
        ["a", "2.00 (2.00)", "2.00 (2.00)"],
        ["b", "", "0.50 (0.50)"],
        list(report.CONDITIONS),
        ["---"] * 7,
        ["f32, NXC/XIO", "a machine", "2", "2026-11-21", "0.1", VERSIONS, "openvino_nxc 1"],
        ["f32, NXC/XIO, untuned", "a machine", "2", "2026-11-21", "0.1", VERSIONS, "openvino_nxc 2"],
    ]
    assert "| f32, NXC/XIO | 0 |  |  |  |  |  |" in report.report([replace(tuned, rows=())])
    assert report.title(replace(RESULT, target="x86-64-v3")) == "f32, NXC/XIO, x86-64-v3, untuned"
    assert report.title(replace(RESULT, threads=1)) == "f32, NXC/XIO, untuned, one thread"


def test_the_front_page_has_a_line_for_each_kind() -> None:
    other = replace(RESULT, machine="Maker (fast9) Linux", rows=ROWS[:1])
    for results in (
        [RESULT, other],
        [other, RESULT],
        [RESULT, replace(RESULT, untuned=False), replace(RESULT, rows=())],
    ):
        lines = front_page.front_page([], results).splitlines()
        assert lines[0] == f"| {' | '.join(front_page.HEADER)} |"
        assert lines[-1] == "| convolutions, f32, NXC/XIO, untuned | 1.00 | 0.50 | 1 of 2 | a machine | 2026-11-21 |"
    assert lines[2] == lines[-1].replace(", untuned", "")
    assert (ROOT / "README.md").read_text().count(front_page.committed()) == 1


def test_each_cpu_has_its_tables() -> None:
    other = replace(RESULT, machine="Maker (fast9) Linux", date="2026-11-22T01:00:00", rows=ROWS[:1])
    text = report.report([RESULT, other])
    assert text.index("### fast9") < text.index("Measured on Maker (fast9)") < text.index("### a machine")
    assert text.count(f"| {' | '.join(report.CONDITIONS)} |") == 2


def test_a_document_is_updated_between_its_markers_alone(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.show("new", path)
    assert path.read_text() == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    path.write_text("no markers")
    with pytest.raises(SourceError, match="once and in this order"):
        report.show("new", path)
    assert path.read_text() == "no markers"


@pytest.mark.parametrize(
    ("name", "files", "option", "tables"),
    [
        ("benchmarks/results/suites.md", "suites/*/*.json", "--update", report.report),
        ("benchmarks/results/further.md", "further/*/*.json", "--update", report.report),
        ("benchmarks/results/reported.md", "reported/*/*.json", "--update", report.report),
        ("benchmarks/results/filters.md", "filters/*/*.json", "--update", report.report),
    ],
)
def test_documents_show_the_committed_results(
    name: str, files: str, option: str, tables: Callable[[Iterable[Result]], str]
) -> None:
    results = [read_result(path) for path in sorted((ROOT / "benchmarks/results").glob(files))]
    document = (ROOT / name).read_text()
    command = f"python -m benchmarks.report benchmarks/results/{files} {option} {name}"
    assert document == report.between(document, tables(results), name), f"run {command}"


def test_a_picture_shows_sorted_ratios_by_suite_and_rates_over_intensity() -> None:
    plots = pytest.importorskip("benchmarks.plots", exc_type=ImportError)
    result = replace(RESULT, rows=(*ROWS, row(CONV, 1.0, 1.0, onnxruntime=3.0), row(CONV, 1.0, 1.0)))
    suites = plots.ratios(result)
    assert {suite: [ratio for _, ratio in bars] for suite, bars in suites.items()} == {"a": [3.0, 2.0], "b": [0.5]}
    assert plots.two_columns(suites) == ({"a": suites["a"]}, {"b": suites["b"]})
    points = list(plots.roofline(result))
    assert points[0] == (ROWS[0], ROWS[0].flops / ROWS[0].nbytes, ROWS[0].flops / 1.0)
    assert len(points) == 4
    assert plots.short_name(parse_signature(TRANSPOSED)) == "512>256 4x4 k4x4 s2 T"


def test_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_result(RESULT, tmp_path / "some.json")
    assert report.main([str(tmp_path / "some.json"), "--plots"]) == 0
    for name in ("some-ratios.png", "some-roofline.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_arguments_default_to_every_suite() -> None:
    arguments = compare.parse([])
    assert "resnet50" in arguments.sources and len(arguments.sources) >= 10
    assert compare.parse(["--peer", "onnxruntime", "--peer", "onnxruntime"]).peer == ["onnxruntime"]
    with pytest.raises(SystemExit):
        compare.parse(["--peer", "unknown"])


def test_peers_are_held_to_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", environment := {})
    avx2 = CpuTarget("x86-64-v3", ("avx2", "fma"), "x86-64-v3", isa=X86)
    monkeypatch.setattr(compare, "cpu_features", lambda: frozenset({"avx2", "fma"}))
    assert compare.hold_to(avx2, []) == list(PEERS) and not environment
    monkeypatch.setattr(compare, "cpu_features", lambda: frozenset({"avx2", "fma", "avx512f"}))
    assert (
        compare.hold_to(CpuTarget("x86-64-v4", ("avx512f",), "x86-64-v4", isa=X86), []) == list(PEERS)
        and not environment
    )
    assert "onnxruntime" not in compare.hold_to(avx2, []) and environment == {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert compare.hold_to(avx2, ["openvino_nxc"]) == ["openvino_nxc"]
    with pytest.raises(TargetError, match="leave it out"):
        compare.hold_to(avx2, ["onnxruntime"])
    with pytest.raises(TargetError, match=r"benchmarks\.gpu_compare"):
        compare.hold_to(CudaTarget.parse("cuda:sm_90"), [])


def test_suites_are_read_by_name_in_the_type_and_layout_asked_for() -> None:
    (name, problems), (other, single) = compare.read_suites(["dcgan", CONV], "bf16", "ncx").items()
    assert name == "dcgan" and len(problems) == 9 and other == CONV and len(single) == 1
    for problem in (*problems, *single):
        assert (problem.dtype, problem.data_format, problem.filter_format) == ("bf16", "NCX", "OIX")
    with pytest.raises(SourceError):
        compare.read_suites(["no such suite"], "f32", "nxc")


def test_peers_compute_integers_as_the_reference_does(tmp_path: Path) -> None:
    (problem,) = compare.read_suites([CONV], INTEGERS, "nxc")[CONV]
    arrays = random_fill(problem)
    expected = tmp_path / "expected.npy"
    np.save(expected, reference.compute(problem, **arrays.given()).astype(np.float32))
    task = measure.Task("onnxruntime", format_signature(problem), "", str(expected), 1, 0.0)
    assert measure.measure(task).samples
    transposed = as_integers(parse_signature(TRANSPOSED))
    answer = measure.measure(replace(task, signature=format_signature(transposed)))
    assert answer.unsupported == "the quantiser leaves transposed convolutions in f32"


@pytest.mark.parametrize("signature", [CONV, TRANSPOSED, TRANSPOSED.replace("NXC-XIO", "NCX-OIX")])
def test_arrays_reach_peers_in_their_layout(signature: str) -> None:
    problem = parse_signature(signature)
    arrays = random_fill(problem)
    channels = (problem.batch, problem.in_channels, *problem.in_spatial)
    assert data_as(arrays.data, problem, "NCX").shape == channels
    for layout in ("NCX", "NXC"):
        assert np.array_equal(from_layout(data_as(arrays.data, problem, layout), problem, layout), arrays.data)
    oix = problem.with_(filter_format="OIX").filter_shape
    assert filter_as_oix(arrays.filter, problem).shape == oix
    assert parse_signature(TRANSPOSED).output_padding == (0, 0)


def test_our_kernel_is_timed_with_plain_and_with_packed_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = parse_signature(TRANSPOSED)
    right = reference.compute(problem, *random_fill(problem))
    filters = []

    class Kernel:
        def pack(self, filter_: object) -> str:
            return "packed"

        def __call__(self, data: object, filter: object, out: npt.NDArray[np.float32]) -> None:
            filters.append(filter)
            out[...] = right * (1 + error)

    monkeypatch.setattr(measure, "load", lambda path: SimpleNamespace(lookup=lambda problem: Kernel()))
    np.save(tmp_path / "expected.npy", right)
    for number, contender in enumerate((measure.OURS, measure.OURS_PACKED)):
        filters.clear()
        for error in (0.0, 1e-3):
            # Another number of threads: nothing that was made ready before is taken.
            task = measure.Task(
                contender, TRANSPOSED, "", str(tmp_path / "expected.npy"), 2 * number + (error > 0), 0.0
            )
            if error:
                with pytest.raises(VerificationError, match=r"the relative L2 error is 0\.001"):
                    measure.measure(task)
            else:
                assert len(measure.measure(task).samples) > 0
        assert {isinstance(filter_, str) for filter_ in filters} == {contender == measure.OURS_PACKED}


def test_peers_are_not_asked_for_an_epilogue() -> None:
    answer = measure.measure(measure.Task("pytorch_nxc", f"{CONV}-prelu-scale", "", "", 1, 0.0))
    assert not answer.samples and "it has an epilogue" in answer.unsupported


def test_openmp_libraries_are_counted_by_file() -> None:
    maps = """\
7f00-7f01 r--p 00000000 08:01 42                         /venv/torch/lib/libgomp.so.1
7f01-7f02 r-xp 00001000 08:01 42                         /venv/torch/lib/libgomp.so.1
7f02-7f03 r-xp 00001000 08:01 43                         /usr/lib/libiomp5.so
7f03-7f04 rw-p 00000000 00:00 0
7f04-7f05 r-xp 00001000 08:01 44                         /usr/lib/libm.so.6
"""
    assert openmp_libraries(maps) == ["/usr/lib/libiomp5.so", "/venv/torch/lib/libgomp.so.1"]


def test_turns_are_taken_in_turn() -> None:
    calls: list[str] = []
    times = take_turns(lambda: calls.append("ours"), lambda: calls.append("theirs"))
    assert calls == ["ours", "theirs"] * len(times) and all(a >= 0 and b >= 0 for a, b in times)


def test_shared_machine_measures_each_beside_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The slowdowns are those of the medians of the rounds; of two copies the slower one counts."""
    from benchmarks import shared_machine

    times = iter((0.0, 0.0, 0.002, 0.003, 0.004, 0.005))

    class FakeWorker:
        def __init__(self, *_: object, **__: object) -> None: ...
        def call(self, _: object) -> float:
            return next(times)

        def close(self) -> None: ...

    monkeypatch.setattr(shared_machine, "Worker", FakeWorker)
    monkeypatch.setattr(shared_machine, "make_ready", lambda *_: None)
    monkeypatch.setattr(shared_machine, "_prepare", lambda *_: None)
    page = tmp_path / "page.md"
    page.write_text("\n".join(shared_machine.MARKERS))
    assert shared_machine.main(["openvino", "--rounds", "1", "--threads", "2", "--update", str(page)]) == 0
    assert "| openvino | 2.00 | 1.50 | 2.50 |" in page.read_text()


def test_shared_machine_refuses_unknown_contenders(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import shared_machine

    with pytest.raises(SystemExit):
        shared_machine.main(["opnvino"])
    assert "opnvino: no contender; there are tvmconv bundle" in capsys.readouterr().err
