"""Android: ELF, linked by ziglang against stubs of its C library's (bionic's) functions. Never run on a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..linux import PLATFORM as LINUX
from ..platform import Port, SystemTrial
from .bionic import API, LIBRARIES

# Bionic has no ELF TLS before Android 10, so the compiler emulates it (emutls.c).
_C_FLAGS = ("-femulated-tls", "-U_FORTIFY_SOURCE", "-fno-stack-protector")
# Newer devices have pages of 16 KiB; Android before 6 read the SysV hash table, and lint demands both tables.
_LINK_FLAGS = ("-nostdlib", "-Wl,-z,max-page-size=16384", "-Wl,--hash-style=both", "-Wl,-z,defs")
_PACKAGED = LINUX.packaged
assert _PACKAGED is not None

PLATFORM = replace(
    LINUX,
    name="Android",
    compile_flags=(*LINUX.compile_flags, *_C_FLAGS),
    link_flags=(*(each for each in LINUX.link_flags if not each.startswith("-Wl,--hash-style")), *_LINK_FLAGS),
    services=("launcher", "shared", "pool", "no_openmp", "processors", "emutls"),
    native=Path(__file__).with_name("native"),
    trials=(
        SystemTrial(
            "aarch64, x86-64",
            "kernels, networks, C: compiled and linked, never run there",
            "pytest -m '' -k test_android",
            "2026-11-29",
        ),
    ),
    packaged=replace(
        _PACKAGED,
        c_flags=(*_PACKAGED.c_flags, *_C_FLAGS),
        services=("emutls",),
        link_flags=(*_PACKAGED.link_flags, *_LINK_FLAGS),
        thread_flags=(),  # they are in its C library
        cmake_finds="",
        cmake_threads="",
        has_openmp=False,
    ),
    prefix="android",
    supplied=LIBRARIES,
    ports=tuple(
        Port(
            isa=isa,
            triple=f"{machine}-linux-android{API}",
            machine=f"{machine} on Android",
            default=cpu,
            lacking=lacking,
            tools=f"{machine}-linux-gnu-",
            install=f"apt install binutils-{machine.replace('_', '-')}-linux-gnu",
            zig=f"{machine}-linux-musl",  # musl's types have bionic's sizes: threads.h
        )
        for isa, machine, cpu, lacking in (
            ("aarch64", "aarch64", "cortex-a53", ()),
            ("x86-64", "x86_64", "x86-64-v3", ("amx-tile", "amx-bf16", "amx-int8")),
        )
    ),
)
