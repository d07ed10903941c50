"""Windows, with archives for Microsoft's linker, which import symbols of Microsoft's C library only."""

from __future__ import annotations

from dataclasses import replace

from ..platform import SystemTrial
from ..windows import PLATFORM as WINDOWS

# Functions of the C library are called without dllimport, since programs may link it statically.
_C_FLAGS = ("-D_CRTIMP=",)
_FORMATTED = ("-D__USE_MINGW_ANSI_STDIO=0", "-Dsnprintf=tvmconv_formatted")  # formatted.c
# The stack probe of large frames is the same function in both compilers; `_fltused` matters only to Microsoft's linker.
_PROBE, _GNU_PROBE = b"\0__chkstk\0", b"\0___chkstk_ms\0"
_LINK_FLAGS = ("-Wl,-u,___chkstk_ms", "-Wl,--defsym,__chkstk=___chkstk_ms", "-Wl,--defsym,_fltused=0")
_PACKAGED, _PREPARE = WINDOWS.packaged, WINDOWS.prepare
assert _PACKAGED is not None and _PREPARE is not None


def _prepare(content: bytes) -> bytes:
    """Return an object file as for Windows, with calls of Microsoft's stack probe."""
    assert _PREPARE is not None
    return _PREPARE(content).replace(_GNU_PROBE, _PROBE.ljust(len(_GNU_PROBE), b"\0"))


PLATFORM = replace(
    WINDOWS,
    name="Windows by Microsoft's tools",
    compile_flags=(*WINDOWS.compile_flags, *_C_FLAGS),
    link_flags=(*WINDOWS.link_flags, *_LINK_FLAGS),
    trials=(
        SystemTrial(
            "x86-64",
            "C, linked by LLVM's linker, under Wine; never by Microsoft's",
            "pytest -m '' -k test_msvc",
            "2026-11-29",
        ),
    ),
    packaged=replace(
        _PACKAGED,
        c_flags=(*_PACKAGED.c_flags, *_C_FLAGS, *_FORMATTED),
        archive="{name}.lib",
        shared="",
        beside=(),
        services=("emutls", "formatted"),
        mathematics="",
    ),
    prefix="windows-msvc",
    ports=tuple(replace(each, triple="x86_64-pc-windows-msvc") for each in WINDOWS.ports),
    prepare=_prepare,
)
