"""`Emulator`: runs functions of a library that this machine cannot run natively."""

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
# A function's name and its arrays, the last of which it writes.
EmulatedCall = tuple[str, Sequence["np.ndarray[Any, Any]"]]


@dataclass(frozen=True)
class Emulator:
    """Program that runs code of another instruction set on this machine.

    Attributes
    ----------
    isa
        The instruction set.
    program
        The emulator's path.
    cpu
        The emulated CPU, by the emulator's name: one with no more features than a kernel may use, if there is such.
    name
        Its name in manifests: the emulator, its version and the CPU.
    """

    isa: Isa
    program: str
    cpu: str
    name: str

    def prepare(self, work: Path) -> list[str]:
        """Write the program that calls functions into a folder; return its command, without its arguments: library and calls."""
        raise NotImplementedError

    def run(self, library: Path, calls: Sequence[EmulatedCall], seconds: float, threads: int | None = None) -> None:
        """Call functions of a library one after the other, in one process, with `threads` threads or one for each processor.

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
                # Later calls read what earlier ones wrote.
                file = files.setdefault(id(array), str(len(files)))
                if not (work / file).exists():
                    (work / file).write_bytes(np.ascontiguousarray(array).tobytes())
                type_ = f"{_CODES[array.dtype.kind]} {8 * array.dtype.itemsize}"
                lines.append(f"{type_} {array.ndim} {' '.join(map(str, array.shape))} {file}")
            outputs.append((work / files[id(arrays[-1])], arrays[-1]))
        (work / "calls").write_text("\n".join(lines) + "\n")
        return outputs
