"""Tensors that a model makes in each call independently of its inputs: constants of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, fx
from torch.utils import _pytree as pytree

# What the names of such tensors begin with, in a model that torch.fx traced.
MADE = "_tensor_constant"


# A tensor, and how often it was written to when it was made.
Made = tuple[Tensor, int]


def without_state(traced: fx.GraphModule) -> list[Made]:
    """Return the tensors of a graph that its model makes, and keep them out of its state, as they are out of the model's."""
    names = [name for name in traced._buffers if name.startswith(MADE)]
    traced._non_persistent_buffers_set.update(names)
    return [(traced._buffers[name], traced._buffers[name]._version) for name in names]


def check_made(made: Sequence[Made], answer: Any) -> None:
    """Raise ValueError if somebody may write to such a tensor, which the next call would see.

    Parameters
    ----------
    made
        The tensors.
    answer
        What the graph that has them gave in its first call.
    """
    if any(each._version != version for each, version in made):
        raise ValueError("the model writes to a tensor that it makes in each call, and a graph makes it once")
    held = {each.untyped_storage().data_ptr() for each, _ in made}
    given = (each for each in pytree.tree_leaves(answer) if isinstance(each, Tensor))
    if any(each.untyped_storage().data_ptr() in held for each in given):
        raise ValueError("the model returns a tensor that it makes in each call, and a graph makes it once")
