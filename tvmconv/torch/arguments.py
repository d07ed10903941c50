"""Arguments of a graph that are neither tensors nor numbers: the path through a model's code may depend on them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx.proxy import TraceError

from ..errors import InputError

_SEQUENCES, _MAPPINGS = (list, tuple), (dict, OrderedDict)


class Argument(nn.Module):  # type: ignore[misc]
    """Guards such an argument in a graph: only the kind of value that the graph was traced with is accepted.

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


class Given:
    """What a model's code is given while it is traced.

    None, a bool and a text are given as they are; of a tuple or a dict there is one of what stands for its parts. Of a list,
    too, if `lists` is true: the model's own argument may have another length in the next call, as a list of images.
    """

    def __init__(self, lists: bool) -> None:
        self._sequences = _SEQUENCES if lists else (tuple,)
        self._made: list[tuple[Any, list[Any]]] = []

    def __call__(self, proxy: Any, value: Any) -> Any:
        """Return what is given for an argument, which `proxy` stands for, and whose value in the example is `value`."""
        if value is None or isinstance(value, (bool, str)):
            return value
        if type(value) in self._sequences:
            made = type(value)([self(proxy[number], part) for number, part in enumerate(value)])
        elif type(value) in _MAPPINGS:
            made = type(value)([(key, self(proxy[key], part)) for key, part in value.items()])
        else:
            return proxy
        self._made.append((made, _parts(made)))
        return made

    def check(self) -> None:
        """Raise TraceError if the code wrote to a list or a dict that it was given, which a graph would not."""
        for made, parts in self._made:
            now = _parts(made)
            if len(now) != len(parts) or any(part is not was for part, was in zip(now, parts, strict=True)):
                raise TraceError(f"the code writes to a {type(made).__name__} that it is given")


def guard(traced: fx.GraphModule, example: Sequence[Any], lists: bool) -> None:
    """Let a graph check its arguments that are optional, or no tensors or numbers; `example` are the values of all.

    `lists` is as for :class:`Given`.
    """
    arguments = [node for node in traced.graph.nodes if node.op == "placeholder"]
    for node, value in zip(arguments, example, strict=False):
        if node.target.startswith("*") or (isinstance(value, list) and not lists):
            continue
        if node.args or _kind(value) not in (_TENSOR, _OTHER):
            path = f"_argument_{node.target}"
            traced.add_submodule(path, Argument(node.target, value))
            with traced.graph.inserting_after(arguments[-1]):
                traced.graph.call_module(path, (node,))


_TENSOR, _OTHER = "a tensor", "no tensor"


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return _TENSOR
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if type(value) in _SEQUENCES:
        return f"a {type(value).__name__} of {', '.join(map(_kind, value)) or 'nothing'}"
    if type(value) in _MAPPINGS:
        parts = (f"{key!r} ({_kind(part)})" for key, part in value.items())
        return f"a {type(value).__name__} of {', '.join(parts) or 'nothing'}"
    return _OTHER


def _parts(made: Any) -> list[Any]:
    return [each for item in made.items() for each in item] if isinstance(made, dict) else [*made]
