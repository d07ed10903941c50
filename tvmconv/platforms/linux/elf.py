"""Change the visibility of symbols in ELF object files, and move a library's program headers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

# Fields of the ELF64 header: offset of the section table, size and number of rows; of a section: type, offset, size, linked section;
# of a symbol: name, type and binding, visibility, section.
_HEADER = struct.Struct("<40x Q 10x 2H 2x")
_SECTION = struct.Struct("<4x I 16x 2Q I 20x")
_SYMBOL = struct.Struct("<I 2B H 16x")
_SYMBOL_TABLE, _VISIBILITY = 2, 3
# Fields of the header: offset of the program headers; their size and number.
_SEGMENTS, _ROWS = struct.Struct("<32x Q"), struct.Struct("<54x 2H")


def make_visible(path: Path, wanted: Callable[[str], bool]) -> None:
    """Make the hidden symbols that an object file defines visible if they are `wanted`."""
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
    """Move a library's program headers to its end: the loader reads them first, and so refuses a truncated file.

    With the headers at its beginning, the loader maps the missing part, and a SIGBUS ends the process.
    """
    content = bytearray(path.read_bytes())
    (table,) = _SEGMENTS.unpack_from(content)
    size, number = _ROWS.unpack_from(content)
    content += bytes(-len(content) % 8)
    struct.pack_into("<Q", content, _SEGMENTS.size - 8, len(content))
    path.write_bytes(content + content[table : table + size * number])
