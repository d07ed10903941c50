"""The filters of a library's layers: as data in the archive, or in one file that is mapped."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import BundleError
from ..runtime.arrays import LINE_BYTES
from ..runtime.node_entries import Blob
from .plan import Layer, Plan

# The first line of the file: what it is, which library's, and how long it is.
_HEADER = struct.Struct("<16s32sQ8x")
_MAGIC = b"tvmconv filters1"
assert _HEADER.size == LINE_BYTES


class Blobs:
    """The arrays that a library's layers have, each content once.

    Parameters
    ----------
    plan
        The library.
    in_file
        Whether they are in a file, not in the archive.
    """

    def __init__(self, plan: Plan, in_file: bool) -> None:
        self.in_file = in_file
        self._bundle = plan.bundle
        used = [each for layer in plan.layers for each in _arrays_of(layer)]
        self.all: Sequence[Blob] = sorted(set(used), key=lambda blob: blob.sha256)
        self._offsets: dict[str, int] = {}
        end = LINE_BYTES
        for blob in self.all:
            self._offsets[blob.sha256] = end
            end += -(-blob.bytes // LINE_BYTES) * LINE_BYTES
        self.size = end
        self.identity = hashlib.sha256("\n".join([plan.name, *(each.sha256 for each in self.all)]).encode()).digest()

    def initializer(self, blob: Blob | None) -> str:
        """Return the ``struct blob`` of an array, or of none."""
        if blob is None:
            return "{NULL, 0}"
        return f"{{NULL, {self._offsets[blob.sha256]}}}" if self.in_file else f"{{{_symbol(blob)}, 0}}"

    def declarations(self, used: Iterable[Blob | None]) -> str:
        """Return the declarations of arrays that a C file uses."""
        if self.in_file:
            return ""
        return "\n".join(sorted({f"extern const unsigned char {_symbol(blob)}[];" for blob in used if blob}))

    def content(self, blob: Blob) -> bytes:
        """Return an array's bytes, after checking that they are those that were built.

        Raises
        ------
        BundleError
            If they are not.
        """
        path = self._bundle.path / blob.file
        try:
            inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._bundle.path))
            content = path.read_bytes() if inside and path.is_file() else b""
        except OSError as error:
            raise BundleError(f"cannot read {path}: {error.strerror}; build the bundle again") from error
        if hashlib.sha256(content).hexdigest() != blob.sha256:
            raise BundleError(f"{path} is missing, altered or damaged; build the bundle again")
        return content

    def assembly(self, blob: Blob, file: str) -> str:
        """Return the assembly of an array as read-only data, whose bytes are in `file`."""
        symbol = _symbol(blob)
        return (
            f'.section .rodata.{symbol},"a",@progbits\n.balign {LINE_BYTES}\n.globl {symbol}\n.hidden {symbol}\n'
            f'.type {symbol},@object\n.size {symbol},{blob.bytes}\n{symbol}:\n.incbin "{file}"\n'
            '.section .note.GNU-stack,"",@progbits\n'
        )

    def write_file(self, path: Path) -> None:
        """Write the file of all arrays."""
        with path.open("wb") as file:
            file.write(_HEADER.pack(_MAGIC, self.identity, self.size))
            for blob in self.all:
                content = self.content(blob)
                file.write(content + bytes(-len(content) % LINE_BYTES))

    def header(self) -> str:
        """Return ``tvmconv-filters.h``: what the file of this library begins with."""
        first = _HEADER.pack(_MAGIC, self.identity, self.size)
        return f"static const unsigned char first_line[] = {{{', '.join(map(str, first))}}};\n#define FILE_BYTES {self.size}u\n"


def _arrays_of(layer: Layer) -> list[Blob]:
    """Return the arrays that a layer has."""
    filters = (*(layer.packed(each) for each in layer.function.variants), layer.plain)
    return [*layer.node.vectors.values(), *(each for each in filters if each is not None)]


def _symbol(blob: Blob) -> str:
    return f"NAME_rt_blob_{blob.sha256[:32]}"
