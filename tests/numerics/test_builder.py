"""Building bundles: reproducible, whole or not at all, added to in place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import failing_jobs
import pytest

import tvmconv
from tvmconv import fills
from tvmconv.algorithms.table import applicable
from tvmconv.building import builder, fallbacks
from tvmconv.errors import (
    BuildError,
    BundleError,
    InputError,
    InvalidProblemError,
    MissingExtraError,
    TargetError,
    ToolchainError,
    TuningError,
    TvmconvError,
)
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Record, Records

pytestmark = pytest.mark.usefixtures("no_cache")
DENSE = parse_signature("conv2d-n1-i16x9x9-o32x5x5-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias")
DEPTHWISE = parse_signature("conv1d-n2-i24x11-o24x5-k3-s2-d1-p0_0-g24-NCX-OIX-bf16")
BACKPROP = parse_signature("backprop2d-n1-i8x5x5-o16x15x15-k3x3-s3x3-d1x1-p0x0_0x0-g1-NXC-XIO-f16")
EMPTY = parse_signature("conv2d-n0-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
PROBLEMS = (DENSE, DEPTHWISE, BACKPROP, EMPTY)


@pytest.fixture
def no_records(tmp_path: Path) -> Records:
    """Records of nobody: the default schedules are used."""
    return Records(tmp_path / "no records")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of EMPTY, to be copied: each build waits for a process that imports TVM."""
    folder = tmp_path_factory.mktemp("built")
    return builder.build([EMPTY], folder / "b", jobs=1, records=Records(folder / "no records"))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files under `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("fresh_workers")
def test_the_same_inputs_give_the_same_bytes(tmp_path: Path, no_records: Records) -> None:
    one = builder.build(PROBLEMS, tmp_path / "one", jobs=1, records=no_records, fallback=False)
    other = builder.build(reversed(PROBLEMS * 2), tmp_path / "deep" / "er" / "another name", jobs=2, records=no_records)
    assert contents(one) == contents(other)
    bundle = read_bundle(one)
    assert {entry.signature for entry in bundle.entries} == set(map(format_signature, PROBLEMS))
    assert all(entry.error == {"measure": "exact", "value": 0.0} for entry in bundle.entries)
    assert all(entry.verified is True and entry.skipped == () for entry in bundle.entries)
    assert all(entry.origin == "default" and entry.measured is None for entry in bundle.entries)


@pytest.mark.usefixtures("fresh_workers")
def test_kernels_of_packed_filters_alone_are_smaller_and_take_plain_ones_too(
    tmp_path: Path, no_records: Records
) -> None:
    layer = parse_signature(
        "conv1d-n1-i512x4-o512x4-k1-s1-d1-p0_0-g1-NXC-OIX-f32"
    )  # read in place where it comes plain
    bundles = [
        builder.build([layer], tmp_path / str(prepacked), records=no_records, prepacked=prepacked)
        for prepacked in (False, True)
    ]
    both, alone = (read_bundle(bundle).entries[0] for bundle in bundles)
    assert both.packed_filter == alone.packed_filter is not None and alone.verified is True
    sizes = [(bundle / entry.file).stat().st_size for bundle, entry in zip(bundles, (both, alone), strict=True)]
    assert sizes[1] < sizes[0]


def test_progress_is_reported(tmp_path: Path, no_records: Records) -> None:
    seen: list[tuple[int, int, str]] = []
    builder.build([DENSE, EMPTY], tmp_path / "b", jobs=1, records=no_records, progress=lambda *args: seen.append(args))
    assert [(done, total) for done, total, _ in seen] == [(1, 2), (2, 2)]
    assert all(what.startswith("conv2d-") for _, _, what in seen)


@pytest.mark.smoke
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
    assert entry.error is None and entry.verified is None


def test_the_best_record_is_used_and_a_stale_one_is_not(tmp_path: Path) -> None:
    host = Target.parse("host").name
    records = Records(tmp_path / "records")

    def record(problem: tvmconv.Problem, sketch: int) -> Record:
        return Record(
            format_signature(problem), host, "direct", 1, sketch, (), 1e-3, 2e-3, 7, 0, "a machine", "2026-01-31", {}
        )

    from tvmconv.tuning.replay import spaces_of

    default = spaces_of(DENSE, Target.parse("host"))[0].sketches[0].default
    records.put([Record(**{**vars(record(DENSE, 0)), "decisions": default}), record(BACKPROP, 99)])
    with pytest.warns(tvmconv.errors.TvmconvWarning, match="direct is skipped: its tuning record: direct has"):
        path = builder.build([DENSE, BACKPROP], tmp_path / "b", jobs=1, records=records)
    entries = {entry.signature: entry for entry in read_bundle(path).entries}
    assert entries[format_signature(DENSE)].origin == "tuned"
    assert entries[format_signature(DENSE)].measured == {"seconds": 1e-3, "machine": "a machine", "trials": 7}
    assert entries[format_signature(BACKPROP)].origin == "default"
    assert entries[format_signature(BACKPROP)].measured is None
    assert [each["algorithm"] for each in entries[format_signature(BACKPROP)].skipped] == ["direct"]


@pytest.mark.parametrize(
    ("stand_in", "reason"),
    [
        (failing_jobs.raise_in_definition, "it does not compile: RuntimeError: InternalError: Check failed"),
        (failing_jobs.wrong_two_dimensions, "its kernel is wrong: 1 of 2 outputs differ"),
    ],
)
def test_a_model_of_which_one_problem_has_only_the_plain_algorithm(
    stand_in: object, reason: str, tmp_path: Path, no_records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "attempt", stand_in)
    others = (DEPTHWISE, EMPTY) if stand_in is failing_jobs.wrong_two_dimensions else (EMPTY,)
    with pytest.warns(tvmconv.errors.TvmconvWarning) as caught:
        path = builder.build([DENSE, *others], tmp_path / "b", jobs=1, records=no_records)
    entries = {entry.signature: entry for entry in read_bundle(path).entries}
    dense = entries[format_signature(DENSE)]
    expected = [each.name for each in applicable(DENSE, Target.parse("host"))]
    assert expected[-1] == dense.algorithm == "plain" and dense.origin == "default" and dense.verified
    assert [each["algorithm"] for each in dense.skipped] == expected[:-1]
    assert all(reason in each["reason"] and "\n" not in each["reason"] for each in dense.skipped)
    assert [str(each.message) for each in caught] == [
        f"{format_signature(DENSE)} for {dense.target}: {each['algorithm']} is skipped: {each['reason']}"
        for each in dense.skipped
    ]
    assert all(entries[format_signature(other)].skipped == () for other in others)
    arrays, right = fills.exact_case(DENSE)
    assert (tvmconv.load(path).lookup(DENSE)(*arrays) == right).all()
    assert {file.name for file in path.rglob("*") if file.is_file()} == {
        "manifest.json",
        *(f"{signature}.so" for signature in entries),
    }
    assert os.listdir(tmp_path) == ["b"]


def test_a_crash_is_a_skipped_algorithm(tmp_path: Path, no_records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "attempt", failing_jobs.crash)
    with pytest.warns(tvmconv.errors.TvmconvWarning, match="is skipped: .* the worker process was ended by SIGABRT"):
        path = builder.build([DEPTHWISE], tmp_path / "b", jobs=1, records=no_records)
    (entry,) = read_bundle(path).entries
    first, second, *_ = applicable(DEPTHWISE, Target.parse("host"))
    assert (entry.algorithm, [each["algorithm"] for each in entry.skipped]) == (second.name, [first.name])


def test_a_long_reason_keeps_its_end() -> None:
    lines = TvmconvError(f"the worker process ended\n{'/' * 500}\nkernel.so: undefined symbol: what")
    reason = fallbacks._reason(lines, fallbacks.Way("default", "direct"))
    assert reason == "the worker process ended ... kernel.so: undefined symbol: what"
    reason = fallbacks._reason(
        TvmconvError(f"ended: {'/' * 500}: undefined symbol: what"), fallbacks.Way("default", "direct")
    )
    assert reason.startswith("ended: ///") and reason.endswith("///: undefined symbol: what") and len(reason) < 320


def test_a_fallback_is_an_error_for_who_asks(
    tmp_path: Path, no_records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "attempt", failing_jobs.wrong_two_dimensions)
    with (
        pytest.warns(tvmconv.errors.TvmconvWarning),
        pytest.raises(BuildError, match="1 of 2 problems did not") as error,
    ):
        builder.build([DENSE, EMPTY], tmp_path / "b", jobs=1, records=no_records, fallback=False)
    assert format_signature(DENSE) in str(error.value) and "nothing is written" in str(error.value)
    assert os.listdir(tmp_path) == []
    builder.build([EMPTY], tmp_path / "b", jobs=1, records=no_records, fallback=False)


def test_a_problem_without_a_kernel_is_an_error_after_the_others_are_written(
    tmp_path: Path, built: Path, no_records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(built, tmp_path / "b")
    before = contents(tmp_path)
    monkeypatch.setattr(builder, "attempt", failing_jobs.wrong)
    with pytest.warns(tvmconv.errors.TvmconvWarning), pytest.raises(BuildError, match="1 of 1 problems") as error:
        builder.build([DENSE], tmp_path / "b", jobs=1, records=no_records)
    assert f"{format_signature(DENSE)} for" in str(error.value) and "plain: its kernel is wrong" in str(error.value)
    assert contents(tmp_path) == before and os.listdir(tmp_path) == ["b"]
    monkeypatch.setattr(builder, "attempt", failing_jobs.wrong_everywhere_in_two_dimensions)
    with pytest.warns(tvmconv.errors.TvmconvWarning), pytest.raises(BuildError, match="1 of 2 problems"):
        builder.build([DENSE, DEPTHWISE], tmp_path / "b", jobs=1, records=no_records)
    assert {entry.signature for entry in read_bundle(tmp_path / "b").entries} == {
        format_signature(EMPTY),
        format_signature(DEPTHWISE),
    }


def test_no_compiler_is_no_schedules_fault(
    tmp_path: Path, no_records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\nexit 7\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler.parent))
    with pytest.raises(ToolchainError, match="the C compiler failed"):
        builder.build([DENSE], tmp_path / "b", jobs=1, records=no_records)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="there is no C compiler"):
        builder.build([DENSE], tmp_path / "b", jobs=1, records=no_records)
    assert os.listdir(tmp_path) == ["bin"]


@pytest.mark.parametrize("attempt", [failing_jobs.fill_disk, failing_jobs.fill_disk_of_compiler])
def test_a_full_disk_is_no_schedules_fault(
    attempt: object, tmp_path: Path, no_records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "attempt", attempt)
    with pytest.raises(OSError, match=f"No space left on device, in {tmp_path} or"):
        builder.build([DENSE], tmp_path / "b", jobs=1, records=no_records)
    assert os.listdir(tmp_path) == []


def test_what_a_killed_builder_leaves_is_removed_by_the_next(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.modules['torch'] = None; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "import failing_jobs\nfrom tvmconv.building import builder\nfrom tvmconv.tuning.records import Records\n"
        "from tvmconv.signature import parse_signature\nbuilder.attempt = failing_jobs.hang\n"
        "builder.build([parse_signature(sys.argv[1])], sys.argv[2], jobs=1, records=Records(sys.argv[3]))\n"
    )
    command = [sys.executable, "-c", script, format_signature(DENSE), str(tmp_path / "b"), str(tmp_path / "records")]
    builders = [subprocess.Popen(command) for _ in range(2)]
    deadline = time.monotonic() + 600
    while len(list(tmp_path.glob(".b.*/*/half.so"))) < 2:
        assert time.monotonic() < deadline and all(each.poll() is None for each in builders)
        time.sleep(0.1)
    builders[0].kill()
    builders[0].wait()
    assert len(list(tmp_path.glob(".b.*"))) == 2
    builder.build([EMPTY], tmp_path / "b", jobs=1, records=Records(tmp_path / "records"))
    assert len(list(tmp_path.glob(".b.*/*/half.so"))) == 1  # the other builder's, who lives
    builders[1].kill()
    builders[1].wait()
    builder.build([EMPTY], tmp_path / "b", jobs=1, records=Records(tmp_path / "records"))
    assert os.listdir(tmp_path) == ["b"]


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
        (
            lambda manifest: next(iter(manifest["targets"].values()))["features"].append("mmx"),
            "CPU features other than",
        ),
    ],
)
def test_a_bundle_of_other_versions_is_not_added_to(
    change: object, words: str, tmp_path: Path, built: Path, no_records: Records
) -> None:
    path = shutil.copytree(built, tmp_path / "b")
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)  # type: ignore[operator]
    (path / "manifest.json").write_text(json.dumps(manifest))
    before = contents(tmp_path)
    with pytest.raises(BundleError, match=words):
        builder.build([EMPTY], path, jobs=1, records=no_records)
    assert contents(tmp_path) == before


def test_a_damaged_bundle_is_to_be_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "manifest.json").write_text("{")
    monkeypatch.setattr(builder, "run_all", None)  # said before anything is compiled
    with pytest.raises(BundleError, match=rf"damaged.*; remove {tmp_path / 'b'} and build the bundle again"):
        builder.build([DENSE], tmp_path / "b")
    assert (tmp_path / "b" / "manifest.json").read_text() == "{"


def test_what_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidProblemError, match="no problem was given"):
        builder.build([], tmp_path / "b")
    with pytest.raises(InvalidProblemError, match=r"problems is 'conv2d.*; give a list of Problems"):
        builder.build(format_signature(DENSE), tmp_path / "b")  # type: ignore[arg-type]
    with pytest.raises(InvalidProblemError, match=r"problems is Problem\(.*; give a list of Problems"):
        builder.build(DENSE, tmp_path / "b")  # type: ignore[arg-type]
    with pytest.raises(InvalidProblemError, match="problems hold 'conv1d"):
        builder.build([DENSE, "conv1d"], tmp_path / "b")  # type: ignore[list-item]
    with pytest.raises(BundleError, match="not UTF-8"):
        builder.build([DENSE], tmp_path / os.fsdecode(b"\xe9"))
    with pytest.raises(BundleError, match="not UTF-8"):
        tvmconv.load(tmp_path / os.fsdecode(b"\xe9"))
    with pytest.raises(TargetError, match="no target"):
        builder.build([DENSE], tmp_path / "b", target=[])
    with pytest.raises(TargetError, match="8086"):
        builder.build([DENSE], tmp_path / "b", target=["host", "8086"])
    for name, error in (("path", InputError), ("records", InputError), ("jobs", InvalidProblemError)):
        with pytest.raises(error, match=rf"{name} is b'x'"):
            builder.build(**{"problems": [DENSE], "path": tmp_path / "b", name: b"x"})
    for name, error in (("target", TargetError), ("trials", TuningError), ("seconds", TuningError)):
        with pytest.raises(error, match=rf"{name} is 0.5j"):
            builder.build([DENSE], tmp_path / "b", **{name: 0.5j})
    monkeypatch.setattr(builder, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install '.+\[compile\]'"):
        builder.build([DENSE], tmp_path / "b")
    assert os.listdir(tmp_path) == []
