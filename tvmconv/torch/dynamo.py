"""The backend ``"tvmconv"`` of ``torch.compile``: networks for each graph that Dynamo captures.

Dynamo guards its decisions by shapes and values, and breaks a graph where it cannot continue; symbolic sizes (``dynamic=True``) are a
network's free extents. Graphs that cannot be compiled run as they are, and operators that networks lack are PyTorch's, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch._guards import tracing
from torch.export import Dim

from ..errors import InputError, MissingExtraError, SourceError, TvmconvError, TvmconvWarning
from .computed import How, compute_model
from .flat import extent_of, flatten_arguments
from .store import Store, temporary


class _Bound(nn.Module):  # type: ignore[misc]
    """Graph with bound inputs: a model's weights and numbers, and extents of other inputs."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        fixed: dict[int, Any],
        numbers: dict[int, float],
        extents: dict[int, tuple[int, int]],
        count: int,
    ) -> None:
        super().__init__()
        self._graph, self._fixed, self._numbers, self._extents, self._count = graph, fixed, numbers, extents, count
        self.weights = nn.ParameterList(nn.Parameter(each.detach(), requires_grad=False) for each in fixed.values())
        # Dynamo's graphs generate their code on first access, which would count as a change of the model.
        _ = graph.code

    def forward(self, *args: Any) -> Any:
        """Return the graph's answer for its other inputs."""
        known: dict[int, Any] = {
            at: SimpleNamespace(item=lambda value=value: value) for at, value in self._numbers.items()
        }
        others = [
            at for at in range(self._count) if not any(at in each for each in (self._fixed, known, self._extents))
        ]
        known |= dict(zip((*self._fixed, *others), (*self.weights, *args), strict=True))
        known |= {at: known[tensor].shape[axis] for at, (tensor, axis) in self._extents.items()}
        return self._graph(*(known[at] for at in range(self._count)))


def backend(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """Return the computation of a Dynamo graph: networks, or the graph itself if there are none.

    Networks are for inference: where gradients are required, and after weights change, the graph computes. In-place changes of
    ``weight.data`` cannot be detected: call ``torch.compiler.reset()`` after them.
    """
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    fixed = {
        at: example
        for at, (node, example) in enumerate(zip(inputs, examples, strict=True))
        if "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})
    }
    numbers = {at: examples[at].item() for at, node in enumerate(inputs) if _is_number(node)}
    known = fixed.keys() | numbers.keys()
    others = [at for at, each in enumerate(examples) if at not in known and isinstance(each, torch.Tensor)]
    free = {at: _free_axes(inputs[at]) for at in others}
    try:
        extents = _extents(inputs, [at for at in range(len(examples)) if at not in known and at not in others], free)
        if _needs_gradients(examples):
            raise InputError("gradients are needed; call it under torch.no_grad() to use networks")
        if any(each.is_inference() for each in fixed.values()):
            raise InputError(
                "its weights were made in inference mode, where PyTorch counts no changes; make the model outside of it"
            )
        outputs = _outputs(graph, inputs)
        with tracing(None), torch.no_grad():
            given = tuple(examples[at].detach() for at in others)
            store = Store(temporary() / "networks")
            axes = [dict.fromkeys(free[at], Dim.DYNAMIC) for at in others]
            how = How(dynamic_shapes=(axes,) if any(axes) else None)
            bound = _Bound(graph, fixed, numbers, extents, len(examples)).eval()
            compiled = compute_model(bound, given, {}, store, how)
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
        same = same and all(args[at].item() == each for at, each in numbers.items())
        tensors = [args[at].detach() for at in others]
        if not same or (extents and not compiled.takes(*flatten_arguments(tuple(tensors), {}))):
            return graph(*args)
        answers = compiled(tensors)
        return type(answers)(_lay_out(each, like) for each, like in zip(answers, outputs, strict=True))

    return compute


def _is_number(node: torch.fx.Node) -> bool:
    """Return whether Dynamo made a tensor of a model's number, such as a normalization's epsilon with free sizes."""
    is_wrapped = getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
    return bool(is_wrapped) and all(user.op == "call_method" and user.target == "item" for user in node.users)


def _free_axes(node: torch.fx.Node) -> dict[int, Any]:
    """Return Dynamo's symbols of a tensor's extents, by axis."""
    sizes = getattr(node.meta.get("example_value"), "shape", ())
    found = {axis: size.node.expr for axis, size in enumerate(sizes) if isinstance(size, torch.SymInt)}
    return {
        axis: symbol for axis, symbol in found.items() if not symbol.is_number
    }  # numbers: code has decided by these extents


def _extents(
    inputs: Sequence[torch.fx.Node], symbols: Sequence[int], free: Mapping[int, Mapping[int, Any]]
) -> dict[int, tuple[int, int]]:
    """Return, for inputs that are symbols, the tensor and axis with that extent.

    Raises
    ------
    InputError
        If a symbol is no extent.
    """
    found = {symbol: (at, axis) for at, axes in free.items() for axis, symbol in axes.items()}
    made = {}
    for at in symbols:
        symbol = getattr(getattr(inputs[at].meta.get("example_value"), "node", None), "expr", None)
        if symbol not in found:
            raise InputError(
                f"the number {inputs[at].name} varies by call, but is not the extent of a tensor; compile for each number:"
                " torch.compile(..., dynamic=False)"
            )
        made[at] = found[symbol]
    return made


def _needs_gradients(args: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)


def _state(weight: Any) -> tuple[int, int]:
    """Return numbers that change with a weight."""
    return weight._version, weight.data_ptr()


def _outputs(graph: torch.fx.GraphModule, inputs: Sequence[torch.fx.Node]) -> list[Any]:
    """Return the example values of a graph's outputs.

    Raises
    ------
    SourceError
        If an output is a view of an input or of another output: in-place operators on it would change both, and a network's
        outputs have memory of their own.
    """
    (returned,) = next(node for node in graph.graph.nodes if node.op == "output").args
    found = [each.meta.get("example_value") if isinstance(each, torch.fx.Node) else each for each in returned]
    likes = [node.meta.get("example_value") for node in inputs] + found
    storages = [each.untyped_storage()._cdata for each in likes if isinstance(each, torch.Tensor)]
    made = [each.untyped_storage()._cdata for each in found if isinstance(each, torch.Tensor)]
    if any(storages.count(each) > 1 for each in made):
        raise SourceError("it returns a view of an input or of another output; a network's outputs are copies")
    return found


def _lay_out(answer: Any, like: Any) -> Any:
    """Return an answer with its axes in PyTorch's memory order."""
    if not isinstance(like, torch.Tensor):
        return answer
    order = sorted(range(like.ndim), key=lambda axis: extent_of(like.stride(axis)), reverse=True)
    if answer.permute(order).is_contiguous():
        return answer
    back = sorted(range(like.ndim), key=order.__getitem__)
    return answer.permute(order).contiguous().permute(back)
