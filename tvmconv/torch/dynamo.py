"""The backend ``"tvmconv"`` of ``torch.compile``: each graph that Dynamo finds by networks.

Dynamo guards what it decided by shapes and values, and breaks a graph where it cannot go on; what it gives has fixed shapes
but for those that it made symbols of. Graphs that are not compiled run as they are, and operators that networks lack are
PyTorch's, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._guards import tracing

from ..errors import InputError, MissingExtraError, SourceError, TvmconvError, TvmconvWarning
from .computed import How, compute_model
from .store import Store, temporary


class _Bound(nn.Module):  # type: ignore[misc]
    """A graph with those of its inputs that are a model's weights."""

    def __init__(self, graph: nn.Module, fixed: dict[int, Any], count: int) -> None:
        super().__init__()
        self._graph, self._fixed, self._count = graph, fixed, count
        self.weights = nn.ParameterList(nn.Parameter(each.detach(), requires_grad=False) for each in fixed.values())

    def forward(self, *args: Any) -> Any:
        """Return what the graph does of its other inputs."""
        given, weights = iter(args), dict(zip(self._fixed, self.weights, strict=True))
        return self._graph(*(weights[at] if at in weights else next(given) for at in range(self._count)))


def backend(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """Return what computes a graph of Dynamo's: networks, or the graph itself where there are none.

    Networks are for inference: where gradients are asked for, and after weights change, the graph computes. What ``weight.data``
    changes in place cannot be seen: call ``torch.compiler.reset()`` then.
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
        if _needs_gradients(examples):
            raise InputError("gradients are asked for; call it under torch.no_grad() for networks")
        outputs = _outputs(graph, inputs)
        with tracing(None), torch.no_grad():
            given = tuple(examples[at].detach() for at in others)
            store = Store(temporary() / "networks")
            compiled = compute_model(_Bound(graph, fixed, len(examples)).eval(), given, {}, store, How())
    except MissingExtraError:
        raise
    except TvmconvError as error:
        warnings.warn(
            f"PyTorch computes a graph of {len(graph.graph.nodes)} nodes: {error}", TvmconvWarning, stacklevel=2
        )
        return graph
    if foreign := [f"{row.computes}: {row.why}" for row in compiled.rows if row.why]:
        warnings.warn(
            f"PyTorch computes {len(foreign)} operators between networks: {'; '.join(foreign)}",
            TvmconvWarning,
            stacklevel=2,
        )
    weights = [*fixed.values()]
    states = [*map(_state, weights)]

    def compute(*args: Any) -> Any:
        if _needs_gradients(args):
            return graph(*args)
        same = all(args[at] is each for at, each in fixed.items()) and [*map(_state, weights)] == states
        if not same:
            return graph(*args)
        answers = compiled([args[at].detach() for at in others])
        return type(answers)(_lay_out(each, like) for each, like in zip(answers, outputs, strict=True))

    return compute


def _needs_gradients(args: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)


def _state(weight: Any) -> tuple[int, int]:
    """Return numbers that are others when a weight has changed."""
    return weight._version, weight.data_ptr()


def _outputs(graph: torch.fx.GraphModule, inputs: Sequence[torch.fx.Node]) -> list[Any]:
    """Return what a graph's outputs are like.

    Raises
    ------
    SourceError
        If one is a view of an input or of another: what works in place on it would change that, too, and a network's are new.
    """
    (returned,) = next(node for node in graph.graph.nodes if node.op == "output").args
    found = [each.meta.get("example_value") if isinstance(each, torch.fx.Node) else each for each in returned]
    likes = [node.meta.get("example_value") for node in inputs] + found
    storages = [each.untyped_storage()._cdata for each in likes if isinstance(each, torch.Tensor)]
    made = [each.untyped_storage()._cdata for each in found if isinstance(each, torch.Tensor)]
    if any(storages.count(each) > 1 for each in made):
        raise SourceError("it returns a view of what it is given, or of another answer; a network's answers are copies")
    return found


def _lay_out(answer: Any, like: Any) -> Any:
    """Return an answer whose axes lie in memory in the order in which PyTorch's do."""
    if not isinstance(like, torch.Tensor) or answer.stride() == like.stride():
        return answer
    order = sorted(range(like.ndim), key=like.stride, reverse=True)
    back = sorted(range(like.ndim), key=order.__getitem__)
    return answer.permute(order).contiguous().permute(back)
