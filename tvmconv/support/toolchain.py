"""The machine's C compiler: it links kernels, and builds the program that measures the machine's peak."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ..errors import ToolchainError

_COMPILERS = ("cc", "gcc", "clang")


def find_compiler() -> str:
    """Return the path of the C compiler.

    Raises
    ------
    ToolchainError
        If there is none.
    """
    for name in _COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise ToolchainError(
        f"there is no C compiler: none of {', '.join(_COMPILERS)} is on the PATH; "
        "install one, with OpenMP (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc)"
    )


def run_compiler(arguments: tuple[str, ...], folder: Path) -> None:
    """Run the C compiler in `folder`.

    Raises
    ------
    ToolchainError
        If there is none, or it fails.
    """
    command = (find_compiler(), *arguments)
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ToolchainError(
            f"the C compiler failed ({' '.join(command)}), with:\n{(result.stderr or result.stdout).strip()}\n"
            "tvmconv needs a C compiler with OpenMP (Debian, Ubuntu: apt install gcc libc6-dev)"
        )
