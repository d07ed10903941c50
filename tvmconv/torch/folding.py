"""What follows a convolution and is linear in each channel becomes part of its weights."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as functional
from torch import fx, nn

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_VIEWS = ("reshape", "view", "permute", "unsqueeze")
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
PRODUCTS = (operator.mul, torch.mul, "mul")
_PRODUCTS_IN_PLACE = (operator.imul, "mul_")
_QUOTIENTS = (operator.truediv, torch.div, "div", operator.itruediv, "div_")


def fold(graph: fx.Graph, node: Any, modules: dict[str, nn.Module], shape: tuple[int, ...]) -> None:
    """Fold BatchNorms and factors for each channel, as long as one of them alone reads a convolution.

    Parameters
    ----------
    graph, modules
        The graph, which is changed, and its modules by their names.
    node
        Calls the convolution, whose parameters are replaced. It is called but once.
    shape
        Of the convolution's output.
    """
    while len(node.users) == 1:
        (user,) = node.users
        scale = _norm(user, modules, node, shape) or _factor(graph, node, user, modules, shape)
        if scale is None:
            return
        _apply(modules[node.target], *scale)
        user.replace_all_uses_with(node)
        others = [each for each in user.all_input_nodes if each is not node and len(each.users) == 1]
        graph.erase_node(user)
        for other in others:
            erase(graph, other)


def _norm(user: Any, modules: dict[str, nn.Module], node: Any, shape: tuple[int, ...]) -> tuple[Any, Any] | None:
    """Return the factor and the offset of each channel, in float64, if `user` is a BatchNorm of the output of `node`."""
    if type(modules[node.target]) is nn.Linear and len(shape) != 2:
        return None  # it norms the second axis, a Linear's channels are the last
    found = _norm_function(user) if user.target is functional.batch_norm else _norm_module(user, modules)
    if found is None or user.args[:1] != (node,):
        return None
    mean, variance, weight, bias, eps = found
    factor = torch.rsqrt(variance.double() + eps)
    if weight is not None:
        factor = factor * weight.double()
    offset = -mean.double() * factor
    return factor, offset if bias is None else offset + bias.double()


def _norm_module(user: Any, modules: dict[str, nn.Module]) -> tuple[Any, ...] | None:
    """Return the mean, the variance, the weight, the bias and the epsilon of a BatchNorm in inference."""
    norm: Any = modules[user.target] if user.op == "call_module" else None
    if type(norm) not in _NORMS or norm.training or norm.running_mean is None:
        return None
    if norm._forward_hooks or norm._forward_pre_hooks:
        return None
    return norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.eps


_NORM_PARAMETERS = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")


def _norm_function(user: Any) -> tuple[Any, ...] | None:
    """Return the same of a call of `functional.batch_norm`, as subclasses of BatchNorm have it, with tensors of the model."""
    given = {**dict(zip(_NORM_PARAMETERS, user.args[1:], strict=False)), **user.kwargs}
    if given.get("training", False) is not False or len(user.args) < 1:
        return None
    tensors = []
    for name in _NORM_PARAMETERS[:4]:
        node = given.get(name)
        if node is not None and getattr(node, "op", "") != "get_attr":
            return None
        tensors.append(None if node is None else attribute(node.graph.owning_module, node.target).detach())
    eps = given.get("eps", 1e-5)
    return None if tensors[0] is None or tensors[1] is None else (*tensors, eps) if isinstance(eps, float) else None


def _factor(
    graph: fx.Graph, node: Any, user: Any, modules: dict[str, nn.Module], shape: tuple[int, ...]
) -> tuple[Any, Any] | None:
    """Return the same if a node multiplies each channel by a parameter of the model, as LayerScale does, or all by a number."""
    if user.op not in ("call_function", "call_method") or user.kwargs or len(user.args) != 2:
        return None
    channels = shape[-1] if type(modules[node.target]) is nn.Linear else shape[1]
    other = user.args[1] if user.args[0] is node else user.args[0]
    if type(other) in (int, float):
        quotient = user.target in _QUOTIENTS and user.args[0] is node and other != 0
        if not quotient and user.target not in (*PRODUCTS, *_PRODUCTS_IN_PLACE):
            return None
        factor = torch.full((channels,), 1 / other if quotient else other, dtype=torch.float64)
        return factor, torch.zeros_like(factor)
    if user.target not in PRODUCTS and (user.target not in _PRODUCTS_IN_PLACE or user.args[0] is not node):
        return None
    factor = constant(graph, other)
    if factor is None or factor.dtype != modules[node.target].weight.dtype:
        return None  # the product may have another type than the convolution
    if type(modules[node.target]) is nn.Linear:
        extents = [(*(1,) * more, channels) for more in range(len(shape))]
    else:
        last = (channels, *(1 for _ in shape[2:]))
        extents = [last, (1, *last)]
    if tuple(factor.shape) not in extents and (factor.numel() != 1 or factor.dim() > len(shape)):
        return None
    factor = factor.detach().double().reshape(-1).expand(channels)
    return factor, torch.zeros_like(factor)


def constant(graph: fx.Graph, node: Any) -> Any:
    """Return the value of a node that is a parameter of the model, or a view of one; None for any other."""
    if getattr(node, "op", "") == "get_attr":
        tensor = attribute(graph.owning_module, node.target)
        return tensor.detach() if isinstance(tensor, nn.Parameter) else None
    if getattr(node, "op", "") != "call_method" or node.target not in _VIEWS or len(node.all_input_nodes) != 1:
        return None
    viewed = constant(graph, node.args[0])
    return None if viewed is None else getattr(viewed, node.target)(*node.args[1:], **node.kwargs)


def erase(graph: fx.Graph, node: Any) -> None:
    """Erase a node that nobody reads, and what only it read."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        read = each.all_input_nodes
        graph.erase_node(each)
        waiting += [other for other in read if not other.users and other.op != "placeholder"]


def attribute(root: Any, path: str) -> Any:
    """Return what lies at a path of names below a module."""
    return reduce(getattr, path.split("."), root)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _apply(module: Any, factor: Any, offset: Any) -> None:
    """Give a convolution the weights with which its output is that of before times `factor`, plus `offset`."""
    weight = module.weight
    bias = offset if module.bias is None else module.bias.double() * factor + offset
    ones = (1,) * (weight.dim() - 2)
    if type(module) in TRANSPOSED:  # (in, out / groups, taps): each group of inputs has outputs of its own
        groups = module.groups
        folded = weight.double().reshape(groups, -1, *weight.shape[1:]) * factor.reshape(groups, 1, -1, *ones)
        folded = folded.reshape(weight.shape)
    else:
        folded = weight.double() * factor.reshape(-1, 1, *ones)
    module.weight = nn.Parameter(folded.to(weight.dtype), requires_grad=weight.requires_grad)
    module.bias = nn.Parameter(bias.to(weight.dtype), requires_grad=weight.requires_grad)
