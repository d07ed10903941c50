"""Tensors of a program, or computed from its parameters only, as Relax constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tvm import relax

from ....frontends.torch.fixed import fixed_values
from ....frontends.torch.memory import dense, numbers
from .arguments import type_name

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node


def fixed_of(program: ExportedProgram) -> dict[Node, Any]:
    """Return the values of a program's nodes that depend only on its parameters, and are not random."""
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    given = {}
    for node in program.graph.find_nodes(op="placeholder"):
        name = names.get(node.name)
        if name is not None and name not in signature.buffers_to_mutate.values():
            value = program.state_dict.get(name, program.constants.get(name))
            if isinstance(value, torch.Tensor):
                given[node] = value
    return fixed_values(program.graph, given)


def constants(value: Any) -> relax.Expr:
    """Return a tensor, or a tuple of tensors, as constants."""
    if isinstance(value, (tuple, list)):
        return relax.Tuple([constants(each) for each in value])
    wide = value.float() if value.dtype is torch.bfloat16 else value
    return relax.const(numbers(dense(wide)), type_name(value.dtype))
