"""Weights that norms of PyTorch compute, by parametrizations or by hooks as before them, are computed once."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.spectral_norm import SpectralNorm, remove_spectral_norm
from torch.nn.utils.weight_norm import WeightNorm, remove_weight_norm

_PARAMETRIZATIONS = (parametrizations._WeightNorm, parametrizations._SpectralNorm, parametrizations._Orthogonal)
# What computes a weight in each call, and what takes it away again.
_HOOKS = {WeightNorm: remove_weight_norm, SpectralNorm: remove_spectral_norm}


def with_fixed_weights(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose weights are those that its norms give; the model itself, if it has none."""
    if not any(_is_parametrized(module) or _hooks(module) for module in model.modules()):
        return model
    # What hooks computed with gradients cannot be copied, and nobody reads it before it is computed again.
    computed = [getattr(module, hook.name) for module in model.modules() for hook in _hooks(module)]
    plain = copy.deepcopy(model, {id(weight): weight.detach() for weight in computed})
    with torch.no_grad():
        for module in list(plain.modules()):
            if _is_parametrized(module):
                _fix_parametrized(module)
            for hook in _hooks(module):
                _HOOKS[type(hook)](module, hook.name)
    return plain


def _is_parametrized(module: nn.Module) -> bool:
    """Whether parametrizations of PyTorch's own, and no others, compute the parameters."""
    if module.training or not parametrize.is_parametrized(module):
        return False
    made_by = [each for parameter in module.parametrizations.values() for each in parameter]
    return all(type(each) in _PARAMETRIZATIONS and not each.training for each in made_by)


def _hooks(module: nn.Module) -> list[Any]:
    """Return the hooks that compute the weights in each call."""
    if module.training:
        return []
    return [hook for hook in module._forward_pre_hooks.values() if type(hook) in _HOOKS]


def _fix_parametrized(module: Any) -> None:
    weights = {name: getattr(module, name).detach().clone() for name in module.parametrizations}
    # By hand: remove_parametrizations changes the class, which the model itself has, too.
    module.__class__ = parametrize.type_before_parametrizations(module)
    del module.parametrizations
    for name, weight in weights.items():
        setattr(module, name, nn.Parameter(weight))
