"""`join_filters`: a module whose fixed linear operators are joined where that costs less, and what was done, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ...targets.target import CpuTarget
from ..ir.graph import Graph
from ..ir.mutator import Rebinding, each_function, tidy
from .branches import Branches
from .concatenation import find_split
from .pools import find_pooled
from .resizing import find_resized
from .shuffling import find_shuffled
from .upsampling import find_upsampled


class Rewrite(Protocol):
    """Replacement of a variable."""

    @property
    def said(self) -> str:
        """Description of the rewrite, in words."""
        ...

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators on what `visit` says stands for variables."""
        ...


Found = Mapping[Any, Rewrite]


def join_filters(mod: tvm.IRModule, target: CpuTarget, small: bool = False) -> tuple[tvm.IRModule, list[str]]:
    """Return a simplified module (`tvmconv.network.rewrite.simplify`) by these rules, and a line for each rewrite.

    Data has its channels second. Filters are joined in float64, and rounded once. With `small`, none becomes larger by that.
    """
    lines: list[str] = []
    for find in (_join, _move):

        def rewriting(
            new: tvm.IRModule, function: relax.Function, find: Callable[[Graph, CpuTarget, bool], Found] = find
        ) -> _Binding:
            found = find(Graph(function), target, small)
            lines.extend(f"{variable.name}: {rewrite.said}" for variable, rewrite in found.items())
            return _Binding(new, found)

        mod = tidy(each_function(mod, rewriting, with_bindings=True))
    return mod, lines


def _join(graph: Graph, target: CpuTarget, small: bool) -> Found:
    """Return what joins maps: one convolution may be left where the others are looked for."""
    pooled: dict[Any, Rewrite] = dict(find_pooled(graph, target))
    return {**Branches(graph, target, small).find(), **pooled}


def _move(graph: Graph, target: CpuTarget, small: bool) -> Found:
    """Return what moves pixels by the filter of one convolution."""
    # Of one variable the last is taken: a pointwise convolution of fewer pixels costs the least.
    found: dict[Any, Rewrite] = {}
    # The first two may give filters more taps: of upsampling's 3, 4.
    larger = () if small else (find_split, find_upsampled)
    for find in (*larger, find_resized, find_shuffled):
        found.update(find(graph, target))
    return found


@mutator
class _Binding(Rebinding):
    def __init__(self, mod: tvm.IRModule, found: Found) -> None:
        super().__init__(mod)
        self._found = found

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return what computes a variable instead."""
        rewrite = self._found.get(binding.var)
        return None if rewrite is None else rewrite.written(self.visit_expr, self.builder_.emit)
