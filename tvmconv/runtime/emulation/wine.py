"""Windows programs under Wine, natively on this CPU; `runner.c` loads a library and calls its functions."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from ...isa import Isa, isa_named, native
from ...isa.machine import missing_features
from ...support.toolchain import ffi_includes, has_compiler, run_compiler
from .emulator import Emulator

_RUNNER = Path(__file__).parent / "runner.c"
# Name of the DLL from which libraries import tvm-ffi's functions.
_FFI = "tvm_ffi.dll"
_MAIN = "int run(int count, char** words);\nint main(int count, char** words) { return run(count, words); }\n"


class WineSystem(Emulator):
    """Wine, on this machine's own CPU."""

    def prepare(self, work: Path) -> list[str]:
        """Write the program that calls functions of a library into a folder; return its command."""
        for name, content in _runner(self.isa).items():
            (work / name).write_bytes(content)
        return [self.program, "runner.exe"]


def find(isa: Isa, features: frozenset[str]) -> Emulator | None:
    """Return Wine if it is installed and this CPU has `features`; None: the code cannot run here."""
    program = next(filter(None, map(shutil.which, isa.emulators)), None)
    is_own = isa.port is not None and isa_named(isa.port.isa) is native()
    if program is None or not is_own or not has_compiler(isa) or missing_features(features - set(isa.platform.marks)):
        return None
    return WineSystem(isa, program, "", _version(program))


@cache
def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return said.split()[0] if said.split() else Path(program).name


@cache
def _runner(isa: Isa) -> dict[str, bytes]:
    """Return the files of the program that calls kernels."""
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        work = Path(folder)
        (work / "main.c").write_text(_MAIN)
        flags = ("-std=gnu11", "-O1", "-Wno-attributes", *ffi_includes())
        run_compiler((*flags, "-Dmain=run", "-shared", str(_RUNNER), "-o", _FFI), work, isa)
        run_compiler((*flags, "main.c", _FFI, "-o", "runner.exe"), work, isa)
        return {name: (work / name).read_bytes() for name in (_FFI, "runner.exe")}
