"""Tensors that a model computes of its own parameters in each call, as weight standardization does, computed once."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .folding import attribute
from .plan import computing

# Whose functions remember nothing but PyTorch's random numbers: PyTorch's, and Python's operators and getattr.
_KNOWN = ("torch", "_operator", "builtins")


def computed(traced: fx.GraphModule, node: Any) -> Any:
    """Return the value of a node that depends on tensors of the model alone; None of any other.

    One that draws random numbers, or writes to the model's tensors, is another in each call.
    """
    nodes = made_by(node)
    if nodes is None:
        return None
    values = []
    for seed in (0, 1):
        copies = {each: attribute(traced, each.target).detach().clone() for each in nodes if each.op == "get_attr"}
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            known: dict[Any, Any] = dict(copies)
            for each in nodes:
                if each not in known:
                    known[each] = computing(traced, each)(known)
            values.append(known[node])
        if any(each._version for each in copies.values()):
            return None
    first, second = values
    return first if isinstance(first, torch.Tensor) and torch.equal(first, second) else None


def made_by(node: Any) -> list[Any] | None:
    """Return the nodes that a node is computed by, in their order, itself the last; None if not all can be known."""
    ordered: dict[Any, None] = {}
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each.op not in ("get_attr", "call_method") and not _is_known(each):
            return None
        if each.op == "get_attr" and not isinstance(attribute(each.graph.owning_module, each.target), torch.Tensor):
            return None
        ordered[each] = None
        waiting += [read for read in each.all_input_nodes if read not in ordered]
    return [each for each in node.graph.nodes if each in ordered]


def _is_known(node: Any) -> bool:
    home = getattr(node.target, "__module__", None) or ""
    return node.op == "call_function" and home.partition(".")[0] in _KNOWN
