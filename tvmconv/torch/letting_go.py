"""Remove a model's weights that its networks have: tensors of PyTorch's meta device, without numbers, replace them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ..errors import InputError
from .answering import LET_GO, Answering


def let_go(model: nn.Module, answering: Sequence[Answering]) -> None:
    """Remove the parameters and buffers of modules that networks answer, unless other modules use them, too."""
    inside = dict.fromkeys(module for each in answering for module in each.module.modules())
    kept = {id(tensor) for module in model.modules() if module not in inside for _, _, tensor in _tensors(module)}
    emptied: dict[int, tuple[Any, Any]] = {}  # with the tensors: the id of a deleted one may be reused
    for module in inside:
        for tensors, name, tensor in _tensors(module):
            if id(tensor) not in kept:
                _, tensors[name] = emptied.setdefault(id(tensor), (tensor, _make_empty(tensor)))
        module.register_state_dict_pre_hook(_refuse)
        module.register_load_state_dict_pre_hook(_refuse)
    for each in answering:
        each.has_weights = False


def _tensors(module: nn.Module) -> list[tuple[dict[str, Any], str, Any]]:
    """Return a module's own parameters and buffers, each with its dict and its name there."""
    return [
        (tensors, name, tensor)
        for tensors in (module._parameters, module._buffers)
        for name, tensor in tensors.items()
        if tensor is not None
    ]


def _make_empty(tensor: Any) -> Any:
    empty = tensor.detach().to("meta")
    return nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty


def _refuse(module: nn.Module, *_: Any) -> None:
    raise InputError(f"{type(module).__name__} has no state_dict any more: {LET_GO}")
