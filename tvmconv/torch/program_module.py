"""Graphs of `torch.export` as modules: of programs, and of what pt2e made of them."""

from __future__ import annotations

from typing import Any

from torch import fx, nn
from torch.export import ExportedProgram


def as_module(model: Any) -> Any:
    """Return a program, or the module of one, as a module in inference mode; anything else as it is."""
    graph = model.module() if isinstance(model, ExportedProgram) else model
    # Modules of programs have an `eval` of their own, which refuses: they are for inference, or for training, as they were exported.
    return ProgramModule(graph).eval() if isinstance(graph, fx.GraphModule) and "eval" in vars(graph) else model


class ProgramModule(nn.Module):  # type: ignore[misc]
    """A graph, in a module whose calls can be answered by others: those of a graph are its code's."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.graph_module = graph

    def eval(self) -> ProgramModule:
        """Programs are for inference or for training as they were exported, and refuse to be changed."""
        self.training = False
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the graph does."""
        return self.graph_module(*args, **kwargs)
