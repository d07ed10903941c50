"""macOS on 64-bit ARM: Mach-O, linked by ziglang. Never run on a Mac."""

from __future__ import annotations

from pathlib import Path

from ..platform import Packaged, Platform, Port, SystemTrial
from .macho import publish, select

# Symbols of a library for C stay visible until its objects are linked into one, which drops hidden symbols.
_C_FLAGS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Werror")
# A segment of its own; Mach-O has no sections that are not loaded.
_KEPT = """\
.section __TVMCONV,__object,regular,no_dead_strip
.incbin "{file}"
"""
_WEIGHTS = """\
.section __TEXT,__const
.p2align 12
.globl _tvmconv_network_weights
_tvmconv_network_weights:
.incbin "weights.bin"
"""

PLATFORM = Platform(
    name="macOS",
    library_suffix=".dylib",
    compile_flags=(*_C_FLAGS, "-fvisibility=hidden"),
    # tvm-ffi's symbols are resolved at load time.
    link_flags=("-dynamiclib", "-Wl,-undefined,dynamic_lookup"),
    kept=_KEPT,
    services=("launcher", "shared", "pool", "no_openmp", "processors"),
    threaded=None,
    zig_suffix="",
    native=Path(__file__).with_name("native"),
    has_parts=True,
    trials=(
        SystemTrial(
            "aarch64",
            "kernels, networks, C: compiled and linked, never run",
            "pytest -m '' -k test_macos",
            "2026-11-29",
        ),
    ),
    runner="tvmconv.runtime.emulation.qemu",
    packaged=Packaged(
        c_flags=(*_C_FLAGS, "-Wextra"),
        weights=_WEIGHTS,
        services=("absent",),
        archive_flags=("--format=darwin", "rcsD"),
        shared="lib{name}.dylib",
        beside=(),
        link_flags=("-dynamiclib", "-Wl,-install_name,@rpath/lib{name}.dylib"),
        staying=(),
        thread_flags=(),
        cmake_finds="",
        cmake_threads="",
        cmake_shared='IMPORTED_SONAME "@rpath/lib{name}.dylib"',
        has_openmp=False,
        imports_data=False,
        publish=publish,
    ),
    relocatable_flags=("-r",),
    select=select,
    prefix="macos",
    ports=(
        Port(
            isa="aarch64",
            triple="arm64-apple-macos11",
            machine="arm64",
            default="apple-m1",
            tools="llvm-",
            install="apt install llvm",
            zig="aarch64-macos.11.0",
            detect="tvmconv.isa.aarch64.sysctl",
        ),
    ),
)
