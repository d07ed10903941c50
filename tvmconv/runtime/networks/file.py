"""The file of a network: a shared library; after it the weights, which begin at a page, a description and an end.

The loader maps only the library; `network/emit/native/executor.c` maps the weights, whose pages processes share. A library with
several networks has weights, description and end for each, one after the other; a copy of the previous end precedes the weights.
A library of another kind (a provider), which may have networks, has a last end without weights.

A file is checked before it is loaded, because a truncated or damaged library would end the process. The description has a checksum
of everything before it, which takes little more time than reading.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shlex
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...checks import as_path
from ...errors import BundleError

# Linux's largest page (on 64-bit ARM): mapped parts of a file begin at a page.
PAGE = 65536
MAGIC = b"tvmconv network\0"
# Offset and length of the weights, and of the description; the identity; MAGIC.
_END = struct.Struct("<4Q 32s 16s")
# Bytes read at once; and words in a row of the matrix whose rows and columns the checksum sums.
_CHUNK, _WORDS = 1 << 20, 512
# Weights are written in pieces that end at multiples of this offset, whole huge pages: Linux 6.18 on ext4 then caches them in huge
# pages, and mostly in small ones if each array is written separately.
_WRITTEN = 4 << 20
_OLDER = b"tvmconv_describe"  # a function of libraries for TVM's virtual machine
# End of a description: the checksum of the file before the description, and of the rest of the description.
_CHECKSUM = ', "checksum": "{:08x}"}}'
# Key of the description of a library of another kind, and its value for a provider.
KIND, PROVIDER = "kind", "provider"
_WRITTEN_BY = {
    "": ("network that tvmconv compile wrote", "compile it again"),
    PROVIDER: ("provider that tvmconv export-onnxruntime wrote", "export it again"),
}
_MODELS = (".onnx", ".xml", ".pt2")
NO_IDENTITY = "0" * 32
# Files whose checksum was right, by device, inode, size and modification time.
_RIGHT: set[tuple[int, ...]] = set()


@dataclass(frozen=True)
class Footprint:
    """Bytes of a network.

    Attributes
    ----------
    model
        Constants of the model, each once.
    weights
        Bytes of weights in the file: filters in the kernels' layouts.
    prepared
        Filters that each process packs when it opens the network.
    activations
        Arena for arrays between kernels, for each concurrent call.
    peak
        Memory of one call: weights in the file, prepared filters, activations, inputs and outputs.
    """

    model: int
    weights: int
    prepared: int
    activations: int
    peak: int


@dataclass(frozen=True)
class NetworkFile:
    """Offsets of a network's parts, from the end of its file, and its description.

    Attributes
    ----------
    weights, weight_bytes
        Offset of the weights in the file, and their bytes.
    description
        The library's description (see `tvmconv.network.emit.library`).
    """

    path: Path
    weights: int
    weight_bytes: int
    description: dict[str, Any]

    @property
    def footprint(self) -> Footprint:
        """Bytes that the network has."""
        told = self.description
        prepared = told.get("prepared_bytes", 0)
        return Footprint(told["model_bytes"], self.weight_bytes, prepared, told["arena_bytes"], told["peak_bytes"])


def library_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a network's library; raise BundleError if it is no file."""
    path = as_path("the network's path", path)
    if path.is_dir():
        from ..bundle import MANIFEST  # not imported by processes that load a network

        if (path / MANIFEST).exists():
            raise BundleError(
                f"{str(path)!r} is a bundle, of convolutions alone; networks are written by tvmconv compile"
            )
        raise BundleError(f"{str(path)!r} is a folder; give the library in it that tvmconv compile wrote")
    if not path.is_file():
        command = f"tvmconv compile MODEL.onnx -o {shlex.quote(str(path))}"
        raise BundleError(f"there is no file {str(path)!r}; write it with: {command}")
    return path


def read_file(path: Path, kind: str = "") -> NetworkFile:
    """Return the description in a network's file, without loading the library, after comparing the checksum.

    Parameters
    ----------
    kind
        `PROVIDER` for a provider, empty for a network.

    Raises
    ------
    BundleError
        If it is no such file, truncated or damaged.
    """
    what, again = _WRITTEN_BY[kind]
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            ends = _end(file)
            if ends[-1] != MAGIC:
                _refuse_older(path)
                if path.suffix in _MODELS:
                    raise BundleError(
                        f"{path} is a model; first: tvmconv compile {shlex.quote(str(path))} -o NETWORK.so"
                    )
                raise BundleError(f"{path} is no {what}, or is cut off: its end is missing; {again}")
            weights, weight_bytes, start, size, *_ = ends
            if start != weights + weight_bytes or start + size + _END.size != status.st_size:
                raise BundleError(f"{path} is cut off or damaged: its trailer does not match its length; {again}")
            file.seek(start)
            text = file.read(size)
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if key not in _RIGHT and not _is_right(file, start, text):
                raise BundleError(
                    f"{path} is damaged: its code, weights or description do not match their checksum; {again}"
                )
    except OSError as error:
        raise BundleError(f"{path} is no {what}: {error.strerror or error}; {again}") from None
    _RIGHT.add(key)
    description = json.loads(text)
    if (there := description.get(KIND, "")) != kind:
        raise BundleError(f"{path} is no {what}, but a {_WRITTEN_BY[there][0]}")
    return NetworkFile(path, weights, weight_bytes, description)


def _refuse_older(path: Path) -> None:
    """Raise BundleError if a file is a network for TVM's virtual machine."""
    if path.stat().st_size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(_OLDER) >= 0:
                raise BundleError(
                    f"{path} is a network for TVM's virtual machine (--format relax), which tvmconv no longer runs; compile the"
                    f" model again: tvmconv compile MODEL.onnx -o {shlex.quote(str(path))}"
                )


def append(library: Path, arrays: Iterable[tuple[int, np.ndarray]], description: dict[str, Any], identity: str) -> None:
    """Append weights, a description and an end to a library.

    Parameters
    ----------
    library
        The file. Networks that it has already are kept.
    arrays
        Offsets and weights, in the order of the offsets.
    description
        The description, to which a checksum of the file and of itself is added.
    identity
        The identity in the library's code, 32 letters.
    """
    with library.open("r+b") as file:
        before = _end_of(file)
        start = -(-(file.seek(0, os.SEEK_END) + len(before)) // PAGE) * PAGE
        file.truncate(start)
        file.seek(start - len(before))
        file.write(before)
        size, pending = 0, bytearray()
        for offset, array in arrays:
            content = b"\0" * (offset - size) + array.tobytes()
            size = offset + array.nbytes
            pending += content
            whole = len(pending) - (start + size) % _WRITTEN
            if whole > 0:
                file.write(pending[:whole])
                del pending[:whole]
        file.write(pending)
        text = json.dumps(description).encode()[:-1]
        text += _CHECKSUM.format(_checksum(file, start + size, text)).encode()
        file.write(text)
        file.write(_END.pack(start, size, start + size, len(text), identity.encode(), MAGIC))


def _is_right(file: BinaryIO, size: int, text: bytes) -> bool:
    """Return whether the first `size` bytes of a file, and its description, match the checksum."""
    length = len(_CHECKSUM.format(0))
    said = _CHECKSUM.format(_checksum(file, size, text[:-length])).encode()
    return (len(text) > length and text[-length:] == said) or _has_digest(file, size, text)


def _has_digest(file: BinaryIO, size: int, text: bytes) -> bool:
    """Return whether a file of version 0.1.0 matches the SHA-256 in its description."""
    try:
        description = json.loads(text)
    except ValueError:
        return False
    said = description.pop("sha256", None) if isinstance(description, dict) else None
    if said is None:
        return False
    digest, left = hashlib.sha256(), size
    file.seek(0)
    while left and (read := file.read(min(left, _CHUNK))):
        digest.update(read)
        left -= len(read)
    digest.update(json.dumps(description).encode())
    return digest.hexdigest() == said


def _checksum(file: BinaryIO, size: int, text: bytes) -> int:
    """Return a checksum of the first `size` bytes of a file and of a text; leave the file's position after these bytes.

    Sums of rows and columns detect any changed word, and two exchanged ones, at the speed of reading.
    """
    words, result = np.empty((_CHUNK // _WORDS // 8, _WORDS), np.uint64), 0
    content = words.reshape(-1).view(np.uint8)
    file.seek(0)
    for start in range(0, size, _CHUNK):
        content[file.readinto(content[: size - start]) :] = 0  # type: ignore[attr-defined]
        for axis in (0, 1):
            result = zlib.crc32(words.sum(axis), result)
    return zlib.crc32(text, result)


def _end_of(file: BinaryIO) -> bytes:
    """Return the end of the last network in a library, empty if it has none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _END.size, 0))
    end = file.read()
    return end if end.endswith(MAGIC) and len(end) == _END.size else b""


def _end(file: BinaryIO) -> tuple[Any, ...]:
    size = file.seek(0, os.SEEK_END)
    if size < _END.size:
        raise OSError("it is too short")
    file.seek(size - _END.size)
    return _END.unpack(file.read(_END.size))
