"""macOS on 64-bit ARM: Mach-O, linked by ziglang. Bundles and networks are written; nothing of them was ever run."""

from __future__ import annotations

from pathlib import Path

from ..platform import Platform, Port, SystemTrial

PLATFORM = Platform(
    name="macOS",
    library_suffix=".dylib",
    compile_flags=("-std=gnu11", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Werror"),
    # What is wanted of tvm-ffi is found in the process.
    link_flags=("-dynamiclib", "-Wl,-undefined,dynamic_lookup"),
    kept="",
    services=("launcher", "shared", "pool", "no_openmp", "processors"),
    threaded=None,
    zig_suffix="",
    native=Path(__file__).with_name("native"),
    has_parts=True,
    trials=(SystemTrial("aarch64", "compiled and linked, never run", "pytest -m '' -k test_macos", "2026-11-29"),),
    runner="tvmconv.runtime.emulation.qemu",
    prefix="macos",
    ports=(
        Port(
            isa="aarch64",
            triple="arm64-apple-macos",
            machine="arm64",
            default="apple-m1",
            tools="arm64-apple-macos-",
            zig="aarch64-macos",
        ),
    ),
)
