"""In-place operators on tensors that nothing else reads get results of their own, which plans place in memory."""

from __future__ import annotations

import copy
import operator
from typing import Any

from torch import fx, nn

from .operators import FUNCTIONS, METHODS, has_no_effect, may_be_view

# By what works in place, what does the same and does not.
_SAME: dict[Any, Any] = {
    **{f"{name}_": name for name in METHODS},
    **{
        getattr(operator, f"i{name}"): getattr(operator, name)
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod")
    },
}


def out_of_place(traced: fx.GraphModule) -> None:
    """Rewrite a graph in place: activations, and arithmetic with numbers, of new tensors that nothing else reads.

    Sums and products of tensors stay: where types differ, in place they have the first one's.
    """
    modules = dict(traced.named_modules(remove_duplicate=False))
    for node in traced.graph.nodes:
        if len(node.all_input_nodes) != 1:
            continue
        (read,) = node.all_input_nodes
        if node.args[:1] != (read,) or len(read.users) != 1 or not _is_new(read, modules):
            continue
        if node.op == "call_module" and getattr(modules[node.target], "inplace", False):
            _replace_module(traced, node, modules)
        elif node.target in _SAME and node.op in ("call_function", "call_method"):
            node.target = _SAME[node.target]
        elif node.target in FUNCTIONS and node.kwargs.get("inplace"):
            node.kwargs = {**node.kwargs, "inplace": False}


def _is_new(node: Any, modules: dict[str, nn.Module]) -> bool:
    """Whether a node's result is a tensor of its own, or a view of one that nothing else reads."""
    while may_be_view(node, modules) and len(node.all_input_nodes) == 1 and len(node.args[0].users) == 1:
        (node,) = node.all_input_nodes
    if node.op == "call_module" and type(modules[node.target]).__module__ == "torch.nn.modules.conv":
        return True
    return has_no_effect(node, modules) and not may_be_view(node, modules)


def _replace_module(traced: fx.GraphModule, node: Any, modules: dict[str, nn.Module]) -> None:
    module: Any = modules[node.target]
    if module._forward_hooks or module._forward_pre_hooks:
        return
    module = copy.copy(module)
    module.inplace = False
    path = f"{node.target}_of_{node.name}".replace(".", "_")
    traced.add_submodule(path, module)
    modules[path] = module
    node.target = path
