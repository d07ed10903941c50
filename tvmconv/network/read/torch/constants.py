"""What an exported program computes of its parameters alone: once, by PyTorch.

Filters that are standardized in each call, as those of networks without a normalization, are fixed then, and get kernels: of
eca_nfnet_l0 TVM computed all of these convolutions, in seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from tvm import relax

from ....frontends.torch.memory import dense, numbers
from .arguments import type_name

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

TYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
TYPES |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def fixed_values(program: ExportedProgram) -> dict[Node, Any]:
    """Return the values of a program's nodes that depend on nothing but its parameters, and on no chance."""
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values: dict[Node, Any] = {}
    with torch.no_grad():
        for node in program.graph.nodes:
            name = names.get(node.name) if node.op == "placeholder" else None
            if name is not None and name not in signature.buffers_to_mutate.values():
                value = program.state_dict.get(name, program.constants.get(name))
                if isinstance(value, torch.Tensor):
                    values[node] = value
            elif node.op == "call_function" and values.keys() >= set(node.all_input_nodes):
                if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                    continue
                made = node.target(*map_arg(node.args, values.get), **map_arg(node.kwargs, values.get))
                if _is_known(made):
                    values[node] = made
    return values


def is_fixed(node: Node, fixed: Collection[Node]) -> bool:
    """Whether a node of a graph that has its parameters as attributes depends on these alone, as those of `fixed` do."""
    if node.op != "call_function" or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return node.op == "get_attr"
    return all(each in fixed for each in node.all_input_nodes) and _is_known(node.meta.get("val"))


def _is_known(made: Any) -> bool:
    leaves = pytree.tree_leaves(made)
    return bool(leaves) and all(isinstance(each, torch.Tensor) and each.dtype in TYPES for each in leaves)


def constants(value: Any) -> relax.Expr:
    """Return tensors, or one, as constants."""
    if isinstance(value, (tuple, list)):
        return relax.Tuple([constants(each) for each in value])
    wide = value.float() if value.dtype is torch.bfloat16 else value
    return relax.const(numbers(dense(wide)), type_name(value.dtype))
