"""Which nodes of a graph depend on shapes: numbers of axes, sizes, and what code computes of them before it branches."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.proxy import TraceError

from .operators import option

# By a function or a method that tells a number of a tensor's shape: whether it is the number of axes alone.
_NUMBERS = {"dim": True, "ndimension": True, "ndim": True, "size": False, "shape": False, "numel": False}
# What code computes of sizes before it decides by them.
_COMPUTED = (
    operator.getitem, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.mod,
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.and_, operator.or_,
    operator.neg, math.ceil, math.floor, max, min, round, int,
)  # fmt: skip


def by_axes(node: Any, value: Callable[[Any], Any]) -> bool:
    """Return whether a number depends on nothing but numbers of axes, or on tensors of the model alone.

    Raises
    ------
    TraceError
        If it depends on more than shapes.
    """
    if _is_the_models(node):
        return True
    if node.op == "call_method" and node.target in _NUMBERS:
        return _NUMBERS[node.target]
    if node.op == "call_function" and node.target is getattr and node.args[1] in _NUMBERS:
        return _NUMBERS[node.args[1]]
    if is_split(node):
        return True
    if node.op == "placeholder" and _is_numbers(value(node)):
        return False  # as sizes are
    if node.op != "call_function" or node.target not in _COMPUTED:
        raise TraceError(f"the code decides by a value that is computed: {node.format_node()}")
    of_axes = [by_axes(each, value) for each in node.all_input_nodes]  # all, since each may refuse
    return all(of_axes)


# What returns the parts of a tensor.
_SPLITS = (torch.split, "split", torch.chunk, "chunk")


def is_split(node: Any) -> bool:
    """Whether a node is the parts of a tensor along its second axis: channels, whose number weights fix, not inputs."""
    return node.target in _SPLITS and option(node, 2, "dim") == 1


def shape_and_part(node: Any) -> tuple[Any, slice] | None:
    """Return the node of a tensor whose shape a node is, and which part of it; None if it is no shape."""
    if node.target is operator.getitem and isinstance(node.args[1], slice):
        base, part = node.args
        within = shape_and_part(base)
        return (within[0], part) if within is not None and within[1] == slice(None) else None
    by_method = node.op == "call_method" and node.target == "size" and len(node.args) == 1 and not node.kwargs
    return (node.args[0], slice(None)) if by_method or (node.target is getattr and node.args[1] == "shape") else None


def _is_numbers(value: Any) -> bool:
    """Whether a value is a number, or a tuple of numbers, as of a tensor's shape."""
    return type(value) is int or (isinstance(value, tuple) and all(map(_is_numbers, value)))


def _is_the_models(node: Any) -> bool:
    """Whether a node is computed of tensors of the model alone."""
    if node.op not in ("call_function", "call_method"):
        return bool(node.op == "get_attr")
    if node.target is getattr and node.args[1] in ("dtype", "device"):
        return False  # the copy may be told to compute in another type
    return bool(node.all_input_nodes) and all(map(_is_the_models, node.all_input_nodes))


def is_number_of_channels(node: Any) -> bool:
    """Whether a node is how many indices a tensor's second axis has."""
    if node.target is operator.getitem and node.args[1] == 1:
        found = shape_and_part(node.args[0])
        return found is not None and found[1] == slice(None)
    return node.op == "call_method" and node.target == "size" and node.args[1:] == (1,)


def text_of(node: Any) -> str:
    """Return a condition as a person would write it, for messages."""
    if not isinstance(node, fx.Node):
        return str(node)
    if node.op == "call_function":
        return f"{node.target.__name__}({', '.join(map(text_of, node.args))})"
    if node.op == "call_method":
        return f"{text_of(node.args[0])}.{node.target}({', '.join(map(text_of, node.args[1:]))})"
    return str(node.name)
