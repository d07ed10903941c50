"""What one contender's process does for `benchmarks.shared_machine`: make a network ready, and time its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from tvmconv.errors import SourceError
from tvmconv.measuring.timing import sample_call

from . import onnx_network

BUNDLE, COMPILED, OPTIMIZED, OPENVINO, ONNXRUNTIME, PYTORCH = CONTENDERS = (
    "tvmconv bundle", "tvmconv compile", "tvmconv.torch", "openvino", "onnxruntime", "pytorch",
)  # fmt: skip
TORCH = (OPTIMIZED, PYTORCH)


@dataclass(frozen=True)
class Task:
    """Time `contender` on `network`, whose files are in `folder`, for about `seconds`; with 0, make it ready alone."""

    contender: str
    network: str
    folder: str
    seconds: float
    threads: int

    def __str__(self) -> str:
        return f"{self.contender} on {self.network}"


def measure(task: Task) -> float:
    """Return the mean seconds of a call: a call that waits for a processor counts in full."""
    call = _ready(task.contender, task.network, task.folder, task.threads)
    return mean(sample_call(call, task.seconds)) if task.seconds else 0.0


@lru_cache(maxsize=1)
def _ready(contender: str, network: str, folder: str, threads: int) -> Callable[[], Any]:
    if contender == BUNDLE:
        return _bundle(Path(folder) / "kernels.bundle", threads)
    if contender in TORCH:
        return _torch(contender, network, Path(folder) / "torch.bundle", threads)
    name = onnx_network.OURS if contender == COMPILED else contender
    call, _ = onnx_network.ready(name, folder, threads)
    return call


def _bundle(path: Path, threads: int) -> Callable[[], Any]:
    """Return what calls every kernel of the bundle once, with packed filters."""
    import tvmconv
    from tvmconv.fills import random_fill

    registry = tvmconv.load(path, threads=threads)
    calls = []
    for signature in registry:
        problem = tvmconv.parse_signature(signature)
        given: dict[str, Any] = dict(random_fill(problem).given())
        output = np.empty(problem.output_shape, np.float32)
        kernel: Any = registry[signature]
        given["filter"] = kernel.pack(given["filter"])
        calls.append(partial(kernel, **given, out=output))
    if not calls:
        raise SourceError(f"{path} has no kernels")

    def call() -> None:
        for each in calls:
            each()

    return call


def _torch(contender: str, network: str, bundle: Path, threads: int) -> Callable[[], Any]:
    import torch

    import tvmconv.torch

    from .models.weights import load

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model, data = load(network)
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = layouts.get(data.dim(), torch.contiguous_format)
    data = data.contiguous(memory_format=layout)
    if contender == OPTIMIZED:
        return partial(tvmconv.torch.optimize(model, data, bundle=str(bundle), progress=None), data)
    return partial(model.to(memory_format=layout), data)
