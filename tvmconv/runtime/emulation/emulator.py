"""`Emulator`: runs a library's functions that this machine cannot run itself."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import VerificationError
from ...isa import Isa

# DLPack's codes of types, by NumPy's kinds.
_CODES = {"i": 0, "u": 1, "f": 2}
# The functions of a library, and for each the arrays that it takes, of which it writes the last.
EmulatedCall = tuple[str, Sequence["np.ndarray[Any, Any]"]]


@dataclass(frozen=True)
class Emulator:
    """Program that runs code of another instruction set here.

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

    def prepare(self, work: Path) -> list[str]:
        """Write the program that calls a library's functions into a folder; return its command, which takes a library and a text of calls."""
        raise NotImplementedError

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
            outputs = self._write(work, calls)
            command = [*self.prepare(work), str(library.absolute()), "calls"]
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
        """Write the arrays of calls, and the text of calls that `runner.c` reads; return the outputs."""
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
