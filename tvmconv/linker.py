"""Link what `tvm.compile` returns into a self-contained shared library.

The library holds the kernel and `runtime/launcher.c` and needs only tvm-ffi, OpenMP and libc. The same
kernel gives the same bytes, wherever and whenever it is linked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from .errors import ToolchainError

# Only what a caller looks up is visible. TVM's runtime, when it is in the process, fills the launcher's
# four slots of every library it can find them in; hidden, they stay ours.
_EXPORTS = "{ global: __tvm_ffi_*; local: *; };\n"
# As build-id and debug sections carry nothing a caller needs, they cannot differ between two builds.
# nodelete: OpenMP's idle workers wait inside its library, which must therefore outlive the last kernel.
_LINK_FLAGS = (
    "-shared",
    "-fopenmp",
    "-Wl,--build-id=none",
    "-Wl,--strip-all",
    "-Wl,--hash-style=gnu",
    "-Wl,--as-needed",
    "-Wl,-z,nodelete",
    "-fno-use-linker-plugin",
)
_COMPILE_FLAGS = ("-std=gnu11", "-O2", "-g0", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-Wall", "-Werror")
_COMPILERS = ("cc", "gcc", "clang")


def link(executable: Any, path: str | os.PathLike[str]) -> None:
    """Write the shared library of a compiled module.

    Parameters
    ----------
    executable
        What ``tvm.compile(module, target)`` returns for a CPU target, with one function,
        ``tvmconv_kernel``.
    path
        Where the library goes; an existing file is replaced whole.

    Raises
    ------
    ToolchainError
        If there is no C compiler, or it fails.
    """
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix=".link-", dir=path.parent) as folder:
        work = Path(folder)
        executable.mod.write_to_file(str(work / "kernel.o"))
        (work / "launcher.o").write_bytes(_launcher_object())
        (work / "exports.map").write_text(_EXPORTS)
        # Names relative to the folder: its own name must not reach the linker.
        command = (*_LINK_FLAGS, "-Wl,--version-script=exports.map", "-o", "kernel.so", "kernel.o", "launcher.o")
        _run(command, work)
        os.replace(work / "kernel.so", path)


@cache
def _launcher_object() -> bytes:
    """Compile runtime/launcher.c, once a process."""
    from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

    includes = (f"-I{find_include_path()}", f"-I{find_dlpack_include_path()}")
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        work = Path(folder)
        (work / "launcher.c").write_bytes(files("tvmconv.runtime").joinpath("launcher.c").read_bytes())
        _run((*_COMPILE_FLAGS, *includes, "-c", "launcher.c", "-o", "launcher.o"), work)
        return (work / "launcher.o").read_bytes()


@cache
def _compiler() -> str:
    for name in _COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise ToolchainError(
        f"there is no C compiler: none of {', '.join(_COMPILERS)} is on the PATH; "
        "install one, with OpenMP (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc)"
    )


def _run(arguments: tuple[str, ...], folder: Path) -> None:
    command = (_compiler(), *arguments)
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if result.returncode:
        raise ToolchainError(
            f"the C compiler failed ({' '.join(command)}), with:\n{(result.stderr or result.stdout).strip()}\n"
            "tvmconv needs a C compiler with OpenMP (Debian, Ubuntu: apt install gcc libc6-dev)"
        )
