"""`join_filters`: join a module's linear operators by constants where that costs less, and describe each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tvm
from tvm import relax
from tvm.error import InternalError
from tvm.relax.expr_functor import mutator

from ...targets.target import CpuTarget
from ..ir.free import dims_of, is_free, same_shape, symbols_in
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
        """Return its operators, applied to variables as replaced by `visit`."""
        ...


Found = Mapping[Any, Rewrite]
_Find = Callable[[Graph, CpuTarget, bool], Found]


def join_filters(
    mod: tvm.IRModule, target: CpuTarget, small: bool = False, typical: Mapping[str, int] | None = None
) -> tuple[tvm.IRModule, list[str]]:
    """Return a module from `tvmconv.network.rewrite.simplify` rewritten by these rules, and a line for each rewrite.

    Data must have its channels second. Filters are joined in float64, and rounded once.

    Parameters
    ----------
    small
        Whether filters must not become larger.
    typical
        Where extents are free: those for which estimates decide, by the names of their symbols.
    """
    lines: list[str] = []
    for find, find_free in ((_join, _join_free), (_move, _move_free)):

        def rewriting(
            new: tvm.IRModule, function: relax.Function, find: _Find = find, find_free: _Find = find_free
        ) -> _Binding:
            found: dict[Any, tuple[Rewrite, Mapping[Any, Any]]] = {
                variable: (rewrite, {}) for variable, rewrite in find(Graph(function), target, small).items()
            }
            values = _values(function, typical or {})
            fixed, own = fix_extents(function, values) if values else (None, {})
            if fixed is not None:
                for variable, rewrite in find_free(Graph(fixed), target, small).items():
                    if is_free(own[variable].ty):
                        found[own[variable]] = (rewrite, own)
            return _Binding(new, found, lines)

        mod = tidy(each_function(mod, rewriting, with_bindings=True))
    return mod, lines


def _values(function: relax.Function, typical: Mapping[str, int]) -> dict[Any, int]:
    """Return typical values of a function's symbols."""
    symbols = [each for param in function.params for size in dims_of(param.ty) or () for each in symbols_in(size)]
    return {each: typical[str(each.name)] for each in symbols if str(each.name) in typical}


def fix_extents(function: relax.Function, values: Mapping[Any, int]) -> tuple[relax.Function | None, Mapping[Any, Any]]:
    """Return a copy of a function with numbers for its symbols, and its variables by those of the copy; None if these extents are
    impossible, such as rows that are split into groups of seven.
    """
    # Only symbols that are themselves extents of a parameter can be bound, not those of n // 2; hence one more parameter.
    extents = relax.Var("extents", relax.ShapeType([*values]))
    named = relax.Function(
        [*function.params, extents], function.body, function.ret_ty, function.is_pure, function.attrs
    )
    try:
        fixed = named.bind_symbolic_vars(values)
    except (ValueError, InternalError):
        return None, {}
    return fixed, dict(zip(_variables(fixed), _variables(named), strict=True))


def _variables(function: relax.Function) -> list[Any]:
    bound = [binding.var for block in function.body.blocks for binding in block.bindings]
    return [*function.params, *bound]


def _join(graph: Graph, target: CpuTarget, small: bool) -> Found:
    """Return the rewrites that join maps; they run first, as they may leave one convolution for the others."""
    pooled: dict[Any, Rewrite] = dict(find_pooled(graph, target))
    return {**_join_free(graph, target, small), **pooled}


def _join_free(graph: Graph, target: CpuTarget, small: bool) -> Found:
    """Return those whose operators do not name extents."""
    return Branches(graph, target, small).find()


def _move(graph: Graph, target: CpuTarget, small: bool) -> Found:
    """Return the rewrites that fold moves of pixels into one convolution's filter."""
    # The last rewrite of a variable wins: a pointwise convolution with fewer pixels is cheapest.
    found: dict[Any, Rewrite] = dict(_move_free(graph, target, small))
    for find in (find_resized, find_shuffled):
        found.update(find(graph, target))
    return found


def _move_free(graph: Graph, target: CpuTarget, small: bool) -> Found:
    """Return those whose operators do not name extents. They may enlarge filters: upsampling turns 3 taps into 4."""
    found: dict[Any, Rewrite] = {}
    for find in () if small else (find_split, find_upsampled):
        found.update(find(graph, target))
    return found


@mutator
class _Binding(Rebinding):
    """Mutator that applies rewrites, each with the function's variables by those of the copy where it was found, if it was one."""

    def __init__(
        self, mod: tvm.IRModule, found: Mapping[Any, tuple[Rewrite, Mapping[Any, Any]]], lines: list[str]
    ) -> None:
        super().__init__(mod)
        self._found, self._lines = found, lines

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return a variable's replacement; None if it would not have the same shape at all extents."""
        if binding.var not in self._found:
            return None
        rewrite, own = self._found[binding.var]
        made = rewrite.written(lambda each: self.visit_expr(own.get(each, each)), self.builder_.emit)
        if own and not same_shape(made.ty, binding.var.ty):
            return None
        self._lines.append(f"{binding.var.name}: {rewrite.said}")
        return made
