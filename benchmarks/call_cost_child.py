"""Networks of small layers, and one contender's calls of them; see `benchmarks.call_cost`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

CONTENDERS = ("eager", "onnxruntime", "optimize", "network", "bound")
KINDS = {"Linear": (1, 8), "convolution": (1, 8, 8, 8)}
WIDTH = 8
CALLS = 2000


@dataclass(frozen=True)
class Task:
    """A contender's call of a network of so many layers of a kind, which a folder has."""

    contender: str
    kind: str
    layers: int
    folder: str


def make(kind: str, layers: int) -> Any:
    """Return the network."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    each = {"Linear": lambda: nn.Linear(WIDTH, WIDTH), "convolution": lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1)}
    return nn.Sequential(*(each[kind]() for _ in range(layers))).eval()


def prepare(kind: str, layers: int, folder: Path) -> None:
    """Write the network for onnxruntime, and compile it."""
    import torch

    import tvmconv.torch

    model, data = make(kind, layers), torch.zeros(KINDS[kind])
    torch.onnx.export(model, (data,), str(folder / "model.onnx"), input_names=["x"], dynamo=False)
    tvmconv.torch.compile(model, data, folder / "network.so")
    tvmconv.torch.optimize(model, data, folder / "bundle", progress=None)


def call_of(task: Task) -> Callable[[], Any]:
    """Return the contender's call."""
    data, folder = np.ones(KINDS[task.kind], np.float32), Path(task.folder)
    if task.contender == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"x": data})
    if task.contender in ("network", "bound"):
        import tvmconv

        network = tvmconv.load_network(folder / "network.so")
        (name,) = (each.name for each in network.inputs)
        return (lambda: network(**{name: data})) if task.contender == "network" else network.call({name: data})
    import torch

    torch.set_grad_enabled(False)
    model, tensor = make(task.kind, task.layers), torch.tensor(data)
    if task.contender == "optimize":
        import tvmconv.torch

        model = tvmconv.torch.optimize(model, tensor, folder / "bundle", progress=None)
    return lambda: model(tensor)


def time_calls(task: Task) -> float:
    """Return the median of a process's calls, in microseconds."""
    call, times = _CALLS.get(task) or _CALLS.setdefault(task, call_of(task)), []
    for _ in range(CALLS):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return median(times) * 1e6


_CALLS: dict[Task, Callable[[], Any]] = {}
