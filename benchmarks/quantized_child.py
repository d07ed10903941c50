"""What one contender's process does: make a quantised network, or its float model, ready and time it; see `benchmarks.quantized`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from .machine import CLOCKS
from .quantized_files import FLOAT, INT8, MODELS
from .rest import take_turn

LIBRARIES = ("onnxruntime", "openvino")
PEERS = tuple((library, kind) for kind in (INT8, FLOAT) for library in LIBRARIES)


@dataclass(frozen=True)
class Turn:
    """Time a contender: a library, and one of `OURS`, of the network in `folder`."""

    library: str
    kind: str
    folder: str
    seconds: float
    threads: int
    clock: str

    def __str__(self) -> str:
        return f"{self.library} {self.kind} on {Path(self.folder).name}"


def measure(turn: Turn) -> list[float]:
    """Return samples of the seconds that a call takes; none, if a peer cannot read its model."""
    try:
        call = _ready(turn.library, turn.kind, turn.folder, turn.threads)
    except Exception as error:
        if (turn.library, turn.kind) not in PEERS:
            raise
        print(f"{turn}: {error}", file=sys.stderr)
        return []
    return take_turn(call, turn.seconds, CLOCKS[turn.clock])


@lru_cache(maxsize=1)
def _ready(library: str, kind: str, folder: str, threads: int) -> Callable[[], Any]:
    """Return the call."""
    path = Path(folder)
    data, model = np.load(path / "input.npy"), str(path / MODELS[kind])
    if library == "onnxruntime":
        from .onnx_network import _onnxruntime

        return _onnxruntime(model, data, threads)
    if library == "openvino":
        from .onnx_network import _openvino

        return _openvino(model, data, threads)
    from tvmconv.runtime.networks.network import load_network

    network = load_network(path / f"{kind}.so")
    return network.call({network.inputs[0].name: data})
