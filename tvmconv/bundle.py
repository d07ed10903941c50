"""Bundles on disk: a folder with `manifest.json` and one shared library an entry.

manifest.json, format version 1::

    {"format": "tvmconv-bundle", "format_version": 1,
     "tvmconv": "0.1.0", "tvm": "0.27.0.post1", "source_commit": "..." or null,
     "targets": {"znver4": {"kind": "cpu", "features": ["avx2", ...]}, ...},
     "entries": [
      {"signature": "conv2d-...", "target": "znver4", "algorithm": "direct", "definition_version": 1,
       "numerical_class": "exact", "tf32" or "transform", "origin": "default", "tuned" or "transferred",
       "file": "znver4/conv2d-....so", "sha256": "...", "symbol": "tvmconv_kernel",
       "packed_filter": null or {"layout": "...", "dtype": "float32", "bytes": 0}, "workspace_bytes": 0,
       "measured": null or {"seconds": 0.001, "machine": "...", "trials": 0},
       "error": null or {"measure": "exact", "value": 0.0},
       "transferred_from": null or the signature of the tuned problem whose schedule this is (may be absent)}, ...]}

`packed_filter` is what the kernel lays its filter out as, in each call unless the caller has it done ahead; null: the
filter is read in place. `features` are the /proc/cpuinfo flags that the target's code may use. Files are relative, with ``/``.
A signature occurs once a target. Unknown fields are ignored, so that a version may gain optional ones.
Nothing of a bundle is trusted: the manifest is checked when it is read, a library before it is loaded.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import BundleError

FORMAT = "tvmconv-bundle"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
NUMERICAL_CLASSES = ("exact", "tf32", "transform")
# The elements of packed filters: numbers in the type that is computed with, or pairs of bf16.
PACKED_TYPES = ("float32", "uint32")
# The better first: tuned for this very problem, tuned for one like it, not tuned.
ORIGINS = ("tuned", "transferred", "default")


@dataclass(frozen=True, slots=True)
class BundleTarget:
    """A kind of machine: ``kind`` (``"cpu"``) and the CPU features its code may use."""

    kind: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One compiled kernel of a bundle; the fields are those of manifest.json."""

    signature: str
    target: str
    algorithm: str
    definition_version: int
    numerical_class: str
    origin: str
    file: str
    sha256: str
    symbol: str
    packed_filter: dict[str, Any] | None
    workspace_bytes: int
    measured: dict[str, Any] | None
    error: dict[str, Any] | None
    transferred_from: str | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A manifest that has been checked, and the folder it describes."""

    path: Path
    tvmconv: str
    tvm: str
    source_commit: str | None
    targets: dict[str, BundleTarget]
    entries: tuple[Entry, ...]

    def library(self, entry: Entry) -> Path:
        """Return the path of an entry's library, after checking that it is the one that was built.

        Raises
        ------
        BundleError
            If the file is missing, lies outside the bundle, or differs from what was built.
        """
        path = self.path / entry.file
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(os.path.realpath(self.path)):
            raise BundleError(f"{path} leads out of the bundle, to {real}; build the bundle again")
        try:
            digest = hashlib.sha256(_content(real)).hexdigest()
        except OSError as error:
            raise BundleError(
                f"cannot read {path}, which the manifest names for {entry.signature}: {error.strerror}; build the bundle again"
            ) from error
        if digest != entry.sha256:
            raise BundleError(
                f"{path} has sha256 {digest}, but the manifest says {entry.sha256}: the file was altered or damaged; build the bundle again"
            )
        return real


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read and check the manifest of the bundle at `path`; no library is opened.

    Raises
    ------
    BundleError
        If there is no bundle, or its manifest is truncated, foreign, newer than this program, or unsafe.
    """
    folder = Path(path)
    manifest = folder / MANIFEST
    try:
        document = json.loads(_content(manifest))
    except OSError as error:
        raise BundleError(
            f"{folder} is not a bundle: cannot read {manifest} ({error.strerror}); make one with: tvmconv build SOURCE -o BUNDLE"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{manifest} is truncated or damaged, not JSON: {error}; build the bundle again") from error
    try:
        return _parse(folder, document)
    except _Malformed as problem:
        raise BundleError(f"{manifest}: {problem}; build the bundle again") from None


def write_manifest(bundle: Bundle) -> None:
    """Write `bundle` as the manifest of its folder, whole or not at all.

    Equal bundles give equal bytes: entries are ordered by signature and target.
    """
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "tvmconv": bundle.tvmconv,
        "tvm": bundle.tvm,
        "source_commit": bundle.source_commit,
        "targets": {name: asdict(bundle.targets[name]) for name in sorted(bundle.targets)},
        "entries": [asdict(entry) for entry in sorted(bundle.entries, key=lambda e: (e.signature, e.target))],
    }
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    temporary = bundle.path / f".{MANIFEST}.{os.getpid()}"
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, bundle.path / MANIFEST)


def _content(path: Path) -> bytes:
    """Read a file; of a pipe or a device, which could keep us waiting, nothing."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


class _Malformed(Exception):
    """Says what is wrong with a manifest."""


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _whole(value: object) -> bool:
    return type(value) is int and value >= 0


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and type(value) is not bool and math.isfinite(value) and value >= 0


def _optional(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


def _record(**checks: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(check(value.get(name)) for name, check in checks.items())


def _inside(value: object) -> bool:
    """Whether `value` is a relative path that stays in its folder."""
    if not _text(value) or not isinstance(value, str):
        return False
    return "\0" not in value and "\\" not in value and not {"", ".", ".."} & set(value.split("/"))


_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)

# Each field of an entry: what it must be, in words and as a check.
_ENTRY_FIELDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "signature": ("a text", _text),
    "target": ("the name of one of its targets", _text),
    "algorithm": ("a text", _text),
    "definition_version": ("a whole number", _whole),
    "numerical_class": (" or ".join(NUMERICAL_CLASSES), lambda value: value in NUMERICAL_CLASSES),
    "origin": (" or ".join(ORIGINS), lambda value: value in ORIGINS),
    "file": ("a relative path that stays inside the bundle", _inside),
    "sha256": ("64 hexadecimal digits", lambda value: isinstance(value, str) and _HASH.fullmatch(value) is not None),
    "symbol": ("a text", _text),
    "packed_filter": (
        "null or layout, dtype and bytes",
        _optional(_record(layout=_text, dtype=lambda value: value in PACKED_TYPES, bytes=_whole)),
    ),
    "workspace_bytes": ("a whole number", _whole),
    "measured": (
        "null or seconds, machine and trials",
        _optional(_record(seconds=_number, machine=_text, trials=_whole)),
    ),
    "error": ("null or measure and value", _optional(_record(measure=_text, value=_number))),
    "transferred_from": ("null or a signature", _optional(_text)),
}
# Absent from the bundles of earlier versions.
_MAY_BE_ABSENT = ("transferred_from",)


def _parse(folder: Path, document: object) -> Bundle:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _Malformed(f'this is not a bundle\'s manifest (its "format" must be "{FORMAT}")')
    version = document.get("format_version")
    if type(version) is not int or version < 1:
        raise _Malformed(f'"format_version" is {version!r}; it must be a whole number, at least 1')
    if version > FORMAT_VERSION:
        raise _Malformed(
            f"the bundle has format version {version}, and this tvmconv reads versions up to {FORMAT_VERSION}; upgrade tvmconv, or"
        )
    for name, check in (("tvmconv", _text), ("tvm", _text), ("source_commit", _optional(_text))):
        if not check(document.get(name)):
            raise _Malformed(f"{name!r} is {document.get(name)!r}; it must be a text")
    targets = {name: _parse_target(name, value) for name, value in _member(document, "targets", dict).items()}
    entries = [_parse_entry(i, value, targets) for i, value in enumerate(_member(document, "entries", list))]
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        key = (entry.signature, entry.target)
        if key in seen:
            raise _Malformed(f"{entry.signature} occurs twice for target {entry.target}")
        seen.add(key)
    return Bundle(folder, document["tvmconv"], document["tvm"], document["source_commit"], targets, tuple(entries))


def _member(document: dict[str, Any], name: str, kind: type) -> Any:
    value = document.get(name)
    if not isinstance(value, kind):
        raise _Malformed(f"{name!r} is missing or not a {'table' if kind is dict else 'list'}")
    return value


def _parse_target(name: str, value: object) -> BundleTarget:
    features = value.get("features") if isinstance(value, dict) else None
    if (
        not name
        or not isinstance(value, dict)
        or not _text(value.get("kind"))
        or not isinstance(features, list)
        or not all(map(_text, features))
    ):
        raise _Malformed(f"target {name!r} must have a kind (a text) and features (a list of texts), not {value!r}")
    return BundleTarget(value["kind"], tuple(features))


def _parse_entry(number: int, value: object, targets: dict[str, BundleTarget]) -> Entry:
    if not isinstance(value, dict):
        raise _Malformed(f"entry {number} is {value!r}, not a table")
    value = {**dict.fromkeys(_MAY_BE_ABSENT), **value}
    for name, (words, check) in _ENTRY_FIELDS.items():
        if name not in value:
            raise _Malformed(f"entry {number} ({value.get('signature')!r}) has no {name!r}")
        try:
            valid = check(value[name])
        except TypeError:  # an unhashable value where a name is due
            valid = False
        if not valid:
            raise _Malformed(
                f"entry {number} ({value.get('signature')!r}): {name!r} is {value[name]!r}; it must be {words}"
            )
    if value["target"] not in targets:
        raise _Malformed(
            f"entry {number}: 'target' is {value['target']!r}; the manifest has {', '.join(targets) or 'none'}"
        )
    return Entry(*(value[name] for name in _ENTRY_FIELDS))
