"""What stands for tensors and numbers while a model's code is traced."""

from __future__ import annotations

import operator
import sys
from typing import Any

from torch import fx
from torch.fx import proxy as traced
from torch.fx.proxy import TraceError

from .makers import AsInt
from .questions import is_split, shape_and_part

# What a node's `meta` has where code adds in place.
IN_PLACE = "in_place"


class _Length:
    """Whose length is a number of axes, or of parts."""

    def __len__(self) -> int:
        this: Any = self
        node, tracer = this.node, this.tracer
        if is_split(node):
            return int(tracer.decided(node, len))
        found = shape_and_part(node)
        if found is None:
            raise TraceError("the length of what is computed is not known")
        tensor, part = found
        axes = int(tracer.decided(tracer.create_node("call_method", "dim", (tensor,), {}), int))
        return len(range(axes)[part])


class Proxy(_Length, fx.Proxy):  # type: ignore[misc]
    """Stands for what a node computes."""

    def __getattr__(self, k: str) -> Any:
        return Attribute(self, k)

    def __iadd__(self, other: Any) -> Any:
        total = self + other  # as torch.fx has it; fused with a convolution it keeps the type as in place
        total.node.meta[IN_PLACE] = True
        return total

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})

    def __int__(self) -> int:
        raise AsInt(sys._getframe(1).f_globals)

    def __round__(self, digits: int | None = None) -> Any:
        return self.tracer.create_proxy("call_function", round, (self, digits), {})


class Attribute(_Length, traced.Attribute):  # type: ignore[misc]
    """Stands for what a tensor is asked for, such as its shape, or for a method of its own."""
