"""Paths for the system's loader: of files that are not truncated, each unique to its file."""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from pathlib import Path

# First bytes of a little-endian ELF64 file; fields of its header: offset of the segment table, size and number of rows; of a
# segment: its offset and size in the file.
_ELF64 = b"\x7fELF\x02\x01"
_ELF_HEADER = struct.Struct("<32x Q 14x 2H 6x")
_SEGMENT = struct.Struct("<8x Q 16x Q 16x")
# Device and inode of the files loaded from each path; a library stays loaded, so its inode is not reused.
_LOADED: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)


def loadable(path: Path) -> str:
    """Return the path of a shared library for the loader.

    The loader identifies a library by its path, and returns the old one after the file was replaced. Each replaced file is loaded by
    a path with one more `./`, which names the same file and is new to the loader.

    Raises
    ------
    OSError
        If it is missing or truncated.
    """
    path = Path(os.path.realpath(path))
    _check_whole(path)
    status = path.stat()
    files, file = _LOADED[str(path)], (status.st_dev, status.st_ino)
    if file not in files:
        files.append(file)
    return f"{path.parent}/{'./' * files.index(file)}{path.name}"


def _check_whole(path: Path) -> None:
    """Raise OSError if an ELF file is shorter than the segments that the loader maps: reading beyond its end would raise SIGBUS."""
    with path.open("rb") as file:
        start = file.read(_ELF_HEADER.size)
        if len(start) < _ELF_HEADER.size or not start.startswith(_ELF64):
            return  # the loader says what it is
        offset, size, number = _ELF_HEADER.unpack(start)
        file.seek(offset)
        table = file.read(size * number)
        needed = offset + size * number
        if len(table) == size * number and size >= _SEGMENT.size:
            needed = max((sum(_SEGMENT.unpack_from(table, at)) for at in range(0, len(table), size)), default=0)
        there = os.fstat(file.fileno()).st_size
    if there < needed:
        raise OSError(f"the file is truncated: it has {there} of at least {needed} bytes")
