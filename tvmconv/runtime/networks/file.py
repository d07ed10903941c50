"""The file of a network: a shared library, behind it the weights from the beginning of a page, a description, an end.

The loader maps the library and leaves what is behind it; `network/emit/native/executor.c` maps the weights. So one file has all, and
processes share the pages of weights. A library of several networks has the same for each, one behind the other; right before the
weights of each stands once more the end of the one before it. A library of another kind, which may have networks, ends so without
weights.

Nothing of a file is loaded that is not what was compiled: a library that is cut or damaged would end the process. The description
has a checksum of all that stands before, which takes little more than reading it.
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

# The largest that Linux has (of 64-bit ARM): a part of a file that is mapped begins with a page.
PAGE = 65536
MAGIC = b"tvmconv network\0"
# Begin and length of the weights, the same of the description, the identity, and MAGIC.
_END = struct.Struct("<4Q 32s 16s")
# Bytes read at once, and words that are added up: along a page, and beside it.
_CHUNK, _WORDS = 1 << 20, 512
# Weights are written in pieces that end at multiples of this in the file, whole huge pages: Linux 6.18 on ext4 then keeps them in such
# pages, and most of them in small ones where each array is written by itself.
_WRITTEN = 4 << 20
_OLDER = b"tvmconv_describe"  # a function that libraries for TVM's virtual machine had
# End of a description: the checksum of everything before it, and of the rest of the description.
_CHECKSUM = ', "checksum": "{:08x}"}}'
# Keys of a library of another kind: its description, and the function that reads it.
KIND, PROVIDER = "kind", "provider"
_WRITTEN_BY = {
    "": ("network that tvmconv compile wrote", "compile it again"),
    PROVIDER: ("provider that tvmconv export-onnxruntime wrote", "export it again"),
}
_MODELS = (".onnx", ".xml", ".pt2")
NO_IDENTITY = "0" * 32
# Files found right already, by what changes where a file does.
_RIGHT: set[tuple[int, ...]] = set()


@dataclass(frozen=True)
class Footprint:
    """Bytes of a network.

    Attributes
    ----------
    model
        The constants of the model, each once.
    weights
        Bytes of weights in the file: filters in the kernels' layouts.
    prepared
        Filters that each process packs when it loads the network.
    activations
        What each call that runs at the same time takes for arrays between kernels.
    peak
        All that one call reads and writes, and weights: those in the file and what is prepared, activations, inputs and outputs.
    """

    model: int
    weights: int
    prepared: int
    activations: int
    peak: int


@dataclass(frozen=True)
class NetworkFile:
    """Places of a network's parts, as the end of its file gives them.

    Attributes
    ----------
    weights, weight_bytes
        Where in it the weights begin, and how many bytes they have.
    description
        What the library says of itself (see `tvmconv.network.emit.library`).
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
    """Return the path of a network's library; raise BundleError if there is something else, or nothing."""
    path = as_path("the network's path", path)
    if path.is_dir():
        from ..bundle import MANIFEST  # a process that loads a network needs nothing else from it

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
    """Return the description in a network's file, without loading it, after checking that the file is unchanged.

    Parameters
    ----------
    kind
        Of a library that is no network: `PROVIDER`.

    Raises
    ------
    BundleError
        If it is no such file, cut off or damaged.
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
    """Raise BundleError if a file is of the format that TVM's virtual machine ran."""
    if path.stat().st_size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(_OLDER) >= 0:
                raise BundleError(
                    f"{path} is a network for TVM's virtual machine (--format relax), which tvmconv no longer runs; compile the"
                    f" model again: tvmconv compile MODEL.onnx -o {shlex.quote(str(path))}"
                )


def append(library: Path, arrays: Iterable[tuple[int, np.ndarray]], description: dict[str, Any], identity: str) -> None:
    """Write weights, each with its offset, a description and the end behind a library.

    Parameters
    ----------
    library
        The file, which grows. If it has networks already, they stay.
    arrays
        The weights in the order of their offsets.
    description
        Gets a checksum of all before it, and of itself.
    identity
        What the library's plan has, too: 32 letters.
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
    """Return whether so many bytes of a file, and a description, are those that were written."""
    length = len(_CHECKSUM.format(0))
    said = _CHECKSUM.format(_checksum(file, size, text[:-length])).encode()
    return (len(text) > length and text[-length:] == said) or _has_digest(file, size, text)


def _has_digest(file: BinaryIO, size: int, text: bytes) -> bool:
    """Return whether a file is one of version 0.1.0, whose description has a SHA-256 of the same, and is as it was written."""
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
    """Return a checksum of the first bytes of a file, which it then stands behind, and a text.

    Sums of words both ways find any change of one, and two that were exchanged, at the speed of reading.
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
    """Return the end of the network that a library has already, nothing if it has none."""
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
