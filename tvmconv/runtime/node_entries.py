"""Entries of a manifest for a model's nodes: their prepacked filters, biases, and arrays of epilogues.

manifest.json may have, beside the entries::

    "nodes": [
     {"name": "/model.0/conv/Conv", "model": "detector.onnx", "signature": "conv2d-...", "output": "the tensor's name",
      "filters": {"the layout's name": {"file": "filters/0f...e1.bin", "sha256": "0f...e1", "bytes": 1728}, ...},
      "bias": null or {"file": "filters/77...02.bin", "sha256": "77...02", "bytes": 64},
      "scale": null or a file of f32, "slope": null or a file of f32, "residual": null or the tensor's name}, ...]

A node occurs once for each signature: for each shape and type that it was built for, or each family. Its `filters` are what the kernels
of its signature take, one for each layout; nodes and kernels of equal content share a file. Files are the elements alone,
are named by their sha256, and are mapped into memory when a node is first called. `residual` is the tensor of the model
that the epilogue adds. Manifests of before there were epilogues have no `scale`, `slope` and `residual`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ..family import ProblemFamily
from ..family_text import is_family, parse_family
from ..problem import Problem
from ..signature import parse_signature

FOLDER = "filters"
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of a bundle: its path in it, its sha256 and its length in bytes."""

    file: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node at one shape and type, or as a family, whose pads are its own; the fields are those of manifest.json."""

    name: str
    model: str
    signature: str
    output: str
    filters: dict[str, Blob]
    bias: Blob | None
    scale: Blob | None = None
    slope: Blob | None = None
    residual: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Key that no two nodes of a bundle share."""
        return self.model, self.name, self.signature

    @property
    def problem(self) -> Problem | ProblemFamily:
        """Problem or family that it computes."""
        return read(self.signature)

    @property
    def vectors(self) -> dict[str, Blob]:
        """Files of one number for each channel, by the names of the kernel's arguments."""
        named = {"bias": self.bias, "scale": self.scale, "slope": self.slope}
        return {name: blob for name, blob in named.items() if blob is not None}

    def blobs(self) -> list[Blob]:
        """Return its files."""
        return [*self.filters.values(), *self.vectors.values()]


def read(signature: str) -> Problem | ProblemFamily:
    """Return the problem or the family that a node's text names; raise SignatureError if it names neither."""
    return parse_family(signature) if is_family(signature) else parse_signature(signature)


def parse_nodes(value: object) -> tuple[NodeEntry, ...]:
    """Return what a manifest says of nodes.

    Raises
    ------
    ValueError
        Naming what is wrong with it.
    """
    if not isinstance(value, list):
        raise ValueError("nodes must be a list")
    nodes = tuple(_parse_node(f"nodes[{i}]", each) for i, each in enumerate(value))
    if len({node.key for node in nodes}) < len(nodes):
        raise ValueError("nodes lists a node twice for the same signature")
    return nodes


def _parse_node(where: str, value: object) -> NodeEntry:
    texts = ("name", "model", "signature", "output")
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in texts):
        raise ValueError(f"{where} must be a table whose {', '.join(texts)} are strings")
    filters, residual = value.get("filters"), value.get("residual")
    name, model, signature, output = (value[each] for each in texts)
    if not isinstance(filters, dict) or not filters:
        raise ValueError(f"{where}.filters must be a table of files by layout")
    blobs = {layout: _parse_blob(f"{where}.filters[{layout!r}]", blob) for layout, blob in filters.items()}
    vectors = {
        each: _parse_blob(f"{where}.{each}", value[each])
        for each in ("bias", "scale", "slope")
        if value.get(each) is not None
    }
    if residual is not None and not isinstance(residual, str):
        raise ValueError(f"{where}.residual must be a string, the name of a tensor, or null")
    bias = vectors.pop("bias", None)
    return NodeEntry(name, model, signature, output, blobs, bias, **vectors, residual=residual)


def _parse_blob(where: str, value: object) -> Blob:
    if isinstance(value, dict):
        file, sha256, size = (value.get(name) for name in ("file", "sha256", "bytes"))
        hashed = isinstance(sha256, str) and _HASH.fullmatch(sha256)
        if hashed and file == blob_file(hashed[0]) and type(size) is int and size >= 0:
            return Blob(blob_file(hashed[0]), hashed[0], size)
    raise ValueError(f"{where} must have sha256 (64 hexadecimal digits), file ({FOLDER}/SHA256.bin) and bytes")


def blob_file(sha256: str) -> str:
    """Return the path in a bundle of the file that has this sha256."""
    return f"{FOLDER}/{sha256}.bin"


def describe(nodes: Iterable[NodeEntry]) -> list[dict[str, Any]]:
    """Return what a manifest says of `nodes`."""
    return [asdict(node) for node in sorted(nodes, key=lambda node: node.key)]


def size_of(nodes: Iterable[NodeEntry]) -> int:
    """Return the bytes that the files of `nodes` take together."""
    return sum(blob.bytes for blob in {blob for node in nodes for blob in node.blobs()})
