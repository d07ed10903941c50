"""`segments`: the parts of a graph whose intermediate tensors nobody else sees, so that their memory may be used again.

A segment is made of our layers and of operators that are known to keep nothing of what they read, no view of it either,
and to have no effect but their result. So it may also be computed twice.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from .layers import FusedConvolution

_MODULES = (
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.ReLU,
    nn.ReLU6,
    nn.Hardtanh,
    nn.LeakyReLU,
    nn.ELU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Hardsigmoid,
    nn.SiLU,
    nn.Hardswish,
    nn.GELU,
)
_FUNCTIONS = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    torch.add,
    torch.sub,
    torch.mul,
    torch.div,
    torch.cat,
    torch.mean,
    torch.relu,
    torch.sigmoid,
    torch.tanh,
    functional.avg_pool1d,
    functional.avg_pool2d,
    functional.avg_pool3d,
    functional.max_pool1d,
    functional.max_pool2d,
    functional.max_pool3d,
    functional.adaptive_avg_pool1d,
    functional.adaptive_avg_pool2d,
    functional.adaptive_avg_pool3d,
    functional.interpolate,
    functional.relu,
    functional.relu6,
    functional.hardtanh,
    functional.leaky_relu,
    functional.elu,
    functional.sigmoid,
    functional.tanh,
    functional.hardsigmoid,
    functional.silu,
    functional.hardswish,
    functional.gelu,
)
_METHODS = ("add", "sub", "mul", "div", "mean", "relu", "sigmoid", "tanh")


@dataclass(frozen=True)
class Segment:
    """Nodes of a graph, one after the other.

    Parameters
    ----------
    nodes
        In their order.
    inputs
        What they read of other nodes.
    outputs
        Those of them that other nodes read.
    """

    nodes: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    @cached_property
    def last(self) -> dict[Any, int]:
        """For each node, the number of the last that reads it, in the segment; of one that none reads, its own."""
        step = {node: number for number, node in enumerate(self.nodes)}
        return {node: max((step[user] for user in node.users if user in step), default=step[node]) for node in step}

    @cached_property
    def dead_after(self) -> dict[Any, list[Any]]:
        """For each node, those that nobody reads after it."""
        dead: dict[Any, list[Any]] = {node: [] for node in self.nodes}
        for node, last in self.last.items():
            if node not in self.outputs:
                dead[self.nodes[last]].append(node)
        return dead


def segments(graph: Any, modules: dict[str, nn.Module]) -> list[Segment]:
    """Return the segments of a graph that have at least two layers, the largest that there are."""
    runs: list[list[Any]] = [[]]
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue  # they come before a segment as well
        if keeps_nothing(node, modules):
            runs[-1].append(node)
        else:
            runs.append([])
    return [_segment(run) for run in runs if sum(is_layer(node, modules) for node in run) > 1]


def is_layer(node: Any, modules: dict[str, nn.Module]) -> bool:
    """Whether a node calls one of our layers."""
    return node.op == "call_module" and isinstance(modules[node.target], FusedConvolution)


def keeps_nothing(node: Any, modules: dict[str, nn.Module]) -> bool:
    """Whether a node is a layer or an operator whose result shares no memory with what it reads, which it leaves as it is."""
    if node.op == "call_module":
        module = modules[node.target]
        if type(module) in _MODULES:
            return not getattr(module, "inplace", False) and not getattr(module, "return_indices", False)
        return isinstance(module, FusedConvolution)
    known = (node.op == "call_function" and node.target in _FUNCTIONS) or (
        node.op == "call_method" and node.target in _METHODS
    )
    # A True may be `inplace` or `return_indices`, by its place.
    options = ("out", "inplace", "return_indices")
    return (
        known and not any(node.kwargs.get(option) for option in options) and not any(arg is True for arg in node.args)
    )


def _segment(nodes: list[Any]) -> Segment:
    inside = set(nodes)
    inputs = dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside)
    outputs = (node for node in nodes if any(user not in inside for user in node.users))
    return Segment(tuple(nodes), tuple(inputs), tuple(outputs))
