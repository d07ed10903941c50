"""Manifests and libraries of bundles: what is read back, and everything that is refused."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toys import entry, small_problem, write_bundle

from tvmconv.errors import BundleError
from tvmconv.runtime.bundle import Bundle, BundleTarget, read_bundle, write_manifest
from tvmconv.signature import format_signature

SIGNATURE = format_signature(small_problem())
MEASURED = {"seconds": 0.001, "machine": "a machine", "trials": 3}


def _document(path: Path) -> dict[str, Any]:
    """Write a valid bundle of two entries and return its manifest."""
    rich = {
        "measured": MEASURED,
        "error": {"measure": "exact", "value": 0.0},
        "packed_filter": {"layout": "4x64x16", "dtype": "float32", "bytes": 16384},
    }
    entries = [entry(SIGNATURE, "b", **rich), entry(SIGNATURE, "a")]
    write_bundle(path, entries, a=["sse2"], b=["sse2", "avx2"])
    return json.loads((path / "manifest.json").read_text())


def test_round_trip(tmp_path: Path) -> None:
    entries = (entry(SIGNATURE, "a"), entry(SIGNATURE, "b", measured=MEASURED, origin="tuned"))
    targets = {"a": BundleTarget("cpu", ()), "b": BundleTarget("cpu", ("avx2", "fma"))}
    bundle = Bundle(tmp_path, "0.1.0", "0.27.0.post1", "abc123", targets, entries)
    write_manifest(bundle)
    assert read_bundle(tmp_path) == bundle


def test_equal_bundles_have_equal_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write_bundle(one, [entry(SIGNATURE, "a"), entry(SIGNATURE, "b")], a=["x"], b=["y"])
    write_bundle(other, [entry(SIGNATURE, "b"), entry(SIGNATURE, "a")], b=["y"], a=["x"])
    assert (one / "manifest.json").read_bytes() == (other / "manifest.json").read_bytes()
    assert [path.name for path in one.iterdir()] == ["manifest.json"]


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    document = _document(tmp_path)
    document["later"] = document["entries"][0]["later"] = {"a": 1}
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    assert len(read_bundle(tmp_path).entries) == 2


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of a manifest: the member at `path` set to its last item."""
    *way, name, value = path

    def change(document: dict[str, Any]) -> None:
        for step in way:
            document = document[step]
        document[name] = value

    return change


def _delete(*path: Any) -> Callable[[dict[str, Any]], None]:
    *way, name = path

    def change(document: dict[str, Any]) -> None:
        for step in way:
            document = document[step]
        del document[name]

    return change


BAD = [
    (_set("format", "another"), "not a bundle's manifest"),
    (_delete("format"), "not a bundle's manifest"),
    (_set("format_version", 2), "upgrade tvmconv"),
    (_set("format_version", 0), "format_version"),
    (_set("format_version", "1"), "format_version"),
    (_set("format_version", True), "format_version"),
    (_set("format_version", 1.0), "format_version"),
    (_delete("format_version"), "format_version"),
    (_set("tvmconv", 1), "tvmconv"),
    (_delete("tvm"), "tvm"),
    (_set("source_commit", 5), "source_commit"),
    (_set("targets", []), "targets"),
    (_delete("targets"), "targets"),
    (_set("targets", "a", None), "targets.a is None"),
    (_set("targets", "a", {"kind": "cpu"}), "targets.a.features is missing"),
    (_set("targets", "a", {"kind": "cpu", "features": "avx2"}), "targets.a.features is 'avx2'; it must be a list"),
    (_set("targets", "a", {"kind": "cpu", "features": [1]}), "targets.a.features[0] is 1; it must be a text"),
    (_set("targets", "a", {"kind": 1, "features": []}), "targets.a.kind is 1"),
    (_delete("targets", "a"), "entries[0].target is 'a'; the manifest has b"),
    (_set("entries", {}), "entries"),
    (_delete("entries"), "entries"),
    (_set("entries", 0, 5), "entries[0] is 5; it must be a table with signature, "),
    (_set("entries", 0, "signature", None), "signature"),
    (_set("entries", 0, "signature", ""), "signature"),
    (_set("entries", 0, "signature", "tvmconv_kernel"), "entries[0].signature: 'tvmconv_kernel' is not a signature"),
    (_set("entries", 0, "transferred_from", "conv2d-n1"), "entries[0].transferred_from: 'conv2d-n1' is not a signature"),
    (_set("entries", 0, "target", "unheard-of"), "unheard-of"),
    (_set("entries", 0, "target", ["a"]), "target"),
    (_set("entries", 0, "algorithm", 3), "algorithm"),
    (_set("entries", 0, "definition_version", -1), "definition_version"),
    (_set("entries", 0, "definition_version", True), "definition_version"),
    (_set("entries", 0, "numerical_class", "approximate"), "exact or tf32 or transform"),
    (_set("entries", 0, "numerical_class", {}), "exact or tf32 or transform"),
    (_set("entries", 0, "origin", "guessed"), "origin"),
    (_set("entries", 0, "origin", []), "origin"),
    (_set("entries", 0, "sha256", "0" * 63), "64 hexadecimal digits"),
    (_set("entries", 0, "sha256", "G" * 64), "64 hexadecimal digits"),
    (_set("entries", 0, "sha256", "0" * 64 + "\n"), "64 hexadecimal digits"),
    (_set("entries", 0, "sha256", 0), "64 hexadecimal digits"),
    (_set("entries", 0, "symbol", ""), "symbol"),
    (_set("entries", 0, "packed_filter", "OIX16o"), "packed_filter"),
    (_set("entries", 0, "packed_filter", {"layout": "x", "dtype": "object", "bytes": 8}), "packed_filter"),
    (_set("entries", 0, "workspace_bytes", -1), "workspace_bytes"),
    (_set("entries", 0, "workspace_bytes", 0.5), "workspace_bytes"),
    (_set("entries", 0, "measured", []), "measured"),
    (_set("entries", 0, "measured", {}), "measured"),
    (_set("entries", 0, "measured", {**MEASURED, "seconds": -1}), "measured"),
    (_set("entries", 0, "measured", {**MEASURED, "seconds": True}), "measured"),
    (_set("entries", 0, "measured", {**MEASURED, "seconds": float("nan")}), "measured"),
    (_set("entries", 0, "measured", {**MEASURED, "trials": None}), "measured"),
    (_set("entries", 0, "error", {"measure": "exact"}), "error"),
    (_set("entries", 0, "error", {"measure": "exact", "value": "0"}), "error"),
    (_delete("entries", 0, "measured"), "entries[0].measured is missing; it must be null or a table with seconds, machine, trials"),
    (_delete("entries", 1, "file"), "entries[1].file is missing; it must be a relative path"),
    (_set("entries", 0, "target", "b"), "occurs twice for target b"),
    *(
        (_set("entries", 0, "file", path), "stays inside the bundle")
        for path in ["/etc/passwd", "../x.so", "a/../../x.so", "a//x.so", "./x.so", "a/..", "", "a\0.so", "a\\..\\x.so", 7]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=[f"{i}-{message}" for i, (_, message) in enumerate(BAD)])
def test_bad_manifest(tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    document = _document(tmp_path)
    change(document)
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(BundleError) as caught:
        read_bundle(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "upgrade" in str(caught.value) or "build the bundle again" in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b'{"format": "tvmconv-bundle", "format_version": 1', b"[" * 100_000],
    ids=["empty", "brace", "list", "null", "not utf-8", "truncated", "deep"],
)
def test_manifest_that_is_no_manifest(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(BundleError, match=r"truncated or damaged|not a bundle's manifest"):
        read_bundle(tmp_path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    _document(tmp_path)
    whole = (tmp_path / "manifest.json").read_bytes()
    for length in range(0, len(whole) - 2, 7):
        (tmp_path / "manifest.json").write_bytes(whole[:length])
        with pytest.raises(BundleError, match="truncated or damaged"):
            read_bundle(tmp_path)


def test_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "manifest.json")
    for path in (tmp_path, tmp_path / "nothing", tmp_path / "file", tmp_path / "pipe"):
        with pytest.raises(BundleError, match=r"is not a bundle.*tvmconv build"):
            read_bundle(path)
    with pytest.raises(BundleError, match=r"there is no file .*nothing.so; write it with: tvmconv compile"):
        read_bundle(tmp_path / "nothing.so")


def _with_library(path: Path, content: bytes = b"library") -> Bundle:
    made = entry(SIGNATURE, sha256=hashlib.sha256(content).hexdigest(), file="any/k.so")
    bundle = write_bundle(path, [made])
    (path / "any").mkdir()
    (path / "any" / "k.so").write_bytes(content)
    return bundle


def test_library(tmp_path: Path) -> None:
    bundle = _with_library(tmp_path)
    assert bundle.library(bundle.entries[0]) == (tmp_path / "any" / "k.so").resolve()


def test_library_altered(tmp_path: Path) -> None:
    bundle = _with_library(tmp_path)
    (tmp_path / "any" / "k.so").write_bytes(b"Library")
    with pytest.raises(BundleError, match=r"k.so has sha256 .*altered or damaged"):
        bundle.library(bundle.entries[0])


def test_library_missing(tmp_path: Path) -> None:
    bundle = _with_library(tmp_path)
    (tmp_path / "any" / "k.so").unlink()
    with pytest.raises(BundleError, match=r"cannot read .*k.so.*No such file"):
        bundle.library(bundle.entries[0])


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _loop], ids=["folder", "pipe", "loop"])
def test_library_is_no_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    bundle = _with_library(tmp_path)
    (tmp_path / "any" / "k.so").unlink()
    make(tmp_path / "any" / "k.so")
    with pytest.raises(BundleError, match=r"cannot read .*k.so"):
        bundle.library(bundle.entries[0])


@pytest.mark.parametrize("through", ["file", "folder"])
def test_link_out_of_the_bundle(tmp_path: Path, through: str) -> None:
    bundle = _with_library(tmp_path / "bundle")
    outside = tmp_path / "outside"
    (tmp_path / "bundle" / "any").rename(outside)
    if through == "folder":
        (tmp_path / "bundle" / "any").symlink_to(outside)
    else:
        (tmp_path / "bundle" / "any").mkdir()
        (tmp_path / "bundle" / "any" / "k.so").symlink_to(outside / "k.so")
    with pytest.raises(BundleError, match="leads out of the bundle"):
        bundle.library(bundle.entries[0])


def test_links_that_stay_are_followed(tmp_path: Path) -> None:
    bundle = _with_library(tmp_path / "bundle")
    (tmp_path / "bundle" / "any" / "k.so").rename(tmp_path / "bundle" / "real.so")
    (tmp_path / "bundle" / "any" / "k.so").symlink_to("../real.so")
    assert bundle.library(bundle.entries[0]).name == "real.so"
    (tmp_path / "alias").symlink_to("bundle")
    linked = read_bundle(tmp_path / "alias")
    assert linked.library(linked.entries[0]).name == "real.so"
