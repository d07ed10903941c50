"""Sort the nodes of ONNX graphs topologically: ONNX demands that order, but not every writer keeps it."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from ...errors import SourceError
from .graph import subgraphs

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def sort_nodes(model: ModelProto, source: str) -> None:
    """Sort the nodes of a model, of the graphs within its nodes and of its functions; sorted ones stay as they are.

    Raises
    ------
    SourceError
        If nodes read each other's outputs in a cycle; it names one.
    """
    _sort(model.graph.node, source)
    for function in model.functions:
        _sort(function.node, source)


def _sort(nodes: Any, source: str) -> None:
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    waits = [{makers[name] for name in _read(node) if name in makers} for node in nodes]
    if any(max(each, default=-1) >= number for number, each in enumerate(waits)):
        order = _order(waits)
        if len(order) < len(nodes):
            stuck = nodes[_in_cycle(waits, set(range(len(nodes))).difference(order))]
            raise SourceError(
                f"{source}: the graph is a cycle: the {stuck.op_type} node {stuck.name or ''.join(stuck.output[:1])!r} needs its"
                " own output"
            )
        kept = [type(nodes[number]).FromString(nodes[number].SerializeToString()) for number in order]
        del nodes[:]
        nodes.extend(kept)
    for node in nodes:
        for inner in subgraphs(node):
            _sort(inner.node, source)


def _order(waits: list[set[int]]) -> list[int]:
    """Return the nodes' numbers in topological order, without nodes in or after cycles."""
    readers: list[list[int]] = [[] for _ in waits]
    for number, each in enumerate(waits):
        for before in each:
            readers[before].append(number)
    left = [len(each) for each in waits]
    ready = [number for number, count in enumerate(left) if not count]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for number in readers[order[-1]]:
            left[number] -= 1
            if not left[number]:
                heapq.heappush(ready, number)
    return order


def _in_cycle(waits: list[set[int]], stuck: set[int]) -> int:
    """Return a node of a cycle: each stuck node waits for another."""
    number, seen = min(stuck), set[int]()
    while number not in seen:
        seen.add(number)
        number = min(waits[number] & stuck)
    return number


def _read(node: NodeProto) -> set[str]:
    """Return the tensors that a node reads, and those that nodes in its graphs read from outside."""
    read = {name for name in node.input if name}
    for graph in subgraphs(node):
        own = {name for inner in graph.node for name in inner.output}
        own |= {each.name for each in (*graph.input, *graph.initializer)}
        inside = {name for inner in graph.node for name in _read(inner)} | {each.name for each in graph.output}
        read |= inside - own
    return read
