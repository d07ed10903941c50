"""Entries of a manifest for a model's nodes: their prepacked filters, biases, and operands of epilogues.

manifest.json may have, beside the entries::

    "nodes": [
     {"name": "/model.0/conv/Conv", "model": "detector.onnx", "signature": "conv2d-...", "output": "the tensor's name",
      "filters": {"the layout's name": {"file": "filters/0f...e1.bin", "sha256": "0f...e1", "bytes": 1728}, ...},
      "bias": null or {"file": "filters/77...02.bin", "sha256": "77...02", "bytes": 64},
      "scale": null or a file of f32, "slope": null or a file of f32, "residual": null or the tensor's name}, ...]

A node has an entry for each signature: each shape and type that it was built for, or each family. Its `filters` are in the layouts of
the signature's kernels; equal content shares a file. Files hold the elements alone, are named by their sha256, and are mapped
into memory at a node's first call. `residual` is the model's tensor that the epilogue adds. Manifests from before epilogues have
no `scale`, `slope` and `residual`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ..family import ProblemFamily
from ..family_text import is_family, parse_family
from ..problem import Problem
from ..signature import parse_signature
from ..support import schema

FOLDER = "filters"


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of a bundle: its path in it, its sha256 and its length in bytes."""

    file: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node at one shape and type, or as a family with its own pads; the fields are those of manifest.json."""

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
    """Parse a node's signature, of a problem or a family; raise SignatureError if it is neither."""
    return parse_family(signature) if is_family(signature) else parse_signature(signature)


def _blob(value: object) -> Blob:
    blob = Blob(**_BLOB(value))
    if blob.file != blob_file(blob.sha256):
        raise schema.SchemaError(blob_file("SHA256"), blob.file).within("file")
    return blob


def _node(value: object) -> NodeEntry:
    node = NodeEntry(**_NODE(value))
    if not node.filters:
        raise schema.SchemaError("a table of files by layout", node.filters).within("filters")
    return node


def blob_file(sha256: str) -> str:
    """Return the path in a bundle of the file that has this sha256."""
    return f"{FOLDER}/{sha256}.bin"


def describe(nodes: Iterable[NodeEntry]) -> list[dict[str, Any]]:
    """Return the entries of `nodes` in a manifest."""
    return [asdict(node) for node in sorted(nodes, key=lambda node: node.key)]


def size_of(nodes: Iterable[NodeEntry]) -> int:
    """Return the bytes that the files of `nodes` take together."""
    return sum(blob.bytes for blob in {blob for node in nodes for blob in node.blobs()})


_BLOB = schema.table({"file": schema.text, "sha256": schema.sha256, "bytes": schema.unsigned})
_FILE = schema.Kind(_BLOB.words, _blob)
_NODE = schema.table(
    {
        "name": schema.words,
        "model": schema.words,
        "signature": schema.words,
        "output": schema.words,
        "filters": schema.map_of(_FILE),
        "bias": schema.optional(_FILE),
        "scale": schema.optional(_FILE),
        "slope": schema.optional(_FILE),
        "residual": schema.optional(schema.words),
    },
    absent={"bias": None, "scale": None, "slope": None, "residual": None},
)
# The nodes of a manifest.
NODES = schema.list_of(schema.Kind(_NODE.words, _node))
