"""Restore the state that calls change in a model, so that an optimized copy starts from the model's own state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake

from ..frontends.torch.memory import place
from .objects import KINDS

# Relative rounding error of numbers that each call computes again, such as the norm of a normalized weight.
_ROUNDING = 1e-5
_HELD = ("_parameters", "_buffers", "_modules")
_NOT_OF_MODELS = ("builtins", "torch", "tvmconv")
_FACTS = ("shape", "dtype", "layout", "device")
# A tensor's path, itself, its version, and its content or memory before the calls.
_Held = tuple[tuple[str, ...], torch.Tensor, int | None, torch.Tensor]


@contextmanager
def put_back(model: nn.Module) -> Iterator[dict[str, bool]]:
    """Restore the state that a model's calls write: attributes of modules, objects, lists and dicts within, and tensors.

    Yields
    ------
    dict
        Filled at the end: for each written name, whether its value is as before, but for rounding.
    """
    containers = _containers(model)
    held = [(path, each, each.copy()) for path, each in containers.items()]
    tensors, parameters = _hold_tensors(containers)
    written: dict[str, bool] = {}
    try:
        yield written
    finally:
        for path, container, kept in held:
            written.update(_restore_container(path, container, kept))
        with torch.no_grad():
            for path, tensor, version, copy in tensors:
                if tensor._version != version:
                    written[_name(path)] = is_same(tensor, copy)
                    tensor.copy_(copy)
            for path, parameter, version, kept in parameters:
                if version is not None and parameter._version != version:  # its previous values were not copied
                    written[_name(path)] = True
                if place(parameter) != place(kept):  # `data` was set
                    written[_name(path)] = is_same(parameter.detach(), kept)
                    parameter.data = kept


def _containers(model: nn.Module) -> dict[tuple[str, ...], Any]:
    """Return the attributes of a model's modules, and the objects, lists and dicts within, by their paths."""
    own = {(*path.split("."), ""): vars(module) for path, module in model.named_modules()}
    containers: dict[tuple[str, ...], Any] = dict(own)
    todo, seen = [*own.items()], {*map(id, own.values())}
    while todo:
        path, of = todo.pop()
        for name, each in _parts(of):
            container = _container(each)
            if container is not None and id(container) not in seen:
                seen.add(id(container))
                inside = (*path[:-1], name) if path in own and name in _HELD else (*path[:-1], str(name), "")
                containers[inside] = container
                todo.append((inside, container))
    return containers


def _hold_tensors(containers: dict[tuple[str, ...], Any]) -> tuple[list[_Held], list[_Held]]:
    """Return the tensors that may change with copies, and the parameters without."""
    tensors, parameters = {}, {}
    for path, container in containers.items():
        for name, value in _parts(container):
            if _may_change(value):
                tensors[id(value)] = ((*path[:-1], str(name)), value, value._version, value.detach().clone())
            elif isinstance(value, nn.Parameter):
                version = None if value.is_inference() else value._version
                parameters[id(value)] = ((*path[:-1], str(name)), value, version, value.detach())
    return [*tensors.values()], [*parameters.values()]


def _restore_container(path: tuple[str, ...], container: Any, kept: Any) -> dict[str, bool]:
    """Restore the content of a container; return for each changed name whether its value is the same but for rounding."""
    if not isinstance(container, dict):
        if len(container) == len(kept) and all(map(_is, container, kept)):
            return {}
        is_equal = is_same([*container], [*kept])
        container.clear()
        (container.update if isinstance(container, set) else container.extend)(kept)
        return {_name(path): is_equal}
    if container.keys() == kept.keys() and all(container[name] is each for name, each in kept.items()):
        return {}
    changed = {name for name in container.keys() | kept.keys() if container.get(name) is not kept.get(name)}
    written = {
        _name((*path[:-1], str(name))): is_same(container.get(name), kept.get(name))
        for name in sorted(changed, key=str)
    }
    container.clear()
    container.update(kept)
    return written


def _parts(container: Any) -> Iterable[tuple[Any, Any]]:
    """Return the entries of a container by their names, or their numbers."""
    return container.items() if isinstance(container, dict) else enumerate(container)


def _container(value: Any) -> Any:
    """Return a value's container of writable parts: the value itself, or an object's attributes."""
    if type(value) in (dict, list, set, deque):
        return value
    if isinstance(value, (nn.Module, torch.Tensor, Enum)):
        return None
    if type(value).__module__.partition(".")[0] in _NOT_OF_MODELS:
        return None
    attributes = getattr(value, "__dict__", None)
    return attributes if isinstance(attributes, dict) else None


def _is(one: Any, other: Any) -> bool:
    return one is other


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal but for rounding."""
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
