"""`tvmconv verify`'s engine: right kernels pass; wrong, altered, crashing and foreign ones do not."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tvmconv
from tvmconv import cli
from tvmconv.building import builder
from tvmconv.errors import BundleError, InputError, TvmconvWarning, UnsupportedMachineError, VerificationError
from tvmconv.fills import exact_case
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.verify import Verdict, verify
from tvmconv.signature import parse_signature
from tvmconv.tuning.records import Records

LEFT = "conv1d-n1-i16x9-o16x5-k2-s2-d1-p1_0-g1-NXC-XIO-f32"
RIGHT = "conv1d-n1-i16x9-o16x5-k2-s2-d1-p0_1-g1-NXC-XIO-f32"
CRASH = """
#include <stdint.h>
#include <stdlib.h>
int __tvm_ffi_tvmconv_kernel(void* self, const void* args, int32_t count, void* result) { abort(); }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of two kernels that differ only in the side of their pad."""
    folder = tmp_path_factory.mktemp("verify")
    problems = [parse_signature(LEFT), parse_signature(RIGHT)]
    return builder.build(problems, folder / "b", jobs=1, records=Records(folder / "records"))


@pytest.fixture
def bundle(built: Path, tmp_path: Path) -> Path:
    """Return a copy of `built` to spoil."""
    return Path(shutil.copytree(built, tmp_path / "b"))


def edit(bundle: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a bundle's manifest."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    change(manifest)
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def replace_library(bundle: Path, signature: str, data: bytes) -> None:
    """Put other bytes in the place of a kernel's library, and say so in the manifest."""

    def change(manifest: dict[str, Any]) -> None:
        (entry,) = (entry for entry in manifest["entries"] if entry["signature"] == signature)
        (bundle / entry["file"]).write_bytes(data)
        entry["sha256"] = hashlib.sha256(data).hexdigest()

    edit(bundle, change)


def by_signature(verdicts: list[Verdict]) -> dict[str, Verdict]:
    """Return verdicts by their signature."""
    return {verdict.signature: verdict for verdict in verdicts}


def test_right_kernels_are_right(built: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    verdicts = verify(built, progress=lambda *args: seen.append(args))
    assert [verdict.status for verdict in verdicts] == ["right", "right"]
    assert [(done, total) for done, total, _ in seen] == [(0, 2), (1, 2)]


def test_a_transform_is_given_what_its_epilogue_takes(tmp_path: Path) -> None:
    signature = "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-add-relu"
    records = Records(tmp_path / "records")
    path = builder.build([parse_signature(signature)], tmp_path / "b", jobs=1, verify=False, records=records)
    assert read_bundle(path).entries[0].numerical_class == "transform"
    (verdict,) = verify(path)
    assert verdict.status == "right", verdict.detail


def test_a_kernel_that_computes_something_else_is_wrong(bundle: Path) -> None:
    (other,) = bundle.rglob(f"{LEFT}.so")
    replace_library(bundle, RIGHT, other.read_bytes())
    verdicts = by_signature(verify(bundle))
    assert verdicts[LEFT].status == "right"
    assert verdicts[RIGHT].status == "wrong" and "outputs differ" in verdicts[RIGHT].detail


def test_an_altered_library_is_wrong(bundle: Path) -> None:
    (library,) = bundle.rglob(f"{LEFT}.so")
    library.write_bytes(library.read_bytes() + b"\0")
    verdicts = by_signature(verify(bundle))
    assert verdicts[LEFT].status == "wrong" and "sha256" in verdicts[LEFT].detail
    assert verdicts[RIGHT].status == "right"


def test_a_crash_is_wrong_and_the_others_are_still_checked(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "crash.c").write_text(CRASH)
    library = tmp_path / "crash.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(tmp_path / "crash.c"), "-o", str(library)], check=True)
    replace_library(bundle, LEFT, library.read_bytes())
    verdicts = by_signature(verify(bundle))
    assert verdicts[LEFT].status == "wrong" and "SIGABRT" in verdicts[LEFT].detail
    assert verdicts[RIGHT].status == "right"


def test_what_this_machine_cannot_run_is_skipped(bundle: Path) -> None:
    def move_first(manifest: dict[str, Any]) -> None:
        manifest["targets"]["z80"] = {"kind": "cpu", "features": ["ldir"]}
        manifest["entries"][0]["target"] = "z80"
        del manifest["entries"][0]["check"]

    edit(bundle, move_first)
    skipped, right = verify(bundle)
    assert skipped.status == "skipped" and "ldir" in skipped.detail and right.status == "right"


def test_a_bundle_of_which_nothing_can_be_checked_is_an_error(bundle: Path) -> None:
    edit(bundle, lambda manifest: [target["features"].append("ldir") for target in manifest["targets"].values()])
    with pytest.raises(UnsupportedMachineError, match="ldir"):
        verify(bundle)


def test_what_was_found_is_written_into_the_bundle(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def forget(manifest: dict[str, Any]) -> None:
        manifest["later"] = {"kept": 1}
        for entry in manifest["entries"]:
            entry.update(verified=None, error=None)

    edit(bundle, forget)
    with pytest.warns(TvmconvWarning, match=r"2 of the kernels .* were never checked .* tvmconv verify"):
        tvmconv.load(bundle)
    assert cli.main(["list", str(bundle)]) == 0
    assert capsys.readouterr().out.count(" never ") == 2
    (other,) = bundle.rglob(f"{LEFT}.so")
    replace_library(bundle, RIGHT, other.read_bytes())
    assert cli.main(["verify", str(bundle)]) == 1
    assert json.loads((bundle / "manifest.json").read_text())["later"] == {"kept": 1}
    entries = {entry.signature: entry for entry in read_bundle(bundle).entries}
    assert (entries[LEFT].verified, entries[LEFT].error) == (True, {"measure": "exact", "value": 0.0})
    assert (entries[RIGHT].verified, entries[RIGHT].error) == (False, None)
    registry = tvmconv.load(bundle)
    assert list(registry) == [LEFT]
    with pytest.raises(UnsupportedMachineError, match=r"found it wrong; build it again.*tvmconv build"):
        registry[RIGHT]
    capsys.readouterr()
    assert cli.main(["list", str(bundle)]) == 0
    assert " wrong " in capsys.readouterr().out
    edit(bundle, lambda manifest: manifest["entries"].pop(0 if manifest["entries"][0]["signature"] == RIGHT else 1))
    before = (bundle / "manifest.json").stat()
    verify(bundle)
    after = (bundle / "manifest.json").stat()  # the whole of it would change with the time of the last reading
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)  # there was nothing new


def test_a_bundle_that_cannot_be_written_is_verified_all_the_same(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(bundle, lambda manifest: [entry.update(verified=None) for entry in manifest["entries"]])

    def refuse(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tvmconv.runtime.verify.record_answers", refuse)
    with pytest.warns(TvmconvWarning, match="cannot be written .* Permission denied"):
        assert [verdict.status for verdict in verify(bundle)] == ["right", "right"]


def test_unverified_kernels_are_checked_at_their_first_use(bundle: Path) -> None:
    (other,) = bundle.rglob(f"{LEFT}.so")
    replace_library(bundle, RIGHT, other.read_bytes())
    edit(bundle, lambda manifest: [entry.update(verified=None) for entry in manifest["entries"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry = tvmconv.load(bundle, verify="first-use")
    arrays, expected = exact_case(parse_signature(LEFT))
    assert (registry[LEFT](*arrays) == expected).all()
    for _ in range(2):  # it stays wrong
        with pytest.raises(VerificationError, match=r"is wrong on this machine: .* outputs differ.*tvmconv build"):
            registry[RIGHT](*arrays)
    with pytest.raises(VerificationError):
        registry[RIGHT].pack(arrays.filter) if registry[RIGHT].info.packed_filter else registry[RIGHT](*arrays)
    with pytest.raises(InputError, match="allowed: None, 'first-use'"):
        tvmconv.load(bundle, verify="always")


def test_a_verified_kernel_is_not_checked_again(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvmconv.runtime.verify.check_kernel", None)
    arrays, expected = exact_case(parse_signature(LEFT))
    assert (tvmconv.load(bundle, verify="first-use")[LEFT](*arrays) == expected).all()


def test_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not a bundle"):
        verify(tmp_path)
