"""Every field of manifests, records and trials: absent, or of another type, it is named by its path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from toys import entry, small_problem, write_bundle

from tvmconv.errors import BundleError
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import format_signature
from tvmconv.support import schema
from tvmconv.tuning import trials
from tvmconv.tuning.records import parse_record

SIGNATURE = format_signature(small_problem())
RECORD = {
    "signature": SIGNATURE, "target": "a", "algorithm": "direct", "version": 1, "sketch": 0, "decisions": [1, 2],
    "seconds": 1e-3, "default_seconds": 2e-3, "trials": 3, "seed": 0, "machine": "m", "date": "2026-01-31",
    "tools": {"tvm": "1"}, "rank": 0, "placements": 8, "cold": False,
}  # fmt: skip
TRIAL = {
    "algorithm": "direct", "version": 1, "sketch": 0, "decisions": [1, 2], "status": "ok", "seconds": 1e-3,
    "detail": "", "machine": "m",
}  # fmt: skip
TYPES = {list: "list", dict: "table", int: "number", float: "number", bool: "truth", str: "text", type(None): "null"}
MAY_BE_NULL = {
    "source_commit", "packed_filter", "measured", "error", "transferred_from", "verified", "default_seconds", "emulator",
    "digest",
}  # fmt: skip
MAY_BE_ABSENT = {"transferred_from", "verified", "skipped", "emulator", "digest", "rank", "placements", "cold"}


def manifest(folder: Path) -> Any:
    """Return the manifest of a bundle in which no field is null or empty."""
    rich = {
        "measured": {"seconds": 0.001, "machine": "a machine", "trials": 3},
        "error": {"measure": "exact", "value": 0.0},
        "packed_filter": {"layout": "4x64x16", "dtype": "float32", "bytes": 16384},
        "transferred_from": SIGNATURE,
        "skipped": ({"algorithm": "direct", "reason": "it does not compile"},),
        "emulator": "qemu-aarch64 7.2.22, -cpu max",
        "digest": "0" * 16,
    }
    write_bundle(folder, [entry(SIGNATURE, "a"), entry(SIGNATURE, "b", **rich)], a=["sse2"], b=["avx2"])
    document = json.loads((folder / "manifest.json").read_text())
    document["source_commit"] = "0" * 40
    document["entries"].reverse()  # the rich one first
    for each in document["entries"]:
        del each["check"]  # which no changed one would pass
    return document


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each member of a document, tables and lists included, of lists the first."""
    members = value.items() if isinstance(value, dict) else [(0, value[0])] if isinstance(value, list) and value else []
    for step, member in members:
        yield (*at, step)
        yield from paths(member, (*at, step))


def written(way: tuple[Any, ...]) -> str:
    """Return a way as messages write it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in way).lstrip(".")


def changed(document: Any, way: tuple[Any, ...], *value: Any) -> Any:
    """Return a copy with the member at `way` set to `value`, or absent."""
    copy = deepcopy(document)
    place = copy
    for step in way[:-1]:
        place = place[step]
    if value:
        place[way[-1]] = value[0]
    else:
        del place[way[-1]]
    return copy


def refused(kind: str, document: Any, folder: Path) -> str | None:
    """Return the message that reading a document ends with; None if it is read."""
    try:
        if kind == "manifest":
            (folder / "manifest.json").write_text(json.dumps(document))
            read_bundle(folder)
        elif kind == "record":
            parse_record(document, "a")
        else:
            trials._parse(document)
    except (BundleError, ValueError) as error:
        return str(error)
    return None


def documents(folder: Path) -> dict[str, Any]:
    return {"manifest": manifest(folder), "record": RECORD, "trial": TRIAL}


# The ways are of a manifest that any folder gives.
@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schema")


@pytest.mark.parametrize("kind", ["manifest", "record", "trial"])
def test_every_field_of_another_type_is_named_by_its_path(kind: str, there: Path) -> None:
    document = documents(there)[kind]
    assert refused(kind, document, there) is None
    for way in paths(document):
        if way[0] in ("format", "format_version"):  # tests/unit/test_bundle.py
            continue
        present = document
        for step in way:
            present = present[step]
        for value in (["x"], {"x": 1}, 1.5, True, "text", None):
            if TYPES[type(value)] == TYPES[type(present)]:
                continue
            message = refused(kind, changed(document, way, value), there)
            if value is None and way[-1] in MAY_BE_NULL:
                assert message is None
            else:
                assert f"{written(way)} is {value!r}" in str(message)


@pytest.mark.parametrize("kind", ["manifest", "record", "trial"])
def test_every_absent_field_is_named_by_its_path(kind: str, there: Path) -> None:
    document = documents(there)[kind]
    for way in paths(document):
        if (
            way[0] in ("format", "format_version")
            or isinstance(way[-1], int)
            or way[-2:-1] in (("targets",), ("tools",))
        ):
            continue
        message = refused(kind, changed(document, way), there)
        if way[-1] in MAY_BE_ABSENT:
            assert message is None
        else:
            assert f"{written(way)} is missing; it must be " in str(message)


def test_what_is_refused_and_what_is_not(there: Path) -> None:
    for way, value, words in (
        (
            ("entries", 0, "packed_filter", "bytes"),
            -1,
            "entries[0].packed_filter.bytes is -1; it must be a whole number",
        ),
        (("entries", 0, "skipped", 0, "reason"), None, "entries[0].skipped[0].reason is None; it must be a text"),
        (
            ("entries", 0, "verified"),
            "yes",
            "entries[0].verified is 'yes'; it must be null or true or false or \"emulated\"",
        ),
        (("targets", "a b"), 1, "targets['a b'] is 1; it must be a table with kind, features"),
        (("entries", 0, "symbol"), "", "entries[0].symbol is ''; it must be a text that is not empty"),
    ):
        message = refused("manifest", changed(manifest(there), way, value), there)
        assert words in str(message)


def test_bundles_of_earlier_versions_stay_valid(there: Path) -> None:
    document = manifest(there)
    for each in document["entries"]:
        for name in ("transferred_from", "verified", "skipped"):
            del each[name]
    assert refused("manifest", document, there) is None
    checked, unchecked = read_bundle(there).entries
    assert (checked.error is not None, checked.verified, checked.skipped) == (True, True, ())
    assert (unchecked.error, unchecked.verified) == (None, None)


def test_a_long_value_is_cut_short() -> None:
    with pytest.raises(schema.SchemaError) as error:
        schema.unsigned("x" * 10_000)
    assert str(error.value).startswith("it is 'xxx") and len(str(error.value)) < 200
