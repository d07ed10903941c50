"""Race a compiled network and the library that runs its model, in turns, each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, last_line

ROUNDS = 5


@dataclass(frozen=True)
class Contender:
    """Measurements of one library.

    Parameters
    ----------
    seconds
        Median of its calls.
    start
        Seconds from the start of its process to the first answer.
    resident
        Bytes of memory after that answer.
    """

    name: str
    seconds: float
    start: float
    resident: int


@dataclass(frozen=True)
class Contest:
    """The contenders, the network first, and the largest differences of an output between them: relative (L2), and of one element."""

    contenders: tuple[Contender, ...]
    difference: float
    largest: float


class _Process:
    """A process of `contender`, which has answered once."""

    def __init__(self, name: str, file: str, inputs: Path, threads: int, outputs: Path) -> None:
        module = f"{__package__}.contender"
        command = [sys.executable, "-m", module, name, file, str(inputs), str(threads), str(outputs)]
        # A process whose messages filled a pipe that nobody reads would wait for ever.
        self._messages = outputs.with_suffix(".txt")
        begin = time.perf_counter()
        with self._messages.open("w") as messages:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, text=True
            )
        self.name, self.outputs = name, outputs
        self.resident = self._answer()["resident"]
        self.start = time.perf_counter() - begin

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            why = self._messages.read_text().strip().splitlines() or ["it ended"]
            raise InputError(f"{self.name} cannot run this: {why[-1]}")
        return json.loads(line)

    def samples(self, seconds: float) -> list[float]:
        """Return the seconds that calls took."""
        assert self._process.stdin
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return list(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def peer_of(model: str) -> str:
    """Return the library that runs a model: OpenVINO its IR (.xml), onnxruntime others."""
    return "openvino" if Path(model).suffix.lower() == ".xml" else "onnxruntime"


def race(network: str, model: str, arrays: Mapping[str, Any], threads: int, seconds: float) -> Contest:
    """Race a network and the library that runs its model.

    Parameters
    ----------
    network, model
        The files: of the network, and the ONNX model or IR.
    arrays
        Inputs of both, by name.
    threads
        Number of threads of each.
    seconds
        Time to spend on each, in `ROUNDS` turns.

    Raises
    ------
    InputError
        If one of them cannot answer, or they have other outputs.
    """
    import numpy as np

    peer = peer_of(model)
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        try:
            np.savez(inputs, allow_pickle=False, **arrays)
        except (TypeError, ValueError) as error:
            raise InputError(f"{peer} takes no inputs of these types: {last_line(error)}") from error
        processes: list[_Process] = []
        try:
            for name, file in (("tvmconv", network), (peer, model)):
                processes.append(_Process(name, file, inputs, threads, Path(folder) / f"{name}.npz"))
            samples: list[list[float]] = [[], []]
            for _ in range(ROUNDS):
                for found, process in zip(samples, processes, strict=True):
                    found += process.samples(seconds / ROUNDS)
            ours, theirs = (dict(np.load(process.outputs)) for process in processes)
        finally:
            for process in processes:
                process.close()
    if missing := sorted(set(ours) ^ set(theirs)):
        raise InputError(f"the network and the model differ in their outputs: {', '.join(missing)}")
    contenders = (
        Contender(process.name, statistics.median(found), process.start, process.resident)
        for process, found in zip(processes, samples, strict=True)
    )
    differences = [_difference(ours[name], theirs[name], peer) for name in ours]
    relative, largest = map(max, zip((0.0, 0.0), *differences, strict=True))
    return Contest(tuple(contenders), relative, largest)


def _difference(ours: Any, theirs: Any, peer: str) -> tuple[float, float]:
    """Return the relative difference (L2) of two answers, and the largest of an element."""
    import numpy as np

    if ours.shape != theirs.shape:
        raise InputError(
            f"an output has the shape {ours.shape}, and {peer}'s {theirs.shape}; give the model that the network was compiled from"
        )
    size = float(np.linalg.norm(theirs.astype(np.float64)))
    apart = ours.astype(np.float64) - theirs.astype(np.float64)
    distance = float(np.linalg.norm(apart))
    return distance / size if size else distance, float(np.abs(apart).max(initial=0.0))
