"""The web: modules of WebAssembly, which need nothing of their surroundings; one thread."""

from __future__ import annotations

from pathlib import Path

from ..platform import Platform, SystemTrial, Threaded

# The stack, as large as that of threads of a library for C, lies first: one that is too small then ends in an error, and not in other data.
_LINK_FLAGS = (
    "-mexec-model=reactor",
    "-O2",
    "-Wl,--export-dynamic",
    "-Wl,--strip-debug",
    "-Wl,--gc-sections",
    "-Wl,-z,stack-size=2097152",
)
# Flags for a module whose memory is the page's, with as many addresses as there are.
_THREADED_FLAGS = (
    "-mcpu=generic+atomics+bulk_memory",
    "-Wl,--shared-memory",
    "-Wl,--import-memory",
    "-Wl,--initial-memory=16777216",
    "-Wl,--max-memory=4294901760",
)
# Names of an allocator with a lock (services.c).
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
    services=("launcher", "services", "alone"),
    threaded=Threaded(("launcher", "services", "workers"), ("-matomics",), _THREADED_FLAGS),
    zig_suffix="",
    native=Path(__file__).with_name("native"),
    has_parts=False,
    trials=(
        SystemTrial("WebAssembly", "kernels and networks in Node 20 and Chromium", "pytest -k test_web", "2026-11-29"),
    ),
    runner="tvmconv.runtime.emulation.node",
)
