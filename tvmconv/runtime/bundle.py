"""Bundles on disk: a folder with `manifest.json` and a shared library for each entry.

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
       "transferred_from": null or the signature of the tuned problem whose schedule this is,
       "verified": true, false, null or "emulated", "emulator": null or "qemu-aarch64 7.2.22, -cpu max",
       "digest": null or "16 hexadecimal digits",
       "skipped": [{"algorithm": "winograd4", "reason": "..."}, ...], "check": "..."}, ...]}

`check` is a digest of the fields that a call depends on.
Optional are ``"nodes"`` (`tvmconv.runtime.node_entries`) and ``"families"``, entries whose signatures are families' texts
(`tvmconv.family_text`).
`packed_filter` is the layout to which the kernel packs its filter, in each call unless the filter is prepacked; null: the filter is
read in place. `verified` is true if the kernel gave the reference's answers on a machine that runs it; null if it was built for
another and has not run since; "emulated" if it did so under `emulator`; false if `tvmconv verify` found it wrong: such kernels are
never loaded. `digest` is that of a reproducible kernel's answer to `tvmconv.fills.fixed_fill`, the same for all targets. `skipped`
lists the algorithms that were preferred to this one, but did not compile or were wrong. The last six may be absent. `features`
are those that the target's code may use, by Linux's names in /proc/cpuinfo. Files are relative, with ``/``. A signature occurs
once for each target. Unknown fields are ignored, so that a version may gain optional ones.
Bundles are not trusted: the manifest is checked when it is read, a library before it is loaded.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..checks import as_path
from ..errors import BundleError, SignatureError
from ..family_text import parse_family
from ..signature import parse_signature
from ..support import schema
from ..support.files import write_whole
from .node_entries import NODES, NodeEntry, describe, read

FORMAT = "tvmconv-bundle"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
NUMERICAL_CLASSES = ("exact", "tf32", "transform")
# Suffix of the names of algorithms whose results have the same bits on every CPU.
ORDERED = "_ordered"
# Element types of packed filters: the type of the arithmetic, or integers that hold pairs of bf16.
PACKED_TYPES = ("float32", "uint32", "uint64", "int32")
# Advice about altered or damaged bundles, to which nothing can be added, either.
_AGAIN = "remove {} and build the bundle again"
# Value of an entry's `verified` where an emulator ran the kernel.
EMULATED = "emulated"
# The best first: tuned for this problem, tuned for a similar one, not tuned.
ORIGINS = ("tuned", "transferred", "default")


@dataclass(frozen=True, slots=True)
class BundleTarget:
    """A target: its kind (``"cpu"``, ``"cuda"``) and the CPU features or GPU architectures of its code."""

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
    verified: bool | str | None = None
    skipped: tuple[dict[str, str], ...] = ()
    emulator: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A checked manifest, and its folder."""

    path: Path
    tvmconv: str
    tvm: str
    source_commit: str | None
    targets: dict[str, BundleTarget]
    entries: tuple[Entry, ...]
    nodes: tuple[NodeEntry, ...] = ()
    families: tuple[Entry, ...] = ()

    @property
    def all_entries(self) -> tuple[Entry, ...]:
        """Entries of problems, then of families."""
        return (*self.entries, *self.families)

    def library(self, entry: Entry) -> Path:
        """Return the path of an entry's library, after checking its sha256.

        Raises
        ------
        BundleError
            If the file is missing, outside of the bundle, or altered.
        """
        path = self.path / entry.file
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(os.path.realpath(self.path)):
            raise BundleError(f"{path} leads out of the bundle, to {real}; {_AGAIN.format(self.path)}")
        try:
            digest = hashlib.sha256(_content(real)).hexdigest()
        except OSError as error:
            raise BundleError(
                f"cannot read {path}, which the manifest names for {entry.signature}: {error.strerror}; {_AGAIN.format(self.path)}"
            ) from error
        if digest != entry.sha256:
            raise BundleError(
                f"{path} has sha256 {digest}, but the manifest says {entry.sha256}: the file was altered or damaged; {_AGAIN.format(self.path)}"
            )
        return real


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read and check the manifest of the bundle at `path`; no library is opened.

    Raises
    ------
    BundleError
        If there is no bundle, or its manifest is truncated, foreign, newer than this program, or unsafe.
    InputError
        If `path` is no path.
    """
    folder = as_path("the bundle's path", path)
    check_name(folder)
    manifest = folder / MANIFEST
    try:
        document = json.loads(_content(manifest))
    except NotADirectoryError as error:
        path = shlex.quote(str(folder))
        advice = (
            f"of a network's file, tvmconv run {path} --bench gives the times, and tvmconv explain {path} the kernels"
        )
        if folder.suffix != ".so":
            advice = f"of a model, make one with: tvmconv build {path} -o BUNDLE"
        raise BundleError(f"{folder} is not a bundle (a folder that tvmconv build writes); {advice}") from error
    except OSError as error:
        if folder.suffix == ".so" and not folder.exists():
            raise BundleError(
                f"there is no file {folder}; write it with: tvmconv compile MODEL.onnx -o {folder}"
            ) from error
        raise BundleError(
            f"{folder} is not a bundle: cannot read {manifest} ({error.strerror}); make one with: tvmconv build SOURCE -o BUNDLE"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{manifest} is truncated or damaged, not JSON: {error}; {_AGAIN.format(folder)}") from error
    try:
        return _parse(folder, document)
    except (_Malformed, schema.SchemaError) as problem:
        raise BundleError(f"{manifest}: {problem}; {_AGAIN.format(folder)}") from None


def check_name(folder: Path) -> None:
    """Refuse a path to which libraries cannot be written, or from which they cannot be loaded.

    Raises
    ------
    BundleError
        If it has bytes that are not UTF-8, or not valid in the locale.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise BundleError(
            f"{str(folder)!r} has bytes that are not UTF-8, or not valid in this locale; rename it, or set LC_ALL=C.UTF-8"
        ) from None


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
        "entries": _describe(bundle.entries),
    }
    if bundle.families:
        document["families"] = _describe(bundle.families)
    if bundle.nodes:
        document["nodes"] = describe(bundle.nodes)
    _write(bundle.path, document)


def _describe(entries: tuple[Entry, ...]) -> list[dict[str, Any]]:
    ordered = sorted(entries, key=lambda e: (e.signature, e.target))
    return [{**(fields := asdict(entry)), "check": _check(fields)} for entry in ordered]


def record_answers(path: Path, answers: Mapping[tuple[str, str], Entry]) -> None:
    """Write the verification results of some kernels into the manifest at `path`.

    The caller holds the lock of the bundle's parent folder (`tvmconv.support.folders.lock`). Kernels that were rebuilt meanwhile, and
    unknown fields, stay as they are.

    Parameters
    ----------
    answers
        By signature and target, entries with the new `verified`, `error`, `emulator` and `digest`.

    Raises
    ------
    BundleError
        As for :func:`read_bundle`.
    """
    read_bundle(path)
    document = json.loads(_content(path / MANIFEST))
    for entry in [*document["entries"], *document.get("families", [])]:
        found = answers.get((entry["signature"], entry["target"]))
        if found is not None and found.sha256 == entry["sha256"]:
            entry.update(verified=found.verified, error=found.error, emulator=found.emulator, digest=found.digest)
    _write(path, document)


def _write(folder: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    write_whole(folder / MANIFEST, text.encode())


def _check(entry: Mapping[str, Any]) -> str:
    """Return a digest of the fields that a call of an entry's kernel depends on."""
    fields = ("signature", "target", "file", "symbol", "packed_filter", "workspace_bytes")
    return hashlib.sha256(json.dumps([entry[each] for each in fields], sort_keys=True).encode()).hexdigest()[:16]


def _content(path: Path) -> bytes:
    """Read a regular file; raise OSError for a pipe or a device, which might block."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


class _Malformed(Exception):
    """Error in a manifest, and its place."""


def _inside(value: object) -> bool:
    """Return whether `value` is a relative path that stays in its folder."""
    if not isinstance(value, str) or value == "":
        return False
    return "\0" not in value and "\\" not in value and not {"", ".", ".."} & set(value.split("/"))


_PACKED = {"layout": schema.text, "dtype": schema.one_of(*PACKED_TYPES), "bytes": schema.unsigned}
_MEASURED = {"seconds": schema.number, "machine": schema.text, "trials": schema.unsigned}
_VERIFIED = schema.kind(f'true or false or "{EMULATED}"', lambda value: isinstance(value, bool) or value == EMULATED)
_ENTRY = schema.table(
    {
        "signature": schema.text,
        "target": schema.text,
        "algorithm": schema.text,
        "definition_version": schema.unsigned,
        "numerical_class": schema.one_of(*NUMERICAL_CLASSES),
        "origin": schema.one_of(*ORIGINS),
        "file": schema.kind("a relative path that stays inside the bundle", _inside),
        "sha256": schema.sha256,
        "symbol": schema.text,
        "packed_filter": schema.optional(schema.table(_PACKED)),
        "workspace_bytes": schema.unsigned,
        "measured": schema.optional(schema.table(_MEASURED)),
        "error": schema.optional(schema.table({"measure": schema.text, "value": schema.number})),
        "transferred_from": schema.optional(schema.text),
        "verified": schema.optional(_VERIFIED),
        "skipped": schema.list_of(schema.table({"algorithm": schema.text, "reason": schema.text})),
        "emulator": schema.optional(schema.text),
        "digest": schema.optional(schema.text),
    },
    absent={"transferred_from": None, "verified": None, "skipped": (), "emulator": None, "digest": None},
)
_MANIFEST = schema.table(
    {
        "tvmconv": schema.text,
        "tvm": schema.text,
        "source_commit": schema.optional(schema.text),
        "targets": schema.map_of(schema.table({"kind": schema.text, "features": schema.list_of(schema.text)})),
        "entries": schema.list_of(_ENTRY),
        "families": schema.list_of(_ENTRY),
        "nodes": NODES,
    },
    absent={"families": (), "nodes": ()},
)


def _parse(folder: Path, document: object) -> Bundle:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _Malformed(f'this is not a bundle\'s manifest (its "format" must be "{FORMAT}")')
    version = document.get("format_version")
    if type(version) is not int or version < 1:
        raise _Malformed(f"format_version is {version!r}; it must be a whole number of at least 1")
    if version > FORMAT_VERSION:
        raise _Malformed(
            f"the bundle has format version {version}, and this tvmconv reads versions up to {FORMAT_VERSION}; upgrade tvmconv"
        )
    known = _MANIFEST(document)
    for what, check in (("entries", parse_signature), ("families", parse_family)):
        _check_entries(what, check, known, document)
    nodes = known["nodes"]
    if len({node.key for node in nodes}) < len(nodes):
        raise _Malformed("nodes lists a node twice for the same signature")
    for number, node in enumerate(nodes):
        _check_signature(f"nodes[{number}].signature", node.signature, read)
    return Bundle(
        folder,
        known["tvmconv"],
        known["tvm"],
        known["source_commit"],
        {name: BundleTarget(**target) for name, target in known["targets"].items()},
        tuple(Entry(**entry) for entry in known["entries"]),
        nodes,
        tuple(Entry(**entry) for entry in known["families"]),
    )


def _check_entries(
    what: str, parse: Callable[[str], object], known: Mapping[str, Any], document: Mapping[str, Any]
) -> None:
    """Refuse inconsistent entries, of problems or of families; set `verified` of entries from before that field."""
    seen: set[tuple[str, str]] = set()
    for number, (entry, given) in enumerate(zip(known[what], document.get(what, ()), strict=True)):
        if entry["target"] not in known["targets"]:
            there = ", ".join(known["targets"]) or "no target"
            raise _Malformed(f"{what}[{number}].target is {entry['target']!r}; the manifest has {there}")
        key = (entry["signature"], entry["target"])
        if key in seen:
            raise _Malformed(f"{what}[{number}]: {key[0]} occurs twice for target {key[1]}")
        seen.add(key)
        if "verified" not in given:  # in earlier versions, checked kernels have an error
            entry["verified"] = True if entry["error"] else None
    for number, (entry, given) in enumerate(zip(known[what], document.get(what, ()), strict=True)):
        _check_signature(f"{what}[{number}].signature", entry["signature"], parse)
        _check_signature(f"{what}[{number}].transferred_from", entry["transferred_from"], parse)
        if given.get("check", _check(entry)) != _check(entry):  # earlier versions have none
            raise _Malformed(
                f"{what}[{number}].check is not that of {entry['signature']}: the manifest is altered or damaged"
            )


def _check_signature(where: str, signature: str | None, parse: Callable[[str], object]) -> None:
    try:
        if signature is not None:
            parse(signature)
    except SignatureError as error:
        raise _Malformed(f"{where}: {error}") from None
