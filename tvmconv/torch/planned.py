"""`PlannedGraph`: a torch.fx.GraphModule whose segments are computed by plans, wherever it computes tensors at once."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn

from .planning import Planner
from .segments import segments


class PlannedGraph(fx.GraphModule):  # type: ignore[misc]
    """A graph whose segments are computed by plans. Its graph and its modules may change: it is planned again.

    Whoever traces it sees the graph as it is.
    """

    def recompile(self) -> Any:
        """Make the code of the graph again, and plan it."""
        code = super().recompile()
        kind = type(self)
        traced = kind.forward
        planned = _planned_code(self)

        @functools.wraps(traced)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return traced(self, *args, **kwargs)
            return planned(self, *args, **kwargs)

        kind.forward = forward
        return code

    def __reduce__(self) -> tuple[Any, ...]:
        function, arguments = super().__reduce__()
        return _restore, (function, arguments, self._non_persistent_buffers_set, plain_attributes(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> PlannedGraph:
        copied: PlannedGraph = super().__deepcopy__(memo)
        copied.__dict__.update(plain_attributes(self, copied))
        return _without_state(copied, self._non_persistent_buffers_set)


def with_plans(model: nn.Module) -> nn.Module:
    """Let the graphs in a model, and the one that it may be, be computed by plans; return it."""
    made: dict[int, nn.Module] = {}  # one that stands in several places stays one
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, fx.GraphModule) and not isinstance(child, PlannedGraph):
                if id(child) not in made:
                    made[id(child)] = with_plans(child)
                setattr(parent, name, made[id(child)])
    if type(model).__mro__[1] is not fx.GraphModule:  # each has a class of its own
        return model
    planned = PlannedGraph(model, model.graph, type(model).__name__)
    planned.__dict__.update(model.__dict__)  # what its graph does not name, too
    return planned


def plain_attributes(module: nn.Module, copied: nn.Module | None = None) -> dict[str, Any]:
    """Return a module's own attributes that are numbers, texts, or lists of such, but for those that a copy of it has."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and _is_plain(value) and not hasattr(copied, name)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _restore(
    function: Callable[..., Any], arguments: Sequence[Any], names: set[str], attributes: dict[str, Any]
) -> nn.Module:
    graph = function(*arguments)
    graph.__dict__.update((name, value) for name, value in attributes.items() if not hasattr(graph, name))
    return with_plans(_without_state(graph, names))


def _without_state(graph: Any, names: set[str]) -> Any:
    """Return a graph whose state has no buffers of these names: torch.fx makes buffers of all tensors that it copies."""
    graph._non_persistent_buffers_set = set(names)
    return graph


def _planned_code(root: PlannedGraph) -> Callable[..., Any]:
    """Return the function that a graph is, each of its segments one call in it."""
    found = segments(root.graph, dict(root.named_modules(remove_duplicate=False)))
    ends = {segment.nodes[-1]: segment for segment in found}
    inside = {node for segment in found for node in segment.nodes}
    graph = fx.Graph()
    values: dict[Any, Any] = {}
    for node in root.graph.nodes:
        if node not in inside:
            values[node] = graph.node_copy(node, values.__getitem__)
        elif node in ends:
            segment = ends[node]
            inputs = tuple(values[each] for each in segment.inputs)
            outputs = graph.call_function(_as_function(Planner(segment, root)), inputs)
            for number, output in enumerate(segment.outputs):
                values[output] = graph.call_function(operator.getitem, (outputs, number))
    code = graph.python_code("self")
    names: dict[str, Any] = dict(code.globals)
    exec(compile(code.src, "<plan>", "exec", dont_inherit=True), names)
    forward: Callable[..., Any] = names["forward"]
    return forward


def _as_function(planner: Planner) -> Callable[..., Any]:
    """Return a function, which a graph calls."""

    def segment(*inputs: Any) -> Sequence[Any]:
        return planner(inputs)

    return segment
