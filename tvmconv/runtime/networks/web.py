"""Run networks compiled for browsers in Node."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UnsupportedMachineError, VerificationError
from ...isa.wasm import ISA
from ..emulation.node import find
from .tensors import Array, check_arrays, tensors_of

_RUN = Path(__file__).with_name("web_run.mjs")
# File of the description that `tvmconv compile --format web` writes, and its format.
EXPORT, FORMAT = "export.json", "tvmconv-web"


def run_web(
    folder: Path, arrays: Mapping[str, Any], features: Sequence[str], threads: int = 1, seconds: float = 600.0
) -> dict[str, Array]:
    """Return the outputs, by name, of a network for browsers, by its own script, in Node with some features and threads.

    Raises
    ------
    UnsupportedMachineError
        If there is no Node with these features.
    InputError
        If the arrays do not fit the network.
    VerificationError
        If it fails, or takes longer than `seconds`.
    """
    engine = find(ISA, frozenset(features))
    if engine is None:
        raise UnsupportedMachineError(
            f"there is no Node with {' and '.join(features)} on the PATH (Debian, Ubuntu: apt install nodejs)"
        )
    description = json.loads((folder / EXPORT).read_text())
    inputs, outputs = (tensors_of(description, which) for which in ("inputs", "outputs"))
    given = check_arrays(arrays, inputs)
    with tempfile.TemporaryDirectory(prefix="tvmconv-web-") as work:
        (Path(work) / "in").write_bytes(b"".join(each.tobytes() for each in given))
        command = [
            engine.program,
            *filter(None, [engine.cpu]),
            str(_RUN),
            str(folder.absolute() / "model.js"),
            work,
            str(threads),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise VerificationError(f"{folder} takes longer than {seconds:.3g} s in {engine.name}") from None
        if done.returncode:
            raise VerificationError(f"{folder} fails in {engine.name}: {done.stderr.strip()}")
        content, found, at = (Path(work) / "out").read_bytes(), {}, 0
        for each in outputs:
            size = int(np.prod(each.shape)) * each.numpy.itemsize
            found[each.name] = np.frombuffer(content[at : at + size], each.numpy).reshape(each.shape)
            at += size
    return found
