"""Restore the state that calls change in a model, so that an optimized copy starts from the model's own state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake

from ..frontends.torch.memory import address
from .objects import KINDS

# Relative change by rounding of numbers that are computed anew in each call, as a norm of a weight that was normalized before.
_ROUNDING = 1e-5
_FACTS = ("shape", "dtype", "layout", "device")


@contextmanager
def put_back(model: nn.Module) -> Iterator[dict[str, bool]]:
    """Put back what a model's calls write: attributes of its modules, lists and dicts that these are, and tensors.

    Yields
    ------
    dict
        At the end, by the names of what they wrote, whether it is the same as before, but for rounding.
    """
    own = {(*path.split("."), ""): vars(module) for path, module in model.named_modules()}
    containers: dict[tuple[str, ...], Any] = dict(own)
    for path, attributes in own.items():
        containers |= {(*path[:-1], name): each for name, each in attributes.items() if type(each) in (dict, list)}
    held = [(path, each, each.copy()) for path, each in containers.items()]
    tensors, parameters = {}, {}
    for path, each in containers.items():
        for name, value in each.items() if isinstance(each, dict) else enumerate(each):
            if _may_change(value):
                tensors[id(value)] = ((*path[:-1], str(name)), value, value._version, value.detach().clone())
            elif isinstance(value, nn.Parameter):
                version = None if value.is_inference() else value._version
                parameters[id(value)] = ((*path[:-1], str(name)), value, version, value.detach())
    written: dict[str, bool] = {}
    try:
        yield written
    finally:
        for path, container, kept in held:
            if isinstance(container, list):
                if not (len(container) == len(kept) and all(map(_is, container, kept))):
                    written[_name(path)] = is_same(container, kept)
                container[:] = kept
            elif container.keys() != kept.keys() or any(container[name] is not kept[name] for name in kept):
                changed = {name for name in container.keys() | kept.keys() if container.get(name) is not kept.get(name)}
                for name in sorted(changed, key=str):
                    written[_name((*path[:-1], str(name)))] = is_same(container.get(name), kept.get(name))
                container.clear()
                container.update(kept)
        with torch.no_grad():
            for path, tensor, version, copy in tensors.values():
                if tensor._version != version:
                    written[_name(path)] = is_same(tensor, copy)
                    tensor.copy_(copy)
            for path, parameter, version, kept in parameters.values():
                if version is not None and parameter._version != version:  # nobody keeps a copy of what it was
                    written[_name(path)] = True
                if address(parameter) != address(kept):  # `data` was set
                    written[_name(path)] = is_same(parameter.detach(), kept)
                    parameter.data = kept


def _is(one: Any, other: Any) -> bool:
    return one is other


def is_same(one: Any, other: Any) -> bool:
    """Return whether a value is what another is, but for rounding."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return not (is_fake(one) or is_fake(other)) and _is_same_tensor(one, other)
    if isinstance(one, nn.Module):
        return is_same(vars(one), vars(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, (*KINDS, set, torch.dtype, torch.device)) and bool(one == other)


def _is_same_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.layout is not torch.strided or any(getattr(one, each) != getattr(other, each) for each in _FACTS):
        return False
    if torch.equal(one, other):
        return True
    error = (one.double() - other.double()).norm() if one.dim() and one.is_floating_point() else torch.inf
    return bool(error <= _ROUNDING * other.double().norm())


def _name(path: tuple[str, ...]) -> str:
    return ".".join(filter(None, path))


def _may_change(value: Any) -> bool:
    """Return whether a value is a tensor of no training, and counts its changes."""
    return isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter) and not value.is_inference()
