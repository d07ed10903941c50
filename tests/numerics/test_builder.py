"""Building bundles: reproducible, whole or not at all, added to in place."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import failing_jobs
import pytest

import tvmconv
from tvmconv import builder, fills
from tvmconv.bundle import read_bundle
from tvmconv.errors import BundleError, InvalidProblemError, MissingExtraError, TargetError, VerificationError
from tvmconv.records import Record, Records
from tvmconv.signature import format_signature, parse_signature
from tvmconv.target import Target
from tvmconv.workers import WorkerDiedError

DENSE = parse_signature("conv2d-n1-i16x9x9-o32x9x9-k3x3-s1x1-d2x2-p2x2_2x2-g1-NXC-XIO-f32-bias")
DEPTHWISE = parse_signature("conv1d-n2-i24x11-o24x5-k3-s2-d1-p0_0-g24-NCX-OIX-bf16")
BACKPROP = parse_signature("backprop2d-n1-i8x5x5-o16x10x10-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f16")
EMPTY = parse_signature("conv2d-n0-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
PROBLEMS = (DENSE, DEPTHWISE, BACKPROP, EMPTY)


@pytest.fixture
def no_records(tmp_path: Path) -> Records:
    """Records of nobody: the default schedules are used."""
    return Records(tmp_path / "no records")


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files under `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path, no_records: Records) -> None:
    one = builder.build(PROBLEMS, tmp_path / "one", jobs=1, records=no_records)
    other = builder.build(reversed(PROBLEMS * 2), tmp_path / "deep" / "er" / "another name", jobs=3, records=no_records)
    assert contents(one) == contents(other)
    bundle = read_bundle(one)
    assert {entry.signature for entry in bundle.entries} == set(map(format_signature, PROBLEMS))
    assert all(entry.error == {"measure": "exact", "value": 0.0} for entry in bundle.entries)
    assert all(entry.origin == "default" and entry.measured is None for entry in bundle.entries)


def test_progress_is_reported(tmp_path: Path, no_records: Records) -> None:
    seen: list[tuple[int, int, str]] = []
    builder.build([DENSE, EMPTY], tmp_path / "b", jobs=1, records=no_records, progress=lambda *args: seen.append(args))
    assert [(done, total) for done, total, _ in seen] == [(1, 2), (2, 2)]
    assert all(what.startswith("conv2d-") for _, _, what in seen)


def test_a_bundle_that_is_there_keeps_its_other_kernels(tmp_path: Path, no_records: Records) -> None:
    path = builder.build([DENSE, DEPTHWISE], tmp_path / "b", jobs=1, records=no_records)
    before = contents(path)
    builder.build([BACKPROP, DENSE], path, jobs=1, records=no_records)
    after = contents(path)
    assert {name: after[name] for name in before if name != "manifest.json"} == {
        name: data for name, data in before.items() if name != "manifest.json"
    }
    registry = tvmconv.load(path)
    for problem in (DENSE, DEPTHWISE, BACKPROP):
        arrays, expected = fills.exact_case(problem)
        assert (registry.lookup(problem)(*arrays) == expected).all()
    assert os.listdir(tmp_path) == ["b"]


def test_two_builds_into_one_bundle_at_once_both_land(tmp_path: Path, no_records: Records) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda p: builder.build([p], tmp_path / "b", jobs=1, records=no_records), (DENSE, BACKPROP)))
    assert len(read_bundle(tmp_path / "b").entries) == 2


def test_variants_for_several_targets(tmp_path: Path, no_records: Records) -> None:
    targets = ["x86-64-v3", "host", "x86-64-v3"]
    bundle = read_bundle(builder.build([DENSE], tmp_path / "b", target=targets, jobs=1, records=no_records))
    assert {entry.target for entry in bundle.entries} == {"x86-64-v3", Target.parse("host").name}
    assert bundle.targets["x86-64-v3"].features == Target.parse("x86-64-v3").features


def test_a_variant_that_this_machine_cannot_run_is_not_verified(
    tmp_path: Path, no_records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "obstacle", lambda target: "it lacks amx_tile")
    (entry,) = read_bundle(builder.build([DENSE], tmp_path / "b", jobs=1, records=no_records)).entries
    assert entry.error is None


def test_the_best_record_is_used_and_a_stale_one_is_not(tmp_path: Path) -> None:
    host = Target.parse("host").name
    records = Records(tmp_path / "records")

    def record(problem: tvmconv.Problem, sketch: int) -> Record:
        return Record(
            format_signature(problem), host, "direct", 1, sketch, (), 1e-3, 2e-3, 7, 0, "a machine", "2026-01-31", {}
        )

    from tvmconv.replay import spaces_of

    default = spaces_of(DENSE, Target.parse("host"))[0].sketches[0].default
    records.put([Record(**{**vars(record(DENSE, 0)), "decisions": default}), record(BACKPROP, 99)])
    with pytest.warns(tvmconv.errors.TvmconvWarning, match="cannot be replayed"):
        path = builder.build([DENSE, BACKPROP], tmp_path / "b", jobs=1, records=records)
    entries = {entry.signature: entry for entry in read_bundle(path).entries}
    assert entries[format_signature(DENSE)].origin == "tuned"
    assert entries[format_signature(DENSE)].measured == {"seconds": 1e-3, "machine": "a machine", "trials": 7}
    assert entries[format_signature(BACKPROP)].origin == "default"
    assert entries[format_signature(BACKPROP)].measured is None


@pytest.mark.parametrize(
    ("stand_in", "error", "words"),
    [
        (failing_jobs.crash, WorkerDiedError, "ended by SIGABRT"),
        (failing_jobs.wrong, VerificationError, "1 of 2 outputs differ"),
    ],
)
def test_a_failure_names_the_problem_and_leaves_what_was_there(
    stand_in: object,
    error: type[Exception],
    words: str,
    tmp_path: Path,
    no_records: Records,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder.build([EMPTY], tmp_path / "b", jobs=1, records=no_records)
    before = contents(tmp_path)
    monkeypatch.setattr(builder, "compile_job", stand_in)
    with pytest.raises(error, match=words) as caught:
        builder.build([DENSE], tmp_path / "b", jobs=1, records=no_records)
    assert format_signature(DENSE) in str(caught.value)
    assert contents(tmp_path) == before and os.listdir(tmp_path) == ["b"]


@pytest.mark.parametrize("what", ["file", "folder", "dangling link"])
def test_something_else_is_never_replaced(what: str, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    if what == "file":
        path.write_text("data")
    elif what == "folder":
        path.mkdir()
        (path / "data").write_text("data")
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(BundleError, match="is not a bundle, so it will not be replaced"):
        builder.build([DENSE], path)
    assert path.is_symlink() or "data" in (path if what == "file" else path / "data").read_text()


def test_an_empty_folder_becomes_the_bundle(tmp_path: Path, no_records: Records) -> None:
    (tmp_path / "b").mkdir()
    assert len(read_bundle(builder.build([EMPTY], tmp_path / "b", jobs=1, records=no_records)).entries) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda manifest: manifest.update(tvm="0.1"), "was built by TVM 0.1"),
        (lambda manifest: manifest.update(tvmconv="9.9"), "was built by tvmconv 9.9"),
        (lambda manifest: next(iter(manifest["targets"].values()))["features"].append("mmx"), "other CPU features"),
    ],
)
def test_a_bundle_of_other_versions_is_not_added_to(
    change: object, words: str, tmp_path: Path, no_records: Records
) -> None:
    path = builder.build([EMPTY], tmp_path / "b", jobs=1, records=no_records)
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)  # type: ignore[operator]
    (path / "manifest.json").write_text(json.dumps(manifest))
    before = contents(tmp_path)
    with pytest.raises(BundleError, match=words):
        builder.build([EMPTY], path, jobs=1, records=no_records)
    assert contents(tmp_path) == before


def test_what_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidProblemError, match="no problem to build"):
        builder.build([], tmp_path / "b")
    with pytest.raises(TargetError, match="no target"):
        builder.build([DENSE], tmp_path / "b", target=[])
    with pytest.raises(TargetError, match="8086"):
        builder.build([DENSE], tmp_path / "b", target=["host", "8086"])
    monkeypatch.setattr(builder, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tvmconv\[compile\]'"):
        builder.build([DENSE], tmp_path / "b")
    assert os.listdir(tmp_path) == []
