"""Split a program of `torch.export` into pieces that become networks, and operators of PyTorch between them."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram, ModuleCallEntry
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from ..frontends.torch.fixed import fold
from .flat import inverse, order_of


def _operator_names(*names: str) -> list[str]:
    """Return the partitioner's names of ATen's operators."""
    return [f"torch.ops.aten.{name}.{form}" for name in names for form in getattr(torch.ops.aten, name).overloads()]


# Operators worth a network of one step, which costs as much as a call of PyTorch: our kernels for them are faster.
_WORTH = _operator_names(
    "addmm", "baddbmm", "bmm", "convolution", "linear", "matmul", "mm", "scaled_dot_product_attention"
)
# Operators that compute nothing in PyTorch.
_VIEWS = _operator_names("alias", "expand", "permute", "select", "slice", "squeeze", "unsqueeze", "view")
_PREFIX = "tvmconv_network_"


@dataclass(frozen=True)
class Piece:
    """Part of a program that becomes a network.

    Attributes
    ----------
    name
        Name of the module in the whole graph that calls it.
    nodes
        The names of its nodes.
    program
        Its program, with bound weights.
    in_orders, out_orders
        For each input and output tensor, its axes in memory order.
    """

    name: str
    nodes: tuple[str, ...]
    program: ExportedProgram
    in_orders: Sequence[list[int]]
    out_orders: Sequence[list[int]]


def flat_graph(program: ExportedProgram) -> fx.GraphModule:
    """Return a program as a graph of tensors, with its weights, or the values computed from them, as attributes."""
    module: Any = program.module()
    for node in list(module.graph.nodes):
        if node.op == "call_module":  # it checks torch.export's assumptions about the arguments
            module.graph.erase_node(node)
    module.graph.set_codegen(fx.graph.CodeGen())
    fold(module, dequantizes=False)
    return fx.GraphModule(module, module.graph)


def split(
    whole: fx.GraphModule, foreign: Collection[str], head: int = 0, ranges: Mapping[Any, Any] | None = None
) -> list[Piece]:
    """Replace the parts of a graph that become networks by calls of modules; return these parts.

    Parameters
    ----------
    whole
        The graph, in decomposed operators.
    foreign
        The names of nodes that PyTorch computes.
    head
        Number of first operators that form a network of their own, if PyTorch computes none.
    ranges
        Ranges of free extents, by their symbols.
    """
    calls = [node for node in whole.graph.nodes if node.op == "call_function"]
    ours = [node for node in calls if origin(node).name not in foreign]
    if len(ours) < len(calls):
        names = {node.name for node in ours}
        support = create_op_support(lambda _, node: node.op == "call_function" and node.name in names)
        finder = CapabilityBasedPartitioner(
            whole, support, non_compute_ops=_VIEWS, allowed_single_node_partition_ops=_WORTH
        )
        partitions = finder.propose_partitions()
        finder.remove_bookend_non_compute_ops(partitions)
        fuse_by_partitions(whole, [each.nodes for each in partitions if each.nodes], prefix=_PREFIX)
    elif calls:
        parts = [calls[:head], calls[head:]]
        fuse_by_partitions(whole, [dict.fromkeys(part) for part in parts if part], prefix=_PREFIX)
    found = [node for node in whole.graph.nodes if node.op == "call_module"]
    pieces = [_piece(whole, node, ranges or {}) for node in found]
    whole.graph.eliminate_dead_code()
    whole.recompile()
    return pieces


def origin(node: fx.Node) -> fx.Node:
    """Return the operator that computes a node: for an item of several results, the operator of these."""
    return node.args[0] if node.target is operator.getitem else node


def _piece(whole: fx.GraphModule, call: fx.Node, ranges: Mapping[Any, Any]) -> Piece:
    """Return the program of a module of the whole, and remove its weights from the call."""
    module: Any = whole.get_submodule(str(call.target))
    graph = module.graph
    names = tuple(node.name for node in graph.nodes if node.op == "call_function")
    constants, specs, given, orders = {}, [], [], []
    for node, outside in zip(graph.find_nodes(op="placeholder"), list(call.args), strict=True):
        node.meta = dict(outside.meta)
        argument = TensorArgument(name=node.name)
        if outside.op == "get_attr":
            constants[node.name] = operator.attrgetter(str(outside.target))(whole).detach()
            node.meta.setdefault("val", constants[node.name])
            specs.append(InputSpec(InputKind.CONSTANT_TENSOR, argument, node.name))
        else:
            given.append(outside)
            specs.append(InputSpec(InputKind.USER_INPUT, argument, None))
            orders.append(_lay_out(graph, node))
    call.args = tuple(given)
    end = graph.output_node()
    (returned,) = end.args
    returned = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    out_orders = [order_of(each.meta["val"]) for each in returned]
    with graph.inserting_before(end):
        returned = [_permute(graph, each, order) for each, order in zip(returned, out_orders, strict=True)]
    end.args = (tuple(returned),)
    graph.lint()
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=each.name), None) for each in returned]
    signature = ExportGraphSignature(specs, outputs)
    entry = ModuleCallEntry(fqn="", signature=None)
    program = ExportedProgram(module, graph, signature, {}, dict(ranges), [entry], constants=constants)
    return Piece(str(call.target), names, program, orders, out_orders)


def _lay_out(graph: fx.Graph, node: fx.Node) -> list[int]:
    """Make a graph take an input with its axes in memory order; return the order."""
    order = order_of(node.meta["val"])
    if order != sorted(order):
        with graph.inserting_after(node):
            back = graph.call_function(torch.ops.aten.permute.default, (node, inverse(order)))
        back.meta = dict(node.meta)
        node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)
        node.meta = {"val": node.meta["val"].permute(order)}
    return order


def _permute(graph: fx.Graph, node: fx.Node, order: list[int]) -> fx.Node:
    if order == sorted(order):
        return node
    permuted = graph.call_function(torch.ops.aten.permute.default, (node, order))
    permuted.meta = {"val": node.meta["val"].permute(order)}
    return permuted
