"""`writer_of`: functions that compute a node of a plan into a given tensor, so that memory is reused.

The system clears the pages of a new tensor in each call: on a Zen 5, a leaky ReLU of 1 MB took 195 us, and takes 17.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import fx, nn

from .gates import Gate
from .native import Concatenation, layer_norm
from .operators import option
from .pads import Pad
from .sized import PadBySize

_aten = torch.ops.aten
_ARITHMETIC = {
    **dict.fromkeys((operator.add, torch.add, "add"), torch.add),
    **dict.fromkeys((operator.sub, torch.sub, "sub"), torch.sub),
    **dict.fromkeys((operator.mul, torch.mul, "mul"), torch.mul),
    **dict.fromkeys((operator.truediv, torch.div, "div"), torch.div),
}
# By the names of torch.nn.functional: the module, what computes it, and its options, which module and function call alike,
# with the function's defaults.
_ACTIVATIONS: dict[str, tuple[type[nn.Module], Callable[..., Any], dict[str, Any]]] = {
    "relu": (nn.ReLU, lambda data, out: _aten.clamp_min.out(data, 0, out=out), {}),
    "relu6": (nn.ReLU6, _aten.hardtanh.out, {"min_val": 0.0, "max_val": 6.0}),
    "hardtanh": (nn.Hardtanh, _aten.hardtanh.out, {"min_val": -1.0, "max_val": 1.0}),
    "leaky_relu": (nn.LeakyReLU, _aten.leaky_relu.out, {"negative_slope": 0.01}),
    "elu": (nn.ELU, _aten.elu.out, {"alpha": 1.0}),
    "sigmoid": (nn.Sigmoid, _aten.sigmoid.out, {}),
    "tanh": (nn.Tanh, _aten.tanh.out, {}),
    "hardsigmoid": (nn.Hardsigmoid, _aten.hardsigmoid.out, {}),
    "hardswish": (nn.Hardswish, _aten.hardswish.out, {}),
    "silu": (nn.SiLU, _aten.silu.out, {}),
    "gelu": (nn.GELU, lambda data, form, out: _aten.gelu.out(data, approximate=form, out=out), {"approximate": "none"}),
    "mish": (nn.Mish, _aten.mish.out, {}),
}
_MODULES = {module: name for name, (module, _, _) in _ACTIVATIONS.items()}
_FUNCTIONS = {
    **{getattr(functional, name): name for name in _ACTIVATIONS},
    **{getattr(torch, name): name for name in ("relu", "sigmoid", "tanh")},
    **{name: name for name in ("relu", "sigmoid", "tanh")},
}


def is_elementwise(root: nn.Module, node: Any) -> bool:
    """Whether each element of what a node computes depends on those of tensors at the same place alone."""
    return (node.op != "call_module" and node.target in _ARITHMETIC) or _activation(root, node) is not None


def writer_of(root: nn.Module, node: Any) -> Callable[..., Any] | None:
    """Return what is called with a node's arguments, and the tensor `out`, None if nothing writes what it computes.

    What has a method `bind` takes the same arguments there once, where they lie in the same place in each call.

    Parameters
    ----------
    root
        The module whose graph has the node.
    node
        A node of a segment.
    """
    if not node.args or not isinstance(node.args[0], (fx.Node, tuple, list)):
        return None
    if (name := _activation(root, node)) is not None:
        return _activating(root, node, name)
    if node.op == "call_module":
        module = root.get_submodule(node.target)
        if type(module) is nn.LayerNorm:
            return _normalizing(module)
        if isinstance(module, (Pad, PadBySize)):
            return module
        return module.convolution.write if isinstance(module, Gate) else None
    if node.target is functional.layer_norm:
        return layer_norm
    if node.target in (torch.mean, "mean"):  # of all elements, it takes no tensor
        return torch.mean if len(node.args) > 1 or "dim" in node.kwargs else None
    return Concatenation() if node.target is torch.cat else _ARITHMETIC.get(node.target)


def _normalizing(module: nn.LayerNorm) -> Callable[..., Any]:
    def normalize(data: Any, *, out: Any) -> Any:
        return layer_norm(data, module.normalized_shape, module.weight, module.bias, module.eps, out=out)

    return normalize


def _activation(root: nn.Module, node: Any) -> str | None:
    """Return the name of the activation that a node is."""
    if node.op == "call_module":
        return _MODULES.get(type(root.get_submodule(node.target)))
    return _FUNCTIONS.get(node.target)


def _activating(root: nn.Module, node: Any, name: str) -> Callable[..., Any] | None:
    _, write, options = _ACTIVATIONS[name]
    if node.op == "call_module":
        module = root.get_submodule(node.target)

        def of_module(data: Any, *, out: Any) -> Any:
            return write(data, *(getattr(module, name, default) for name, default in options.items()), out=out)

        return of_module
    values = [option(node, place, name, default) for place, (name, default) in enumerate(options.items(), 1)]
    if any(isinstance(value, fx.Node) for value in values):
        return None

    def of_function(data: Any, *_: Any, out: Any, **__: Any) -> Any:
        return write(data, *values, out=out)

    return of_function
