"""Windows on x86-64: COFF, linked by mingw-w64's GCC, with the threads of our pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..platform import Packaged, Platform, Port, SystemTrial
from .coff import exports, imports, prepare

# A library whose threads wait in its code must not be unloaded: threads.h pins it.
_LINK_FLAGS = (
    *("-shared", "-static-libgcc", "-Wl,--build-id=none", "-Wl,--strip-all", "-Wl,--no-insert-timestamp"),
    "exports.def",
)
# A list exports symbols; GCC ignores ELF's visibility attributes here.
_COMPILE_FLAGS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Werror", "-Wno-attributes", "-D_WIN32_WINNT=0x0A00")
_LIBRARIES = ("-lsynchronization",)
_KEPT = """\
.section {section:.8},"dr"
.incbin "{file}"
"""
_WEIGHTS = """\
.section .rdata,"dr"
.balign 4096
.globl tvmconv_network_weights
tvmconv_network_weights:
.incbin "weights.bin"
"""
# GCC aligns the stack to 16 bytes even for spilled vectors of 32 (bug 54412), so the assembler writes unaligned moves instead.
_ANY_ADDRESS = "-Wa,-muse-unaligned-vector-move"


def _publish(path: Path, wanted: Callable[[str], bool]) -> None:
    """Do nothing: COFF objects hide no symbols."""


PLATFORM = Platform(
    name="Windows",
    library_suffix=".dll",
    compile_flags=_COMPILE_FLAGS,
    link_flags=_LINK_FLAGS,
    exports=exports,
    kept=_KEPT,
    services=("launcher", "shared", "pool", "no_openmp", "processors"),
    threaded=None,
    zig_suffix="",
    native=Path(__file__).with_name("native"),
    has_parts=True,
    trials=(
        SystemTrial(
            "x86-64",
            "kernels, networks, C under Wine 8; never on Windows",
            "pytest -m '' -k test_windows",
            "2026-11-29",
        ),
    ),
    runner="tvmconv.runtime.emulation.wine",
    packaged=Packaged(
        c_flags=(*_COMPILE_FLAGS, "-Wextra"),
        weights=_WEIGHTS,
        shared="{name}.dll",
        beside=("lib{name}.dll.a", "{name}.def"),
        link_flags=(*_LINK_FLAGS, "-Wl,--out-implib,lib{name}.dll.a", "-Wl,--output-def,{name}.def"),
        staying=(),
        thread_flags=_LIBRARIES,
        cmake_finds="",
        cmake_threads="synchronization",
        cmake_shared='IMPORTED_IMPLIB "${CMAKE_CURRENT_LIST_DIR}/lib{name}.dll.a"',
        has_openmp=False,
        imports_data=True,
        publish=_publish,
    ),
    libraries=_LIBRARIES,
    exports_file="exports.def",
    prefix="windows",
    ports=(
        Port(
            isa="x86-64",
            triple="x86_64-pc-windows-gnu",
            machine="AMD64",
            default="x86-64-v3",
            # They need a permission that Windows grants in another way than Linux.
            lacking=frozenset({"amx-tile", "amx-bf16", "amx-int8"}),
            cross_compilers=(f"x86_64-w64-mingw32-gcc {_ANY_ADDRESS}",),
            tools="x86_64-w64-mingw32-",
            install="apt install mingw-w64",
            emulators=("wine", "wine64"),
            detect="tvmconv.isa.x86.asked",
        ),
    ),
    prepare=prepare,
    imports=imports,
)
