"""`segments`: the parts of a graph whose intermediate tensors nobody else sees, so that their memory may be used again."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from .layers import FusedConvolution
from .operators import has_no_effect, may_be_view


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
    views
        Those of them whose results may be views of what they read.
    """

    nodes: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    views: frozenset[Any]

    @cached_property
    def _last(self) -> dict[Any, int]:
        """For each node, the number of the last that reads it, in the segment; of one that none reads, its own."""
        step = {node: number for number, node in enumerate(self.nodes)}
        return {node: max((step[user] for user in node.users if user in step), default=step[node]) for node in step}

    @cached_property
    def last(self) -> dict[Any, int]:
        """For each node, the number of the last that reads it or a view of it."""
        last = dict(self._last)
        for node in reversed(self.nodes):
            for base in node.all_input_nodes if node in self.views else ():
                if base in last:
                    last[base] = max(last[base], last[node])
        return last

    @cached_property
    def seen(self) -> set[Any]:
        """The nodes whose memory others may read: the outputs, and what they may be views of."""
        seen = set(self.outputs)
        for node in reversed(self.nodes):
            if node in seen and node in self.views:
                seen.update(node.all_input_nodes)
        return seen

    def bases(self, node: Any) -> set[Any]:
        """Return the nodes of whose memory a node may be a view."""
        if node not in self.views:
            return set()
        return {each for read in node.all_input_nodes for each in (read, *self.bases(read))}

    @cached_property
    def dead_after(self) -> dict[Any, list[Any]]:
        """For each node, those that nobody reads after it; views of them may be."""
        dead: dict[Any, list[Any]] = {node: [] for node in self.nodes}
        for node, last in self._last.items():
            if node not in self.outputs:
                dead[self.nodes[last]].append(node)
        return dead


def segments(graph: Any, modules: dict[str, nn.Module]) -> list[Segment]:
    """Return the segments of a graph that have at least two layers, the largest that there are."""
    runs: list[list[Any]] = [[]]
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr") or _is_part_of_argument(node):
            continue  # they come before a segment as well
        if is_layer(node, modules) or has_no_effect(node, modules):
            runs[-1].append(node)
        else:
            runs.append([])
    return [_segment(run, modules) for run in runs if sum(is_layer(node, modules) for node in run) > 1]


def _is_part_of_argument(node: Any) -> bool:
    """Whether a node is a part of a list or a dict that a model is given, or a tensor's first axis, by a number or a name."""
    if node.target is not operator.getitem or not isinstance(node.args[1], (int, str)):
        return False
    return node.args[0].op == "placeholder" or _is_part_of_argument(node.args[0])


def is_layer(node: Any, modules: dict[str, nn.Module]) -> bool:
    """Whether a node calls one of our layers."""
    return node.op == "call_module" and isinstance(modules[node.target], FusedConvolution)


def part(segment: Segment, start: int, stop: int) -> Segment:
    """Return the nodes of a segment from number `start` to before `stop` as one of their own."""
    nodes = segment.nodes[start:stop]
    return _of(nodes, segment.views.intersection(nodes))


def _segment(nodes: list[Any], modules: dict[str, nn.Module]) -> Segment:
    return _of(tuple(nodes), frozenset(node for node in nodes if may_be_view(node, modules)))


def _of(nodes: tuple[Any, ...], views: frozenset[Any]) -> Segment:
    inside = set(nodes)
    inputs = dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in inside)
    outputs = (node for node in nodes if any(user not in inside for user in node.users))
    return Segment(nodes, tuple(inputs), tuple(outputs), views)
