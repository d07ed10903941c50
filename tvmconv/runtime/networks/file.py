"""The file of a network: a shared library, behind it the weights from the beginning of a page, a description, an end.

The loader maps the library and leaves what is behind it; `network/emit/native/executor.c` maps the weights. So one file has all, pages of
weights are read when first used, and processes share them. A library of several networks has the same for each, one behind the
other; right before the weights of each stands once more the end of the one before it.
"""

from __future__ import annotations

import json
import mmap
import os
import shlex
import struct
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
# Where the weights begin and how many bytes they have, the same of the description, the identity, and MAGIC.
_END = struct.Struct("<4Q 32s 16s")
_CHUNK = 1 << 20
# Weights are written in pieces that end at multiples of this in the file, whole huge pages: Linux 6.18 on ext4 then keeps them in such
# pages, and most of them in small ones where each array is written by itself.
_WRITTEN = 4 << 20
_OLDER = b"tvmconv_describe"  # a function that libraries for TVM's virtual machine had
_DIGEST = "sha256"  # in the description, of all that stands before it and of the rest of it


@dataclass(frozen=True)
class Footprint:
    """Bytes of a network.

    Attributes
    ----------
    model
        The constants of the model, each once.
    weights
        What the file has of them: filters as their kernels read them.
    activations
        What each call that runs at the same time takes for arrays between kernels.
    peak
        All that one call reads and writes: weights, activations, inputs and outputs.
    """

    model: int
    weights: int
    activations: int
    peak: int


@dataclass(frozen=True)
class NetworkFile:
    """Places of a network's parts, as the end of its file gives them.

    Attributes
    ----------
    path
        The file.
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
        """How many bytes the network has."""
        told = self.description
        return Footprint(told["model_bytes"], self.weight_bytes, told["arena_bytes"], told["peak_bytes"])

    def verify(self) -> None:
        """Read the whole file, and compare it with the digest that the compiler took.

        Raises
        ------
        BundleError
            If its code, its weights or its description are others.
        """
        with self.path.open("rb") as file:
            digest = _digest(file, self.weights + self.weight_bytes)
        said = dict(self.description)
        digest_then = said.pop(_DIGEST, None)
        digest.update(json.dumps(said).encode())
        if digest.hexdigest() != digest_then:
            raise BundleError(
                f"{self.path} is damaged: its code, weights or description are not those that it was compiled with; compile it"
                " again"
            )


def library_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a network's library; raise BundleError if there is something else, or nothing."""
    path = as_path("the network's path", path)
    if path.is_dir():
        from ..bundle import MANIFEST  # a process that loads a network needs nothing else of it

        if (path / MANIFEST).exists():
            raise BundleError(
                f"{str(path)!r} is a bundle, of convolutions alone; a network is what tvmconv compile writes"
            )
        raise BundleError(f"{str(path)!r} is a folder; give the library in it that tvmconv compile wrote")
    if not path.is_file():
        command = f"tvmconv compile MODEL.onnx -o {shlex.quote(str(path))}"
        raise BundleError(f"there is no file {str(path)!r}; write it with: {command}")
    return path


def read_file(path: Path) -> NetworkFile:
    """Return what a network's file says of itself, without loading it.

    Raises
    ------
    BundleError
        If it is no such file, or cut off.
    """
    try:
        with path.open("rb") as file:
            weights, weight_bytes, start, size, _, magic = _end(file)
            if magic != MAGIC:
                _refuse_older(path)
                raise BundleError(f"{path} is no network that tvmconv compile wrote, or is cut off: its end is missing")
            file.seek(start)
            description = json.loads(file.read(size))
    except (OSError, OverflowError, struct.error, ValueError) as error:
        raise BundleError(f"{path} is no network that tvmconv compile wrote: {error}") from None
    return NetworkFile(path, weights, weight_bytes, description)


def _refuse_older(path: Path) -> None:
    """Raise BundleError if a file is of the format that TVM's virtual machine ran."""
    if path.stat().st_size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(_OLDER) >= 0:
                raise BundleError(
                    f"{path} is a network for TVM's virtual machine (--format relax), which tvmconv runs no longer; compile the"
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
        Gets the digest of all before it, and of itself.
    identity
        What the library's plan has, too: 32 letters.
    """
    with library.open("r+b") as file:
        before = _end_of(file)
        start = -(-(file.seek(0, os.SEEK_END) + len(before)) // PAGE) * PAGE
        file.truncate(start)
        file.seek(start - len(before))
        file.write(before)
        file.seek(0)
        digest = _digest(file, start)
        size, pending = 0, bytearray()
        for offset, array in arrays:
            content = b"\0" * (offset - size) + array.tobytes()
            digest.update(content)
            size = offset + array.nbytes
            pending += content
            whole = len(pending) - (start + size) % _WRITTEN
            if whole > 0:
                file.write(pending[:whole])
                del pending[:whole]
        file.write(pending)
        digest.update(json.dumps(description).encode())
        text = json.dumps({**description, _DIGEST: digest.hexdigest()}).encode()
        file.write(text)
        file.write(_END.pack(start, size, start + size, len(text), identity.encode(), MAGIC))


def _digest(file: BinaryIO, size: int) -> Any:
    """Return the digest of so many bytes that a file has from here, or of what there is of them."""
    import hashlib  # OpenSSL with it, which loading alone needs not

    digest = hashlib.sha256()
    while size and (chunk := file.read(min(_CHUNK, size))):
        digest.update(chunk)
        size -= len(chunk)
    return digest


def _end_of(file: BinaryIO) -> bytes:
    """Return the end of the network that a library has already, nothing if it has none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _END.size, 0))
    end = file.read()
    return end if end.endswith(MAGIC) and len(end) == _END.size else b""


def _end(file: BinaryIO) -> tuple[Any, ...]:
    file.seek(0, os.SEEK_END)
    file.seek(max(file.tell() - _END.size, 0))
    return _END.unpack(file.read(_END.size))
