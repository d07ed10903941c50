"""Linux: ELF, linked by the C compiler, with threads of its own pool or OpenMP's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..platform import Platform

# Build-id and debug sections are left out: they carry nothing a caller needs, and so cannot differ between two builds.
# nodelete: OpenMP's idle workers wait inside its library, which must therefore outlive the last kernel; and a GPU
# that kernels were loaded on keeps them.
_LINK_FLAGS = (
    "-shared",
    "-Wl,--build-id=none",
    "-Wl,--strip-all",
    "-Wl,-Bsymbolic",  # every library has functions of these names: its calls must reach its own
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
# A Python package that has a C compiler for every instruction set has the symbols of each glibc, too.
OLDEST_GLIBC = "2.17"


def _exports(names: Sequence[str]) -> str:
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
    runner="tvmconv.runtime.emulation.qemu",
)
