"""The C compilers, which link kernels and build the program that measures the machine's peak.

A missing or failing program is a ToolchainError.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from ..errors import ToolchainError
from ..isa import Isa, unless_native
from .timing import stage

_COMPILERS = ("cc", "gcc", "clang")
# A Python package that has a C compiler for every instruction set and platform.
ZIG = "ziglang"
# Warning of WebAssembly's linker, which replaces such a function by a trap; Ziglang passes on no flag to make it an error.
_MISMATCH = "function signature mismatch"


def find_compiler(isa: Isa | None = None) -> tuple[str, ...]:
    """Return the command of the C compiler for an instruction set; None: this machine's."""
    foreign = unless_native(isa)
    commands = [each.split() for each in (foreign.cross_compilers if foreign else _COMPILERS)]
    names = [name for name, *_ in commands]
    for name, *flags in commands:
        found = shutil.which(name)
        if found:
            return (found, *flags)
    if foreign and foreign.zig and find_spec(ZIG) is not None:
        return sys.executable, "-m", ZIG, "cc", "-target", foreign.zig
    if foreign and not names:
        raise ToolchainError(
            f"there is no C compiler for {foreign.name}: there is no Python package {ZIG}; install it (pip install {ZIG})"
        )
    if foreign:
        package, install = (
            (f", and there is no Python package {ZIG}", f"; or pip install {ZIG}") if foreign.zig else ("", "")
        )
        raise ToolchainError(
            f"there is no C compiler for {foreign.name}: {', '.join(names)} is not on the PATH{package}; "
            f"install one (Debian, Ubuntu: {foreign.install}{install}), or build on such a machine"
        )
    raise ToolchainError(
        f"there is no C compiler: none of {', '.join(_COMPILERS)} is on the PATH; "
        "install one, with OpenMP (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc)"
    )


def find_tool(name: str, isa: Isa | None = None) -> str:
    """Return the path of a tool of binutils for an instruction set; None: this machine's."""
    foreign = unless_native(isa)
    found = shutil.which(f"{foreign.tools}{name}" if foreign else name)
    if found is None:
        raise ToolchainError(
            f"there is no {name} for {foreign.name} on the PATH, {foreign.tools}{name}; install it (Debian, Ubuntu: {foreign.install})"
            if foreign
            else f"there is no {name} on the PATH; install binutils (Debian, Ubuntu: apt install binutils)"
        )
    return found


def has_compiler(isa: Isa) -> bool:
    """Return whether there is a C compiler for an instruction set."""
    try:
        find_compiler(isa)
    except ToolchainError:
        return False
    return True


def has_tool(name: str, isa: Isa | None = None) -> bool:
    """Return whether there is a tool of binutils for an instruction set; None: this machine's."""
    try:
        find_tool(name, isa)
    except ToolchainError:
        return False
    return True


def run_compiler(arguments: tuple[str, ...], folder: Path, isa: Isa | None = None) -> None:
    """Run the C compiler for an instruction set, None: this machine's, in `folder`."""
    command = (*find_compiler(isa), *arguments)
    with stage("link"):
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode or _MISMATCH in result.stderr:
        raise ToolchainError(
            f"the C compiler failed ({' '.join(command)}), with:\n{(result.stderr or result.stdout).strip()}\n"
            "tvmconv needs a C compiler with OpenMP (Debian, Ubuntu: apt install gcc libc6-dev)"
        )


def run_tool(name: str, arguments: tuple[str, ...], folder: Path, isa: Isa | None = None) -> None:
    """Run a tool of binutils for an instruction set, None: this machine's, in `folder`."""
    command = (find_tool(name, isa), *arguments)
    with stage("link"):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolchainError(
            f"{command[0]} failed ({' '.join(command)[:500]}), with:\n{(done.stderr or done.stdout).strip()}"
        )


def prepare_object(path: Path, isa: Isa) -> None:
    """Convert an object file, LLVM's or several linked into one, for its platform's tools."""
    prepare = isa.platform.prepare
    if prepare is not None:
        path.write_bytes(prepare(path.read_bytes()))


def select_symbols(
    source: str,
    output: str,
    keep: Iterable[str],
    folder: Path,
    isa: Isa | None = None,
    renamed: Mapping[str, str] | None = None,
    stripped: str = "",
) -> None:
    """Write an object file whose only global symbols match the patterns `keep`.

    Parameters
    ----------
    source, output
        Files in `folder`.
    isa
        Its instruction set; None: this machine's.
    renamed
        Symbols to rename first, by their old names.
    stripped
        A flag of ``objcopy`` that removes other symbols, or debug information.
    """
    select = isa.platform.select if isa else None
    if select is not None:
        (folder / output).write_bytes(select((folder / source).read_bytes(), renamed or {}, tuple(keep)))
        return
    names = (f"--redefine-sym={old}={new}" for old, new in (renamed or {}).items())
    kept = (f"--keep-global-symbol={each}" for each in keep)
    run_tool("objcopy", ("--wildcard", *[stripped] * bool(stripped), *names, *kept, source, output), folder, isa)


def has_selection(isa: Isa) -> bool:
    """Return whether `select_symbols` works for an instruction set."""
    return isa.platform.select is not None or has_tool("objcopy", isa)


def supply_libraries(folder: Path, isa: Isa) -> tuple[str, ...]:
    """Write a platform's stub libraries for the linker into `folder`; return their names."""
    supplied = isa.platform.supplied
    for name, text in supplied.items():
        (folder / f"{name}.s").write_text(text)
        run_compiler(("-shared", "-nostdlib", f"-Wl,-soname,{name}", f"{name}.s", "-o", name), folder, isa)
    return tuple(supplied)


def ffi_includes() -> tuple[str, ...]:
    """Return the C compiler's flags for tvm-ffi's headers."""
    from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

    return tuple(f"-I{folder}" for folder in (find_include_path(), find_dlpack_include_path()))
