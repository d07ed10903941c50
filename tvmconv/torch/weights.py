"""Compute weights once that parametrizations or hooks, such as norms and masks, compute in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.spectral_norm import SpectralNorm, remove_spectral_norm
from torch.nn.utils.weight_norm import WeightNorm, remove_weight_norm

from .rewritten import copied_model

# Hooks that compute a weight in each call: the attribute with the weight's name, and the function that removes the hook.
_HOOKS: tuple[tuple[type, str, Callable[[nn.Module, str], Any]], ...] = (
    (WeightNorm, "name", remove_weight_norm),
    (SpectralNorm, "name", remove_spectral_norm),
    (prune.BasePruningMethod, "_tensor_name", prune.remove),
)


def with_fixed_weights(model: nn.Module) -> nn.Module:
    """Return a copy of a model with the computed weights of its norms and masks; the model itself if it has none."""
    if not any(_is_parametrized(module) or _hooks(module) for module in model.modules()):
        return model
    plain = copied_model(model)
    with torch.no_grad():
        for module in list(plain.modules()):
            if _is_parametrized(module):
                _fix_parametrized(module)
            for name, remove in _hooks(module):
                remove(module, name)
    return plain


def _is_parametrized(module: nn.Module) -> bool:
    """Return whether parametrizations compute a module's parameters, with the same values in each call."""
    if module.training or not parametrize.is_parametrized(module):
        return False
    if any(each.training for parameter in module.parametrizations.values() for each in parameter):
        return False
    computed = []
    for seed in (0, 1):
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            computed.append([getattr(module, name).clone() for name in module.parametrizations])
    return all(map(torch.equal, *computed))


def _hooks(module: nn.Module) -> list[tuple[str, Callable[[nn.Module, str], Any]]]:
    """Return the names of weights that hooks compute in each call, and the functions that remove these hooks."""
    if module.training:
        return []
    return [
        (getattr(hook, name), remove)
        for hook in module._forward_pre_hooks.values()
        for kind, name, remove in _HOOKS
        if isinstance(hook, kind)
    ]


def _fix_parametrized(module: Any) -> None:
    weights = {name: getattr(module, name).detach().clone() for name in module.parametrizations}
    # Not by remove_parametrizations, which changes the class that the original model shares.
    module.__class__ = parametrize.type_before_parametrizations(module)
    del module.parametrizations
    for name, weight in weights.items():
        setattr(module, name, nn.Parameter(weight))
