"""The relocatable object in a bundle's library, from which libraries for C are linked (`tvmconv.exporting`).

The section :data:`SECTION`, which is never loaded, holds the kernel's object without the run-time services that the library is
linked with: a line of JSON, ``{"version": 1, "workspaces": {"tvmconv_kernel": [shared, task], ...}}``, and the ELF
file, compressed by zlib together.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import BundleError
from .bundle import Bundle, Entry

SECTION = ".tvmconv.object"
_VERSION = 1
# First bytes of a WebAssembly module.
MODULE = b"\0asm\1\0\0\0"
# First bytes of a 64-bit Mach-O file, and its load command of a segment.
_MACHO, _SEGMENT = b"\xcf\xfa\xed\xfe", 0x19
# Fields of the ELF64 header: offset of the section table, size and number of rows, index of the names' section; and of a row:
# its name, its offset in the file and its size.
_HEADER = struct.Struct("<16x 2H 4x 8x 8x Q 4x 2H 2H 2H")
_ROW = struct.Struct("<I 4x 8x 8x Q Q 24x")


@dataclass(frozen=True)
class Workspace:
    """Upper bound of a function's allocations beside its stack.

    Attributes
    ----------
    shared, task
        Bytes of a call, and of each concurrent task of a parallel loop.
    """

    shared: int
    task: int


@dataclass(frozen=True)
class KernelObject:
    """A kernel's object file.

    Attributes
    ----------
    content
        An ELF file for the linker.
    workspaces
        Allocations of its functions, by name.
    """

    content: bytes
    workspaces: Mapping[str, Workspace]

    def packed(self) -> bytes:
        """Return the content of :data:`SECTION`."""
        described = {name: [each.shared, each.task] for name, each in sorted(self.workspaces.items())}
        header = json.dumps({"version": _VERSION, "workspaces": described}).encode()
        return zlib.compress(header + b"\n" + self.content, 9)


def read_object(bundle: Bundle, entry: Entry) -> KernelObject:
    """Return the object in an entry's library, after checking the library's sha256.

    Raises
    ------
    BundleError
        If the library is missing or altered, or has no object: it is of an older tvmconv, or for a GPU.
    """
    path = bundle.library(entry)
    again = f"build {bundle.path} again, with tvmconv build, and export that"
    try:
        packed = _section(path, SECTION)
        header, _, content = zlib.decompress(packed).partition(b"\n") if packed is not None else (b"{}", b"", b"")
        described = json.loads(header)
        version, sizes = described.get("version"), described.get("workspaces", {})
    except (struct.error, IndexError, ValueError, zlib.error) as error:
        raise BundleError(f"{path} was not linked by tvmconv ({error}); {again}") from error
    if packed is None:
        raise BundleError(
            f"{path} has no object to link from: it was built by tvmconv {bundle.tvmconv}, before bundles contained objects; {again}"
        )
    if version != _VERSION:
        raise BundleError(f"the object in {path} has version {version}; this tvmconv reads {_VERSION}: {again}")
    return KernelObject(content, {name: Workspace(*each) for name, each in sizes.items()})


def _section(path: Path, name: str) -> bytes | None:
    """Return the content of a section of an ELF file, of a library of Windows or macOS, or of a module of WebAssembly; None: there is none."""
    content = path.read_bytes()
    if content.startswith(MODULE):
        return next((found for each, found in custom_sections(content) if each == name), None)
    if content.startswith(b"MZ"):
        return _section_of_windows(content, name)
    if content.startswith(_MACHO):
        return _section_of_macos(content)
    if not content.startswith(b"\x7fELF"):
        raise ValueError("it is no ELF file")
    _, _, table, _, _, _, size, number, names = _HEADER.unpack_from(content)
    rows = [_ROW.unpack_from(content, table + at * size) for at in range(number)]
    _, start, _ = rows[names]
    for place, offset, length in rows:
        if content.startswith(name.encode() + b"\0", start + place):
            return content[offset : offset + length]
    return None


def _section_of_windows(content: bytes, name: str) -> bytes | None:
    """Return a section of a Windows library; its name has at most eight letters."""
    (start,) = struct.unpack_from("<I", content, 60)
    number, size = struct.unpack_from("<4x 2x H 12x H", content, start)
    for at in range(number):
        named, length, offset = struct.unpack_from("<8s I 4x 4x I", content, start + 24 + size + 40 * at)
        if named.rstrip(b"\0") == name.encode()[:8]:
            return content[offset : offset + length]
    return None


def _section_of_macos(content: bytes) -> bytes | None:
    """Return the content of a macOS library's segment for the object."""
    (number,), at = struct.unpack_from("<16x I", content), 32
    for _ in range(number):
        kind, size = struct.unpack_from("<2I", content, at)
        if kind == _SEGMENT and content.startswith(b"__TVMCONV\0", at + 8):
            # Its first section follows the segment's row: name and segment, address, length and offset.
            length, offset = struct.unpack_from("<32x 8x Q I", content, at + 72)
            return content[offset : offset + length]
        at += size
    return None


def custom_sections(module: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of a WebAssembly module's custom sections."""
    at = len(MODULE)
    while at < len(module):
        kind, (size, at) = module[at], _number(module, at + 1)
        if kind == 0:
            length, name = _number(module, at)
            yield module[name : name + length].decode(), module[name + length : at + size]
        at += size


def with_custom_section(module: bytes, name: str, content: bytes) -> bytes:
    """Return a WebAssembly module with another custom section appended."""
    named = name.encode()
    body = _leb128(len(named)) + named + content
    return module + b"\0" + _leb128(len(body)) + body


def _leb128(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _leb128(rest) if rest else bytes([low])


def _number(module: bytes, at: int) -> tuple[int, int]:
    """Return the LEB128 number at an offset, and the offset after it."""
    number = shift = 0
    while True:
        number |= (module[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if module[at - 1] < 128:
            return number, at
