"""Checks of the number of axes, as in assertions, are moved to the first tensor with equally many axes.

A convolution's output that only what follows it reads is fused with that; timm's norms assert that theirs has four axes.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as functional
from torch import fx, nn
from torch.nn.modules.conv import _ConvNd

from .operators import ELEMENTWISE, MODULES, is_question, option

_NUMBERS = ("ndim", "dim", "ndimension")
# What gives a tensor of as many axes as the first that it reads, and as all tensors that it reads have.
_FIRST = (
    *ELEMENTWISE, functional.batch_norm, functional.group_norm, functional.layer_norm, functional.interpolate,
    functional.pad, functional.softmax, functional.dropout,
    *(getattr(functional, f"{kind}_pool{rank}d") for kind in ("avg", "max", "adaptive_avg") for rank in (1, 2, 3)),
    "contiguous", "to", "float", "type", "clone", "softmax", torch.softmax,
)  # fmt: skip
_ARITHMETIC = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.iadd, operator.imul, torch.add, torch.mul, "add",
    "mul", "add_", "mul_",
)  # fmt: skip


def ask_earlier(traced: fx.GraphModule) -> None:
    """Rewrite a graph in place, and leave out the questions for shapes and types whose answers nobody reads."""
    modules = dict(traced.named_modules(remove_duplicate=False))
    for node in reversed(list(traced.graph.nodes)):
        if is_question(node) and not node.users:
            traced.graph.erase_node(node)
    first: dict[Any, Any] = {}
    for node in traced.graph.nodes:
        name = node.target if node.op == "call_method" else node.args[1] if node.target is getattr else None
        if name in _NUMBERS:
            node.args = (first[node.args[0]], *node.args[1:])
        found = {first[each] for each in _of_as_many(node, modules)}
        first[node] = found.pop() if len(found) == 1 else node


def _of_as_many(node: Any, modules: dict[str, nn.Module]) -> list[Any]:
    """Return what a node reads, if all of it has as many axes as what the node gives."""
    if not node.args or node.op in ("placeholder", "output", "get_attr"):
        return []
    read = node.args[0]
    if node.op == "call_module":
        module = modules[node.target]
        keeps = isinstance(module, (_ConvNd, *MODULES)) and not (module._forward_hooks or module._forward_pre_hooks)
    elif node.target in (torch.mean, "mean"):
        keeps = option(node, 2, "keepdim", False) is True
    elif node.target is torch.cat or node.target in _ARITHMETIC:
        return [each for each in node.all_input_nodes if each.op != "get_attr"]
    else:
        keeps = node.target in _FIRST
    return [read] if keeps and isinstance(read, fx.Node) else []
