"""The web: self-contained WebAssembly modules with one thread; with workers, a second link has several."""

from __future__ import annotations

from pathlib import Path

from ..platform import Platform, SystemTrial, Threaded

# The stack, as large as a thread's in a library for C, is at address 0, so an overflow traps instead of overwriting data.
_LINK_FLAGS = (
    "-mexec-model=reactor",
    "-O2",
    "-Wl,--export-dynamic",
    "-Wl,--strip-debug",
    "-Wl,--gc-sections",
    "-Wl,-z,stack-size=2097152",
)
# Flags for a module that imports shared memory, with all 32-bit addresses.
_THREADED_FLAGS = (
    "-mcpu=generic+atomics+bulk_memory",
    "-Wl,--shared-memory",
    "-Wl,--import-memory",
    "-Wl,--initial-memory=16777216",
    "-Wl,--max-memory=4294901760",
)
# Names of the allocator with a lock (services.c).
_LOCKED = ("-Dmalloc=tvmconv_malloc", "-Dfree=tvmconv_free")
_KEPT = """\
.section .custom_section.{section},"",@
.incbin "{file}"
"""


PLATFORM = Platform(
    name="WebAssembly",
    library_suffix=".wasm",
    compile_flags=("-std=gnu11", "-O2", "-g0", "-fvisibility=hidden", "-mbulk-memory", "-Wall", "-Werror", *_LOCKED),
    link_flags=_LINK_FLAGS,
    kept=_KEPT,
    services=("launcher", "services", "alone", "no_openmp"),
    threaded=Threaded(("launcher", "services", "workers", "no_openmp"), ("-matomics",), _THREADED_FLAGS),
    zig_suffix="",
    native=Path(__file__).with_name("native"),
    has_parts=False,
    trials=(
        SystemTrial("WebAssembly", "kernels and networks in Node 20 and Chromium", "pytest -k test_web", "2026-11-29"),
    ),
    runner="tvmconv.runtime.emulation.node",
)
