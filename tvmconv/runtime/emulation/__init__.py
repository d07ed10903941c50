"""Kernels of another instruction set, run under an emulator (QEMU) by a small program, `runner.c`.

What they compute shows whether they are right; how long they take says nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ToolchainError, VerificationError
from ...isa import Isa
from ...support.toolchain import find_compiler, run_compiler
from ..bundle import Bundle, BundleTarget, Entry
from ..kernel import Kernel
from ..selection import foreign_isa, obstacle

_RUNNER = Path(__file__).parent / "runner.c"
# DLPack's codes of types, by NumPy's kinds.
_CODES = {"i": 0, "u": 1, "f": 2}
# A call that takes longer hangs; an emulator does so many operations in a second at least.
CALL_SECONDS, EMULATED_FLOPS = 60.0, 2e7
# The functions of a library, and for each the arrays that it takes, of which it writes the last.
EmulatedCall = tuple[str, Sequence["np.ndarray[Any, Any]"]]


@dataclass(frozen=True)
class Emulator:
    """Emulator that runs programs of another instruction set here.

    Attributes
    ----------
    isa
        That instruction set.
    program
        The emulator's path.
    cpu
        The CPU that it emulates, by its own name: one with no more instructions than a kernel may use, where it has one.
    name
        What manifests say: the emulator, its version, and that CPU.
    """

    isa: Isa
    program: str
    cpu: str
    name: str

    def command(self, program: str | Path, *arguments: str | Path) -> list[str]:
        """Return the command that runs a program, which finds the cross compiler's C library."""
        return [self.program, "-cpu", self.cpu, "-L", _sysroot(self.isa), str(program), *map(str, arguments)]

    def run(self, library: Path, calls: Sequence[EmulatedCall], seconds: float, threads: int | None = None) -> None:
        """Call functions of a library one after the other, in one process; by so many threads, or one a processor.

        Raises
        ------
        VerificationError
            If one crashes, fails, or takes longer than `seconds` in all.
        ToolchainError
            If the C compiler fails.
        """
        with tempfile.TemporaryDirectory(prefix="tvmconv-emulated-") as folder:
            work = Path(folder)
            (work / "runner").write_bytes(_runner(self.isa))
            (work / "runner").chmod(0o700)
            outputs = self._write(work, calls)
            command = self.command("./runner", library, "calls")
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads)} if threads else None
            try:
                done = subprocess.run(
                    command,
                    cwd=work,
                    env=environment,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise VerificationError(f"it takes longer than {seconds:.3g} s under {self.name}") from None
            if done.returncode:
                said = done.stderr.strip() or f"exit code {done.returncode}"
                raise VerificationError(f"it does not run under {self.name}: {said}")
            for path, array in outputs:
                np.copyto(array, np.fromfile(path, array.dtype).reshape(array.shape))

    def _write(self, work: Path, calls: Sequence[EmulatedCall]) -> list[tuple[Path, np.ndarray[Any, Any]]]:
        """Write the arrays of calls, and what `runner.c` reads of them; return the outputs."""
        files: dict[int, str] = {}
        lines, outputs = [], []
        for symbol, arrays in calls:
            lines.append(f"{symbol} {len(arrays)}")
            for array in arrays:
                # One that a call has written is what the next one reads.
                file = files.setdefault(id(array), str(len(files)))
                if not (work / file).exists():
                    (work / file).write_bytes(np.ascontiguousarray(array).tobytes())
                type_ = f"{_CODES[array.dtype.kind]} {8 * array.dtype.itemsize}"
                lines.append(f"{type_} {array.ndim} {' '.join(map(str, array.shape))} {file}")
            outputs.append((work / files[id(arrays[-1])], arrays[-1]))
        (work / "calls").write_text("\n".join(lines) + "\n")
        return outputs


class EmulatedKernel(Kernel):
    """A kernel whose functions run under an emulator, each call in a process of its own."""

    def __init__(self, bundle: Bundle, entry: Entry, emulator: Emulator) -> None:
        super().__init__(bundle, entry)
        self._emulator = emulator
        self._seconds = CALL_SECONDS + self.problem.flops / EMULATED_FLOPS

    def _load(self, symbol: str, openmp: bool = False) -> Callable[..., object]:
        return partial(self._emulate, symbol)

    def _emulate(self, symbol: str, *arrays: np.ndarray[Any, Any]) -> None:
        self._emulator.run(self._bundle.library(self.info), [(symbol, arrays)], self._seconds)


def kernel_here(bundle: Bundle, entry: Entry) -> Kernel | None:
    """Return a kernel for a CPU as this machine runs it, itself or under an emulator; None if neither does."""
    target = bundle.targets[entry.target]
    if obstacle(target) is None:
        return Kernel(bundle, entry)
    emulator = find_emulator(target)
    return EmulatedKernel(bundle, entry, emulator) if emulator else None


def find_emulator(target: BundleTarget) -> Emulator | None:
    """Return what runs a target's code that is of another instruction set than this machine's; None if nothing does."""
    isa = foreign_isa(target)
    if isa is None:
        return None
    found = _find(isa)
    if found is None:
        return None
    program, version, cpus = found
    needed = set(target.features)
    cpu = next((name for name, has in isa.emulated_cpus if name in cpus and needed <= has), None)
    return None if cpu is None else Emulator(isa, program, cpu, f"{version}, -cpu {cpu}")


@cache
def _find(isa: Isa) -> tuple[str, str, frozenset[str]] | None:
    """Return the path of an instruction set's emulator, its name with its version, and its CPUs; None if a part is missing."""
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
    """Return the folder that has the C library of the cross compiler, in ``lib``.

    Raises
    ------
    ToolchainError
        If there is no compiler, or it has no C library that programs run with.
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
