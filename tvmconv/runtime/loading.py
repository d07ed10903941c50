"""Files that the system's loader is given: whole ones, each under a path that names no other."""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from pathlib import Path

# The start of a 64-bit ELF file of little-endian numbers; of its header, where the table of segments is, the size of a row
# and their number; of a segment, where it is in the file and its size there.
_ELF64 = b"\x7fELF\x02\x01"
_ELF_HEADER = struct.Struct("<32x Q 14x 2H 6x")
_SEGMENT = struct.Struct("<8x Q 16x Q 16x")
# Each path's files that this process loaded, by device and inode; a library stays loaded, so its inode is not given to another.
_LOADED: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)


def loadable(path: Path) -> str:
    """Return the path by which the loader finds a shared library.

    The loader identifies a library by its path, and returns the old one for a file that was replaced. A path with another `/.` in it
    names the same file, and is new to the loader.

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
