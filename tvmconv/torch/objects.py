"""Objects in answers that hold tensors, such as a language model's keys and values, as trees for PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

# Types of arguments and answers besides tensors.
KINDS = (bool, int, float, str, type(None))
# Types without attributes, which are recreated from a text.
_BY_NAME = (torch.dtype, torch.device, type)
# Types whose parts are no attributes, or that do more than hold attributes.
_OTHERS = (nn.Module, dict, list, tuple, set, frozenset, BaseException)


class Held:
    """Parts of an object: the name of its class, and its attributes.

    Attributes
    ----------
    of
        The class, as its module and its name in it.
    parts
        The attributes; for types that are recreated from a text, that text.
    """

    def __init__(self, of: list[str], parts: dict[str, Any]) -> None:
        self.of, self.parts = of, parts


pytree.register_pytree_node(
    Held,
    lambda held: ([*held.parts.values()], [held.of, [*held.parts]]),
    lambda values, context: Held(context[0], dict(zip(context[1], values, strict=True))),
    serialized_type_name="tvmconv.torch.objects.Held",
)


def take_apart(answer: Any, within: tuple[Any, ...] = ()) -> Any:
    """Return an answer whose objects are replaced by their attributes, if they can be recreated from these."""

    def leaf(value: Any) -> Any:
        if isinstance(value, (torch.Tensor, *KINDS)):
            return value
        if isinstance(value, _BY_NAME):
            text = f"{value.__module__}:{value.__qualname__}" if isinstance(value, type) else str(value)
            return Held(_name(next(kind for kind in _BY_NAME if isinstance(value, kind))), {"": text})
        if not _is_plain(value) or any(each is value for each in within):
            return value
        return Held(
            _name(type(value)), {name: take_apart(each, (*within, value)) for name, each in vars(value).items()}
        )

    return pytree.tree_map(leaf, answer)


def put_together(answer: Any) -> Any:
    """Return an answer with its objects recreated."""
    return pytree.tree_map(lambda each: _make(each) if isinstance(each, Held) else each, answer, is_leaf=_is_held)


def _is_held(value: Any) -> bool:
    return isinstance(value, Held)


def _make(held: Held) -> Any:
    if list(held.parts) == [""]:
        kind, text = _class(held.of), held.parts[""]
        if kind is torch.dtype:
            return getattr(torch, text.removeprefix("torch."))
        return torch.device(text) if kind is torch.device else _class(text.split(":"))
    made = object.__new__(_class(held.of))
    vars(made).update({name: put_together(each) for name, each in held.parts.items()})
    return made


def _is_plain(value: Any) -> bool:
    """Return whether an object consists of its attributes, and its class can be found by name."""
    kind = type(value)
    if isinstance(value, _OTHERS) or not hasattr(value, "__dict__"):
        return False
    if any("__new__" in vars(base) for base in kind.__mro__[:-1]):
        return False
    slots: Iterable[str] = (name for base in kind.__mro__ for name in vars(base).get("__slots__", ()))
    if set(slots) - {"__dict__", "__weakref__"}:
        return False
    try:
        return _class(_name(kind)) is kind
    except (ImportError, AttributeError):  # a class within a function
        return False


def _name(kind: type) -> list[str]:
    return [kind.__module__, kind.__qualname__]


def _class(of: list[str]) -> Any:
    return reduce(getattr, of[1].split("."), import_module(of[0]))
