"""The process of `benchmarks.optimized`: call a model, optimize it, and report the memory of both."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import torch

import tvmconv.torch

from .start_child import memory
from .zoo_networks import load


@dataclass(frozen=True)
class Task:
    """Optimize a network of the zoo, its networks in `folder`."""

    network: str
    folder: str
    memory: str | None
    keeps: bool
    exported: bool = False

    def __str__(self) -> str:
        return f"optimizing {self.network}"


def added(task: Task) -> tuple[float, float, float]:
    """Return MiB: the weights, the resident memory before, and the memory added."""
    model, inputs = load(task.network)
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            model(*inputs)
        if task.exported:
            torch.export.export(torch.nn.ReLU(), inputs).run_decompositions()
        weights = sum(each.nbytes for each in (*model.parameters(), *model.buffers())) / 2**20
        gc.collect()
        before = memory()["resident"]
        fast = tvmconv.torch.optimize(model, inputs, bundle=task.folder, memory=task.memory, keep_weights=task.keeps)
        if not task.keeps:
            del model
        for _ in range(2):
            fast(*inputs)
        gc.collect()
        return weights, before, memory()["resident"] - before
