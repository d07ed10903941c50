"""Optional arguments of a graph, which knows the way through a model's code that one kind of each takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from ..errors import InputError


class OptionalArgument(nn.Module):  # type: ignore[misc]
    """Stands in a graph where an optional argument comes in, and lets only what the graph was made for pass.

    Parameters
    ----------
    name
        The argument's name.
    example
        Its value in the example that the graph was made by.
    """

    def __init__(self, name: str, example: Any) -> None:
        super().__init__()
        self.name, self.kind = name, _kind(example)

    def forward(self, value: Any) -> None:
        """Raise InputError if a value is of another kind than the example's."""
        if _kind(value) != self.kind:
            raise InputError(
                f"{self.name} is {_kind(value)}, and was {self.kind} in the example that the model was optimized by, whose"
                " way through the model's code alone is known; give tvmconv.torch.optimize an example of each, in a list"
            )


def guard(traced: fx.GraphModule, example: list[Any]) -> None:
    """Let a graph check its optional arguments; `example` are the values of all."""
    arguments = [node for node in traced.graph.nodes if node.op == "placeholder"]
    for node, value in zip(arguments, example, strict=False):
        if node.args:  # it has a default
            path = f"_optional_{node.target}"
            traced.add_submodule(path, OptionalArgument(node.target, value))
            with traced.graph.inserting_after(arguments[-1]):
                traced.graph.call_module(path, (node,))


def _kind(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else "None" if value is None else "no tensor"
