"""Permutations of a Linear's output, moved behind the elementwise operators after it, so that its kernel can fuse them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from .epilogue_steps import changes_its_input, is_sum, step_of
from .folding import PRODUCTS, constant

Shapes = dict[str, tuple[int, ...]]


def sink(graph: fx.Graph, node: Any, modules: dict[str, nn.Module], shapes: Shapes) -> None:
    """Move the permutations after a Linear behind the steps, sums and factors that follow, as far as one reads each.

    Parameters
    ----------
    graph, modules, shapes
        The graph, which is changed, its modules by their names, and the shapes of its tensors, which grow by new ones.
    node
        Calls the Linear.
    """
    last = node
    while len(last.users) == 1:
        (user,) = last.users
        axes = _axes(user, len(shapes[last.name]))
        if axes is not None:
            if len(user.users) != 1 or not _swap(graph, user, axes, modules, shapes):
                return
        elif _others(graph, user, last, modules, shapes) is None:
            return
        else:
            last = user


def _axes(node: Any, rank: int) -> tuple[int, ...] | None:
    """Return which axis of its input each of a node's axes is, None if it permutes nothing."""
    if node.kwargs or node.op not in ("call_method", "call_function"):
        return None
    given = node.args[1:]
    if node.target in ("permute", torch.permute):
        axes = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    elif node.target in ("transpose", torch.transpose) and all(isinstance(axis, int) for axis in given):
        axes = list(range(rank))
        one, other = given
        axes[one], axes[other] = axes[other], axes[one]
    else:
        return None
    if len(axes) != rank or not all(isinstance(axis, int) for axis in axes):
        return None
    return tuple(axis % rank for axis in axes)


def _others(
    graph: fx.Graph, user: Any, last: Any, modules: dict[str, nn.Module], shapes: Shapes
) -> tuple[Any, ...] | None:
    """Return what else a node reads, element by element, than `last`; None if it does something else."""
    if shapes.get(user.name) != shapes[last.name]:
        return None
    if step_of(user, modules) is not None:
        return () if user.args[:1] == (last,) else None
    product = user.op in ("call_function", "call_method") and user.target in PRODUCTS and not user.kwargs
    if not product and not is_sum(user):
        return None
    other = user.args[1] if user.args[0] is last else user.args[0]
    if other is last or (other is user.args[0] and changes_its_input(user, modules)):
        return None
    known = constant(graph, other) is not None if product else shapes.get(other.name) == shapes[last.name]
    return (other,) if known else None


def _swap(graph: fx.Graph, node: Any, axes: Sequence[int], modules: dict[str, nn.Module], shapes: Shapes) -> bool:
    """Let the only one that reads a permutation come before it, if that changes nothing."""
    (user,) = node.users
    others = _others(graph, user, node, modules, shapes)
    if others is None:
        return False
    back = [axes.index(axis) for axis in range(len(axes))]
    read: Any = node.args[0]
    for other in others:
        with graph.inserting_before(user):
            whole, shape = other, shapes[other.name]
            if len(shape) < len(axes):
                shape = (*(1,) * (len(axes) - len(shape)), *shape)
                whole = graph.call_method("reshape", (other, shape))
            permuted = graph.call_method("permute", (whole, back))
        shapes[permuted.name] = tuple(shape[axis] for axis in back)
        user.replace_input_with(other, permuted)
    user.replace_input_with(node, read)
    with graph.inserting_after(user):
        after = graph.call_method("permute", (user, tuple(axes)))
    user.replace_all_uses_with(after, delete_user_cb=lambda each: each is not after)
    shapes[after.name], shapes[user.name] = shapes[node.name], shapes[read.name]
    graph.erase_node(node)
    return True
