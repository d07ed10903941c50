"""Restore the state that calls change in a model, so that an optimized copy starts from the model's own state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put back what a model's calls write: attributes of its modules, lists and dicts that these are, buffers and other tensors."""
    containers: list[Any] = [vars(module) for module in model.modules()]
    containers += [value for each in containers for value in each.values() if type(value) in (dict, list)]
    held = [(each, each.copy()) for each in containers]
    values = {id(value): value for each in containers for value in (each.values() if isinstance(each, dict) else each)}
    tensors = [(value, value._version, value.detach().clone()) for value in values.values() if _may_change(value)]
    try:
        yield
    finally:
        for container, kept in held:
            if isinstance(container, list):
                container[:] = kept
            elif container.keys() != kept.keys() or any(container[name] is not kept[name] for name in kept):
                container.clear()
                container.update(kept)
        with torch.no_grad():
            for tensor, version, copy in tensors:
                if tensor._version != version:
                    tensor.copy_(copy)


def _may_change(value: Any) -> bool:
    """Whether a value is a tensor of no training, and counts its changes."""
    return isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter) and not value.is_inference()
