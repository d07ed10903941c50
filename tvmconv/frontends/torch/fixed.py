"""Compute once, by PyTorch, the part of an exported program that depends on its parameters alone, for all readers.

Filters that are computed in each call, by weight norms or weight standardization, are fixed then, and get kernels. TVM computed all of
these convolutions in eca_nfnet_l0, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from .nodes import name_of

TYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
TYPES |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def fixed_values(graph: fx.Graph, given: Mapping[fx.Node, torch.Tensor]) -> dict[fx.Node, Any]:
    """Return the values of a graph's nodes that depend on the `given` ones alone, and on no random numbers.

    Given tensors that are written in place are not fixed, nor are those that share their memory.
    """
    excepted: set[Any] = set()
    while True:
        values, written = _compute(graph, given, excepted)
        if written <= excepted:
            return values
        excepted |= written


def _compute(
    graph: fx.Graph, given: Mapping[fx.Node, torch.Tensor], excepted: set[Any]
) -> tuple[dict[fx.Node, Any], set[Any]]:
    """Return the values, and the identities of the given memory that the graph writes to."""
    own = _storages([*given.values()])
    values: dict[fx.Node, Any] = {}
    others: set[fx.Node] = set()
    written: set[Any] = set()
    with torch.no_grad():
        for node in graph.nodes:
            if node in given and _storages(given[node]).isdisjoint(excepted):
                values[node] = given[node]
                continue
            is_fixed = node.op == "call_function" and values.keys() >= set(node.all_input_nodes)
            is_fixed &= torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ())
            if changed := _storages([values.get(each, given.get(each)) for each in _writes(node)]):
                sharing = [each for each, value in values.items() if not changed.isdisjoint(_storages(value))]
                is_read = any(not others.isdisjoint(each.users) for each in sharing)  # in its state before
                if not is_fixed or is_read or changed & own:
                    is_fixed, written = False, written | (changed & own)
                    for each in sharing:
                        del values[each]
            made = node.target(*map_arg(node.args, values.get), **map_arg(node.kwargs, values.get)) if is_fixed else ()
            if _is_known(made):
                values[node] = made
            else:
                others.add(node)
    return values, written


def fold(module: fx.GraphModule, dequantizes: bool = True) -> None:
    """Replace results that depend on attributes alone by attributes; pt2e's integer weights stay integers unless `dequantizes`."""
    reader = fx.Interpreter(module)
    attributes = {node: reader.fetch_attr(node.target) for node in module.graph.find_nodes(op="get_attr")}
    given = {node: value.detach() for node, value in attributes.items() if isinstance(value, torch.Tensor)}
    values = fixed_values(module.graph, given)
    if not dequantizes:
        for node in [each for each in values if each.op == "call_function"]:
            if is_dequantizer(node) or not values.keys() >= set(node.all_input_nodes):
                del values[node]
    for number, (node, value) in enumerate(values.items()):
        if node.op == "get_attr" or not isinstance(value, torch.Tensor) or all(user in values for user in node.users):
            continue
        name = f"_fixed_{number}"
        module.register_buffer(name, value)
        with module.graph.inserting_before(node):
            attribute = module.graph.get_attr(name)
        attribute.meta = dict(node.meta)
        node.replace_all_uses_with(attribute)
    for node in reversed(values):
        if not node.users:
            module.graph.erase_node(node)
    module.recompile()


def is_dequantizer(node: fx.Node) -> bool:
    """Return whether a node dequantizes pt2e's integers."""
    return name_of(node).startswith("dequantize_per_")


def _writes(node: fx.Node) -> list[fx.Node]:
    """Return the arguments that an operator writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    writes = {each.name for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write}
    given = {**dict(zip((each.name for each in schema.arguments), node.args, strict=False)), **node.kwargs}
    return [
        each for name in writes & given.keys() for each in pytree.tree_leaves(given[name]) if isinstance(each, fx.Node)
    ]


def _storages(values: Any) -> set[Any]:
    """Return the identities of the tensors' memory."""
    tensors = [each for each in pytree.tree_leaves(values) if isinstance(each, torch.Tensor)]
    return {each.untyped_storage()._cdata if each.layout is torch.strided else id(each) for each in tensors}


def _is_known(made: Any) -> bool:
    leaves = pytree.tree_leaves(made)
    return bool(leaves) and all(isinstance(each, torch.Tensor) and each.dtype in TYPES for each in leaves)
