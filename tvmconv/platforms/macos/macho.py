"""Hide or rename symbols of Mach-O object files."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

# Fields of the header: number of load commands; of a command: kind and size; of LC_SYMTAB: offset and number of symbols, offset and
# bytes of names; of a symbol: offset of its name, kind, section, attributes, value.
_HEADER, _COMMANDS = struct.Struct("<16x I 12x"), 32
_COMMAND, _TABLE = struct.Struct("<2I"), struct.Struct("<8x 4I")
_SYMBOL = struct.Struct("<I 2B H Q")
_SYMBOLS = 2
# Bits of a symbol's kind: N_EXT, N_PEXT (private external), N_TYPE, N_SECT, N_STAB.
_EXTERNAL, _PRIVATE, _WHERE, _DEFINED, _DEBUG = 1, 0x10, 0x0E, 0x0E, 0xE0


def _commands(content: bytes | bytearray, wanted: int) -> Iterator[int]:
    """Yield the offsets of load commands of a kind."""
    (number,) = _HEADER.unpack_from(content)
    at = _COMMANDS
    for _ in range(number):
        kind, size = _COMMAND.unpack_from(content, at)
        if kind == wanted:
            yield at
        at += size


def _change(content: bytes, change: Callable[[str, bool], tuple[str, bool] | None]) -> bytes:
    """Return an object file with its external symbols renamed, and made visible or hidden.

    `change` takes a name and whether the symbol is defined, and returns the new name and whether it is visible; None: unchanged.
    """
    changed = bytearray(content)
    for at in _commands(content, _SYMBOLS):
        start, number, names, size = _TABLE.unpack_from(content, at)
        table = bytearray(content[names : names + size])
        for place in range(start, start + number * _SYMBOL.size, _SYMBOL.size):
            begin, kind, *rest = _SYMBOL.unpack_from(content, place)
            if not kind & _EXTERNAL or kind & _DEBUG:
                continue
            name = table[begin : table.index(0, begin)].decode()
            found = change(name.removeprefix("_"), kind & _WHERE == _DEFINED)
            if found is None:
                continue
            new, visible = found
            if f"_{new}" != name:
                begin = len(table)
                table += f"_{new}\0".encode()
            _SYMBOL.pack_into(changed, place, begin, kind & ~_PRIVATE if visible else kind | _PRIVATE, *rest)
        table += bytes(-len(table) % 8)
        struct.pack_into("<2I", changed, at + 16, len(changed), len(table))  # at the end of the file
        changed += table
    return bytes(changed)


def select(content: bytes, renamed: Mapping[str, str], keep: Sequence[str]) -> bytes:
    """Return an object file with renamed symbols, of which those that match no pattern of `keep` become private."""
    own = (
        f".{zlib.crc32(content):08x}"  # makes names unique: the linker merges equal private symbols of several objects
    )

    def change(name: str, defined: bool) -> tuple[str, bool]:
        name = renamed.get(name, name)
        visible = not defined or any(fnmatchcase(name, each) for each in keep)
        return (name, True) if visible else (name + own, False)

    return _change(content, change)


def publish(path: Path, wanted: Callable[[str], bool]) -> None:
    """Hide an object file's symbols outside of the library, except the `wanted` ones."""
    content = _change(path.read_bytes(), lambda name, defined: (name, wanted(name)) if defined else None)
    path.write_bytes(content)
