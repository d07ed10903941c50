"""`tvmconv report`: the page has every kernel with its numbers, needs nothing else, and says what cannot be compared."""

from __future__ import annotations

import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from models import model, save, value
from onnx import helper, numpy_helper
from toys import compile_bundle, small_problem, write_bundle

from tvmconv import cli
from tvmconv.measuring.peak import Peak
from tvmconv.runtime.bundle import Bundle, BundleTarget, read_bundle, write_manifest
from tvmconv.runtime.networks.network import load_network
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.search import Candidate
from tvmconv.tuning.trials import Trial, TrialLog

LIMITS = Peak(flops=2e11, bf16_flops=None, bandwidth=2e10, cache_bandwidth=4e10, threads=1)
PROBLEM = small_problem()
# Its intensity is below the ridge of LIMITS: the cache is its roof.
THIN = small_problem().with_(batch=1, in_channels=1, out_channels=1)
# Its output is the bias alone: it takes time, and computes nothing.
CONSTANT = small_problem().with_(in_channels=0)
EMPTY = small_problem().with_(batch=0)
SIGNATURE, THIN_SIGNATURE, EMPTY_SIGNATURE = map(format_signature, (PROBLEM, THIN, EMPTY))
HOSTILE = "<script>alert('&\"')</script>"
VOID = {"meta", "link", "br", "wbr"}


class Page(HTMLParser):
    """A page that was read: well-formed, or reading it fails."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.open = text, list[str]()
        self.addresses: list[str] = []
        self.scripts = 0
        self.tables: dict[str, list[list[str]]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.addresses += [value for name, value in attributes if name in ("src", "href", "xlink:href") and value]
        self.scripts += tag == "script"
        if tag == "table":
            self.rows = self.tables.setdefault(given["id"], [])
        elif tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append(given["data-value"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return a bundle of three kernels, one that has nothing to compute, and one for another machine."""
    path = compile_bundle(tmp_path_factory.mktemp("report") / "toy.bundle", [PROBLEM, THIN, CONSTANT, EMPTY])
    made = read_bundle(path)
    by_signature = {entry.signature: entry for entry in made.entries}
    first = replace(
        by_signature[SIGNATURE],
        origin="tuned",
        measured={"seconds": 1e-5, "machine": HOSTILE, "trials": 64},
        error={"measure": "relative_l2", "value": 1.5e-6},
        workspace_bytes=1536,
        skipped=({"algorithm": "winograd4", "reason": HOSTILE},),
    )
    foreign = replace(by_signature[THIN_SIGNATURE], target="foreign", verified=None)
    targets = {**made.targets, "foreign": BundleTarget("cpu", ("ldir",))}
    entries = (
        first,
        replace(by_signature[THIN_SIGNATURE], verified=False),
        by_signature[format_signature(CONSTANT)],
        by_signature[EMPTY_SIGNATURE],
        foreign,
    )
    write_manifest(replace(made, entries=entries, targets=targets))
    return read_bundle(path)


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the machine's peak, which takes a second to measure."""
    monkeypatch.setattr("tvmconv.measuring.peak.measure", lambda threads: LIMITS)


def report(tmp_path: Path, bundle: Bundle, *arguments: object) -> Page:
    """Run the command and return the page."""
    output = tmp_path / "report.html"
    given = [
        "report",
        str(bundle.path),
        "-o",
        str(output),
        "--seconds",
        "0.004",
        "--threads",
        "1",
        *map(str, arguments),
    ]
    assert cli.main(given) == 0
    return Page(output.read_text())


def test_every_kernel_is_there_with_its_numbers(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = report(tmp_path, bundle)
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    header, *rows = page.tables["kernels"]
    assert header == [] and [(row[0], row[1]) for row in rows] == [(e.signature, e.target) for e in bundle.entries]
    timed = 0
    for entry, row in zip(bundle.entries, rows, strict=True):
        assert row[2:4] == [entry.algorithm, entry.origin]
        assert row[9] == {True: "yes", False: "wrong", None: "never"}[entry.verified]
        assert row[11:] == [str(entry.workspace_bytes), str((bundle.path / entry.file).stat().st_size)]
        if entry.signature == EMPTY_SIGNATURE or entry.target == "foreign":
            assert row[4:8] == [""] * 4
            continue
        timed += 1
        problem = parse_signature(entry.signature)
        plain, packed, rate, share = (float(text) if text else None for text in row[4:8])
        assert plain and plain > 0 and (packed is None) == (entry.packed_filter is None)
        assert rate == problem.flops / (packed or plain)
        roof = LIMITS.flops if entry.signature == SIGNATURE else problem.flops / problem.nbytes * LIMITS.cache_bandwidth
        assert share == (pytest.approx(rate / roof) if rate else None)
    assert timed == 3
    tuned = rows[[entry.signature for entry in bundle.entries].index(SIGNATURE)]
    assert tuned[8] == "1.5e-06" and tuned[10] == "winograd4"
    assert "lacks ldir" in page.text and "its output is empty" in page.text
    assert page.text.count('<a href="#k') == 2  # points of the roofline


def test_the_page_needs_nothing_and_trusts_no_text(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = report(tmp_path, bundle, "--records", tmp_path)
    assert "no tuning curves" in capsys.readouterr().err
    assert page.addresses and all(address.startswith("#") or address == "data:," for address in page.addresses)
    assert page.scripts == 1 and HOSTILE not in page.text and "&lt;script&gt;" in page.text
    assert "url(" not in page.text and "@import" not in page.text


def test_the_peak_may_be_unknown(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvmconv.measuring.peak.measure", lambda threads: None)
    page = report(tmp_path, bundle)
    assert "limits are unknown" in page.text and all(row[7] == "" for row in page.tables["kernels"][1:])


def test_a_peak_that_kernels_pass_is_measured_again_or_not_drawn(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbed = replace(LIMITS, flops=1.0)
    monkeypatch.setattr("tvmconv.measuring.peak.measure", lambda threads: disturbed)
    for again, text in ((LIMITS, "The lines are"), (disturbed, "kernels exceeded them")):
        monkeypatch.setattr("tvmconv.reporting.kernels.measure_again", lambda threads, again=again: again)
        assert text in report(tmp_path, bundle).text


def test_tuning_curves(bundle: Bundle, tmp_path: Path) -> None:
    log = TrialLog(tmp_path / "records", PROBLEM, Target.parse("host"), "a machine")
    for seconds in (9e-4, None, 6e-4, 8e-4, 4.5e-4):
        status = "wrong" if seconds is None else "ok"
        log.append(Trial(Candidate("direct", 0, (1, 2)), 1, status, seconds))
    page = report(tmp_path, bundle, "--records", tmp_path / "records")
    assert (
        "5 candidates, 1 without a time; 900.0 → 450.0 us (direct), 2.00 times as fast as the first; a machine"
        in page.text
    )
    hints = [f"candidate {number}: direct, {us} us" for number, us in ((1, "900.0"), (3, "600.0"), (5, "450.0"))]
    assert all(hint in page.text for hint in hints) and "candidate 4" not in page.text


def test_against_a_bundle(bundle: Bundle, tmp_path: Path) -> None:
    other = Path(shutil.copytree(bundle.path, tmp_path / "other.bundle"))
    only = [entry for entry in bundle.entries if entry.signature == SIGNATURE]
    write_manifest(replace(bundle, path=other, entries=tuple(only)))
    page = report(tmp_path, bundle, "--against", other)
    (row,) = page.tables["comparison"][1:]
    ours, theirs, ratio = float(row[2]), float(row[4]), float(row[5])
    assert row[0] == SIGNATURE and row[3] == only[0].algorithm and ratio == theirs / ours
    assert "Against other.bundle" in page.text and f"<strong>{ratio:.2f}</strong> over 1 kernels" in page.text


def test_what_cannot_be_compared_is_said_before_anything_is_timed(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tvmconv.reporting.kernels.time_in_turn", None)
    empty = write_bundle(tmp_path / "empty.bundle", [])
    given: tuple[tuple[list[object], str], ...] = (
        (["--against", tmp_path], "is not a bundle"),
        (["--against", empty.path], f"has none of the 5 kernels of {bundle.path}"),
        (["--records", tmp_path / "nowhere"], "nowhere is not a folder"),
        (["-o", tmp_path], "is a folder"),
        (["-o", tmp_path / "no" / "report.html"], "there is no folder"),
    )  # fmt: skip
    for arguments, words in given:
        assert cli.main(["report", str(bundle.path), "-o", str(tmp_path / "r.html"), *map(str, arguments)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("tvmconv report: ") and words in err
    assert not (tmp_path / "r.html").exists()


def test_a_bundle_for_other_machines(bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = [entry for entry in bundle.entries if entry.target == "foreign"]
    other = write_bundle(tmp_path / "foreign.bundle", foreign, foreign=["ldir"])
    assert cli.main(["report", str(other.path), "-o", str(tmp_path / "r.html")]) == 3
    assert "lacks ldir" in capsys.readouterr().err and not (tmp_path / "r.html").exists()


def test_a_network_has_a_page_of_its_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = tmp_path / "network.so"
    model = Path(__file__).parents[1] / "compatibility/v0.1.0/model.onnx"
    assert cli.main(["compile", str(model), "-o", str(library)]) == 0
    output = tmp_path / "network.html"
    assert cli.main(["report", str(library), "-o", str(output), "--seconds", "0.004"]) == 0
    network = load_network(library)
    page = Page(output.read_text())
    _, *rows = page.tables["operators"]
    kernels = {row["signature"]: row["algorithm"] for row in network.description["report"] if row["function"]}
    assert {row[0]: row[2] for row in rows if row[1] == "kernel"} == kernels
    assert sum(int(row[3]) for row in rows) == len(network.description["steps"])
    assert sum(float(row[5]) for row in rows) == pytest.approx(1)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert cli.main(["report", str(library), "-o", str(output), "--against", str(library)]) == 2
    assert "run --bench --against" in capsys.readouterr().err


def test_a_network_of_any_size_has_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvmconv.measuring.peak.measure", lambda threads: None)
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    nodes, inputs = [helper.make_node("Conv", ["x", "w"], ["y"])], [value("x", [1, 3, "h", "v"])]
    source = save(model(nodes, inputs, [value("y", None)], [weight]), tmp_path)
    library, output = str(tmp_path / "network.so"), tmp_path / "network.html"
    assert cli.main(["compile", source, "--shape", "x=1x3x?x?", "-o", library]) == 0
    assert cli.main(["report", library, "-o", str(output), "--seconds", "0.004"]) == 0
    (kernel,) = (row for row in Page(output.read_text()).tables["operators"][1:] if row[1] == "kernel")
    assert kernel[0].startswith("conv2d-n1-i3x?x?-") and kernel[2] == "direct"
