"""Visible symbols of ELF object files, and the place of a library's table of segments."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

# ELF's 64-bit header: the table of sections, the size of a row and their number. Of a row: type, offset, size and the section it
# links to. Of a symbol: its name, its kind, its visibility and its section.
_HEADER = struct.Struct("<40x Q 10x 2H 2x")
_SECTION = struct.Struct("<4x I 16x 2Q I 20x")
_SYMBOL = struct.Struct("<I 2B H 16x")
_SYMBOL_TABLE, _VISIBILITY = 2, 3
# Fields of the header: where the table of segments is; the size of a row and their number.
_SEGMENTS, _ROWS = struct.Struct("<32x Q"), struct.Struct("<54x 2H")


def make_visible(path: Path, wanted: Callable[[str], bool]) -> None:
    """Make the `wanted` symbols that an object file defines visible; its compiler has hidden them."""
    content = bytearray(path.read_bytes())
    table, size, number = _HEADER.unpack_from(content)
    rows = [_SECTION.unpack_from(content, table + at * size) for at in range(number)]
    for kind, start, length, names in rows:
        if kind != _SYMBOL_TABLE:
            continue
        for place in range(start, start + length, _SYMBOL.size):
            name, info, other, section = _SYMBOL.unpack_from(content, place)
            begin = rows[names][1] + name
            text = content[begin : content.index(0, begin)].decode()
            if section and info >> 4 and wanted(text):
                content[place + 5] = other & ~_VISIBILITY
    path.write_bytes(content)


def move_segments(path: Path) -> None:
    """Move a library's table of segments to its end: the loader reads it first, and refuses a file without an end.

    Of one that has the table at its beginning it maps what is missing, and the process ends by a signal when it looks there.
    """
    content = bytearray(path.read_bytes())
    (table,) = _SEGMENTS.unpack_from(content)
    size, number = _ROWS.unpack_from(content)
    content += bytes(-len(content) % 8)
    struct.pack_into("<Q", content, _SEGMENTS.size - 8, len(content))
    path.write_bytes(content + content[table : table + size * number])
