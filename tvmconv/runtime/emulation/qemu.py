"""Programs of another instruction set under QEMU; `runner.c` loads a library and calls its functions."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from ...errors import ToolchainError
from ...isa import Isa
from ...support.toolchain import find_compiler, run_compiler
from .emulator import Emulator

_RUNNER = Path(__file__).parent / "runner.c"


class QemuCpu(Emulator):
    """QEMU with one of its CPUs."""

    def command(self, program: str | Path, *arguments: str | Path) -> list[str]:
        """Return the command that runs a program with the cross compiler's C library."""
        return [self.program, "-cpu", self.cpu, "-L", _sysroot(self.isa), str(program), *map(str, arguments)]

    def prepare(self, work: Path) -> list[str]:
        """Write the program that calls functions of a library into a folder; return its command."""
        (work / "runner").write_bytes(_runner(self.isa))
        (work / "runner").chmod(0o700)
        return self.command("./runner")


def find(isa: Isa, features: frozenset[str]) -> Emulator | None:
    """Return QEMU for an instruction set, with the least CPU that has `features` (Linux's names); None if there is none."""
    found = _find(isa)
    if found is None:
        return None
    program, version, cpus = found
    cpu = next((name for name, has in isa.emulated_cpus if name in cpus and features <= has), None)
    return None if cpu is None else QemuCpu(isa, program, cpu, f"{version}, -cpu {cpu}")


@cache
def _find(isa: Isa) -> tuple[str, str, frozenset[str]] | None:
    """Return the path of an instruction set's emulator, its name and version, and its CPUs; None if it or a C library is missing."""
    program = next(filter(None, map(shutil.which, isa.emulators)), None)
    if program is None:
        return None
    try:
        _sysroot(isa)
    except ToolchainError:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"(\S+) version (\S+)", said)
    listed = subprocess.run([program, "-cpu", "help"], capture_output=True, text=True, check=False).stdout
    name = f"{version[1]} {version[2]}" if version else Path(program).name
    return program, name, frozenset(listed.split())


@cache
def _sysroot(isa: Isa) -> str:
    """Return the folder whose ``lib`` has the cross compiler's C library.

    Raises
    ------
    ToolchainError
        If there is no compiler, or it has no shared C library.
    """
    command = (*find_compiler(isa), "-print-file-name=libc.so.6")
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if not Path(said).is_absolute():
        raise ToolchainError(
            f"{command[0]} has no C library for {isa.name}; install one (Debian, Ubuntu: {isa.install})"
        )
    return str(Path(said).resolve().parents[1])


@cache
def _runner(isa: Isa) -> bytes:
    """Return the program that calls kernels."""
    from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

    includes = (f"-I{find_include_path()}", f"-I{find_dlpack_include_path()}")
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        flags = ("-std=gnu11", "-O1", "-rdynamic", *includes, str(_RUNNER), "-o", "runner", "-ldl")
        run_compiler(flags, Path(folder), isa)
        return (Path(folder) / "runner").read_bytes()
