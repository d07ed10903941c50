"""Linux: ELF, linked by the C compiler, with the threads of our pool or OpenMP's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..platform import Packaged, Platform, SystemTrial
from .elf import make_visible

# No build-id and debug sections: callers do not need them, and builds are reproducible.
# nodelete: OpenMP's idle workers wait in code that must outlive the last kernel, and kernels loaded on a GPU stay there.
_LINK_FLAGS = (
    "-shared",
    "-Wl,--build-id=none",
    "-Wl,--strip-all",
    "-Wl,-Bsymbolic",  # every library defines the same names, and must call its own
    "-Wl,--hash-style=gnu",
    "-Wl,--as-needed",
    "-Wl,-z,nodelete",
    "-fno-use-linker-plugin",
    "-Wl,--version-script=exports.map",
)
_KEPT = """\
.section {section},"",@progbits
.incbin "{file}"
.section .note.GNU-stack,"",@progbits
"""
# The Python package ziglang, a C compiler for every instruction set, has the symbol versions of each glibc.
OLDEST_GLIBC = "2.17"
# Flags for libraries that link with any C library: without glibc's checks.
_C_FLAGS = (
    *("-std=gnu11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"),
    *("-U_FORTIFY_SOURCE", "-fno-stack-protector", "-fno-asynchronous-unwind-tables"),
)
_SHARED_FLAGS = (
    *("-shared", "-Wl,-soname,lib{name}.so", "-Wl,-Bsymbolic", "-Wl,--build-id=none", "-Wl,--as-needed", "-Wl,-z,defs"),
    *("-Wl,-s", "-Wl,--version-script=exports.map"),
)
_WEIGHTS = """\
.section .rodata.weights,"a",@progbits
.balign 4096
.globl tvmconv_network_weights
.hidden tvmconv_network_weights
.type tvmconv_network_weights,@object
.size tvmconv_network_weights,{bytes}
tvmconv_network_weights:
.incbin "weights.bin"
.section .note.GNU-stack,"",@progbits
"""


def _exports(names: Sequence[str], objects: Sequence[Path]) -> str:
    return f"{{ global: {' '.join(f'{name};' for name in names)} local: *; }};\n"


PLATFORM = Platform(
    name="Linux",
    library_suffix=".so",
    compile_flags=("-std=gnu11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"),
    link_flags=_LINK_FLAGS,
    exports=_exports,
    kept=_KEPT,
    services=("launcher", "shared", "pool", "openmp", "processors"),
    threaded=None,
    zig_suffix=f".{OLDEST_GLIBC}",
    native=Path(__file__).with_name("native"),
    has_parts=True,
    trials=(
        SystemTrial("x86-64", "the whole suite", "make test", "2026-11-29"),
        SystemTrial(
            "aarch64", "kernels and networks under QEMU; never on a machine", "pytest -k aarch64", "2026-11-29"
        ),
    ),
    runner="tvmconv.runtime.emulation.qemu",
    packaged=Packaged(
        c_flags=_C_FLAGS,
        weights=_WEIGHTS,
        shared="lib{name}.so",
        beside=(),
        link_flags=_SHARED_FLAGS,
        staying=("-Wl,-z,nodelete",),
        thread_flags=("-pthread",),
        cmake_finds="find_package(Threads REQUIRED)\n",
        cmake_threads="Threads::Threads",
        cmake_shared="IMPORTED_SONAME lib{name}.so",
        has_openmp=True,
        imports_data=False,
        publish=make_visible,
    ),
    relocatable_flags=("-r", "-nostdlib", "-Wl,-z,noexecstack"),
)
