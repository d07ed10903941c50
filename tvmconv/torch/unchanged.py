"""Restore the state that calls change in a model, so that an optimized copy starts from the model's own state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def unchanged(model: nn.Module) -> Iterator[list[str]]:
    """Put back what a model's calls write: attributes of its modules, lists and dicts that these are, buffers and other tensors.

    Yields
    ------
    list of str
        At the end, the names of what they wrote.
    """
    own = {(*path.split("."), ""): vars(module) for path, module in model.named_modules()}
    containers: dict[tuple[str, ...], Any] = dict(own)
    for path, attributes in own.items():
        containers |= {(*path[:-1], name): each for name, each in attributes.items() if type(each) in (dict, list)}
    held = [(path, each, each.copy()) for path, each in containers.items()]
    tensors = {}
    for path, each in containers.items():
        for name, value in each.items() if isinstance(each, dict) else enumerate(each):
            if _may_change(value):
                tensors[id(value)] = ((*path[:-1], str(name)), value, value._version, value.detach().clone())
    written: list[str] = []
    try:
        yield written
    finally:
        for path, container, kept in held:
            if isinstance(container, list):
                if not (len(container) == len(kept) and all(map(_is, container, kept))):
                    written.append(_name(path))
                container[:] = kept
            elif container.keys() != kept.keys() or any(container[name] is not kept[name] for name in kept):
                changed = {name for name in container.keys() | kept.keys() if container.get(name) is not kept.get(name)}
                written += [_name((*path[:-1], str(name))) for name in sorted(changed, key=str)]
                container.clear()
                container.update(kept)
        with torch.no_grad():
            for path, tensor, version, copy in tensors.values():
                if tensor._version != version:
                    written.append(_name(path))
                    tensor.copy_(copy)


def _is(one: Any, other: Any) -> bool:
    return one is other


def _name(path: tuple[str, ...]) -> str:
    return ".".join(filter(None, path))


def _may_change(value: Any) -> bool:
    """Whether a value is a tensor of no training, and counts its changes."""
    return isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter) and not value.is_inference()
