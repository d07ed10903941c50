"""The backend ``"tvmconv"`` of ``torch.compile``: each graph that Dynamo finds as one library.

Dynamo guards what it decided by shapes and values, and breaks a graph where it cannot go on; what it gives has fixed shapes
but for those that it made symbols of. Graphs that are not compiled run as they are, with a warning.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._guards import tracing

from ..errors import InputError, MissingExtraError, TvmconvError, TvmconvWarning
from .compiled import compile

_VERSION = operator.attrgetter("_version")


class _Bound(nn.Module):  # type: ignore[misc]
    """A graph with those of its inputs that are a model's weights."""

    def __init__(self, graph: nn.Module, fixed: dict[int, Any], count: int) -> None:
        super().__init__()
        self._graph, self._fixed, self._count = graph, fixed, count
        self.weights = nn.ParameterList(nn.Parameter(each.detach(), requires_grad=False) for each in fixed.values())

    def forward(self, *args: Any) -> Any:
        given, weights = iter(args), dict(zip(self._fixed, self.weights, strict=True))
        return self._graph(*(weights[at] if at in weights else next(given) for at in range(self._count)))


def backend(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """Return what computes a graph of Dynamo's: a compiled library, or the graph itself where there is none.

    A library is for inference: where gradients are asked for, and after weights change, the graph computes.
    """
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    fixed = {
        at: example
        for at, (node, example) in enumerate(zip(inputs, examples, strict=True))
        if "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})
    }
    others = [at for at in range(len(examples)) if at not in fixed]
    try:
        if not all(isinstance(examples[at], torch.Tensor) for at in others):
            raise InputError("Dynamo made symbols of sizes; compile for fixed ones: torch.compile(..., dynamic=False)")
        with tracing(None), torch.no_grad():
            given = tuple(examples[at].detach() for at in others)
            compiled = compile(_Bound(graph, fixed, len(examples)).eval(), given, progress=None)
    except MissingExtraError:
        raise
    except TvmconvError as error:
        warnings.warn(
            f"PyTorch computes a graph of {len(graph.graph.nodes)} nodes: {error}", TvmconvWarning, stacklevel=2
        )
        return graph
    weights = [*fixed.values()]
    versions = [*map(_VERSION, weights)]

    def compute(*args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args):
            return graph(*args)
        same = all(args[at] is each for at, each in fixed.items()) and [*map(_VERSION, weights)] == versions
        return compiled(*(args[at] for at in others)) if same else graph(*args)

    return compute
