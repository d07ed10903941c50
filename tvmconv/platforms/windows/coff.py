"""Repair LLVM's COFF object files for GNU's linker, and list their symbols.

TVM defines the slots through which its code calls (`lowering/native/launcher.c`) as exported COMDATs: they become undefined symbols.
Helper functions such as f16's conversions are weak with a default in the object: the defaults become static, and weak symbols
without one become 0. All other COMDATs, such as GCC's .refptr sections, become ordinary sections, because GNU's linker would drop
one whose symbol was hidden in favour of another.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

# Fields of the header: number of sections, offset and number of symbols; of a section: name, size, relocations, flags.
_HEADER, _SECTIONS = struct.Struct("<2x H 4x 2I 4x"), 20
_ROW = struct.Struct("<8s 8s I 12s H 2s I")
# Fields of a symbol: its name, value, section, type, class, and the number of records that follow it.
_SYMBOL = struct.Struct("<8s I h H 2B")
_EXTERNAL, _STATIC, _WEAK, _FUNCTION = 2, 3, 105, 0x20
_ONE_OF_SEVERAL, _CODE = 0x1000, 0x20
_ABSOLUTE = -1
_SLOT = "__TVMBackend"
# Symbol that a later object defines (`Packaged.weights`).
_LATER = "tvmconv_network_weights"
_LIBRARY, _WANTED = "tvm_ffi.dll", "TVMFFI"


class _Symbol(NamedTuple):
    place: int
    name: str
    fields: tuple[bytes, int, int, int, int, int]

    @property
    def section(self) -> int:
        """Number of the section, from 1 on; 0 for an undefined symbol."""
        return self.fields[2]

    @property
    def kind(self) -> int:
        """Storage class of the symbol."""
        return self.fields[4]


def _symbols(content: bytes | bytearray) -> Iterator[_Symbol]:
    _, start, number = _HEADER.unpack_from(content)
    names = start + number * _SYMBOL.size
    at = 0
    while at < number:
        place = start + at * _SYMBOL.size
        fields = _SYMBOL.unpack_from(content, place)
        if fields[0][:4] == b"\0\0\0\0":
            begin = names + int.from_bytes(fields[0][4:], "little")
            text = content[begin : content.index(0, begin)]
        else:
            text = fields[0].rstrip(b"\0")
        yield _Symbol(place, text.decode(), fields)
        at += 1 + fields[5]


def prepare(content: bytes) -> bytes:
    """Return an object file, TVM's or several linked into one, in a form that GNU's tools accept, without debug information."""
    changed = bytearray(content)
    number, _, _ = _HEADER.unpack_from(changed)
    symbols = list(_symbols(content))
    # After `ld -r`, a weak symbol's index of its default is wrong; but the default's name contains the symbol's.
    defaults = {each.name.split(".")[2]: each.fields for each in symbols if each.name.startswith(".weak.")}
    shared = set()
    for at in range(number):
        place = _SECTIONS + at * _ROW.size
        name, address, size, places, relocations, lines, flags = _ROW.unpack_from(changed, place)
        if name.startswith((b".drectve", b".debug")) or _long_name(content, name).startswith(b".debug"):
            size = relocations = 0
        if flags & _ONE_OF_SEVERAL:
            shared.add(at + 1)
        _ROW.pack_into(changed, place, name, address, size, places, relocations, lines, flags & ~_ONE_OF_SEVERAL)
    for each in symbols:
        name, value, section, type_, kind, more = each.fields
        if each.name.startswith(_SLOT) and section in shared and kind == _EXTERNAL:
            _SYMBOL.pack_into(changed, each.place, name, 0, 0, type_, kind, more)
        elif kind == _WEAK:
            _, value, section, *_ = defaults.get(each.name, (b"", 0, _ABSOLUTE, 0, 0, 0))
            is_later = section < 0 and each.name == _LATER
            section, kind = (0, _EXTERNAL) if is_later else (section, _STATIC)
            _SYMBOL.pack_into(changed, each.place, name, value, section, _FUNCTION, kind, more)
            changed[each.place + _SYMBOL.size : each.place + (1 + more) * _SYMBOL.size] = bytes(more * _SYMBOL.size)
    return bytes(changed)


def _long_name(content: bytes, name: bytes) -> bytes:
    """Return the first eight bytes of a section's name; a long name is a slash and its offset in the string table."""
    if not name.startswith(b"/"):
        return name
    _, start, number = _HEADER.unpack_from(content)
    return content[start + number * _SYMBOL.size + int(name[1:].rstrip(b"\0")) :][:8]


def exports(names: Sequence[str], objects: Sequence[Path]) -> str:
    """Return the text of a .def file with the symbols that objects define and that match patterns."""
    lines = set()
    for content in (path.read_bytes() for path in objects):
        for each in _symbols(content):
            if each.kind == _EXTERNAL and each.section > 0 and any(fnmatchcase(each.name, name) for name in names):
                *_, flags = _ROW.unpack_from(content, _SECTIONS + (each.section - 1) * _ROW.size)
                lines.add(each.name if flags & _CODE else f"{each.name} DATA")
    return "\n".join(("EXPORTS", *sorted(lines), ""))


def imports(objects: Sequence[Path]) -> str:
    """Return the text of a .def file of tvm-ffi's library with the symbols that objects import from it."""
    wanted = {
        each.name
        for path in objects
        for each in _symbols(path.read_bytes())
        if each.kind == _EXTERNAL and each.section == 0 and each.name.startswith(_WANTED)
    }
    return "\n".join((f"LIBRARY {_LIBRARY}", "EXPORTS", *sorted(wanted), ""))
