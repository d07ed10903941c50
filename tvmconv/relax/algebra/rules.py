"""`simplified`: a module whose fixed linear operators are joined where that costs less, and what was done, in words."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...targets.target import CpuTarget
from ..graph import Graph
from ..mutating import each_function, tidied
from .branches import Branches, Merge
from .pools import Pooled, find_pooled
from .reading import written
from .upsampling import Upsampled, find_upsampled

Moved = Upsampled | Pooled


def simplified(mod: tvm.IRModule, target: CpuTarget) -> tuple[tvm.IRModule, list[str]]:
    """Return a simplified module (`tvmconv.relax.simplify`) by these rules, and a line for each rewrite.

    Data has its channels second. Filters are joined in float64, and rounded once.
    """
    lines: list[str] = []

    def rewriting(new: tvm.IRModule, function: relax.Function) -> _Rewriting:
        graph = Graph(function)
        merges: dict[Any, Merge | Moved] = {**dict(find_upsampled(graph, target)), **dict(find_pooled(graph, target))}
        merges |= {each: merge for each, merge in Branches(graph, target).find().items() if each not in merges}
        lines.extend(_line(variable, merge) for variable, merge in merges.items())
        return _Rewriting(new, merges)

    return tidied(each_function(mod, rewriting, with_bindings=True)), lines


def _line(variable: Any, merge: Merge | Moved) -> str:
    if isinstance(merge, Upsampled):
        return f"{variable.name}: upsampling and its convolution, one transposed convolution"
    if isinstance(merge, Pooled):
        return f"{variable.name}: averaged before its pointwise convolution, not after it"
    what = f"{merge.count} branches" if merge.count > 1 else "maps one after the other"
    return f"{variable.name}: {what}, one kernel; {merge.saved:.2g} times fewer multiplications"


@mutator
class _Rewriting(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, merges: dict[Any, Merge | Moved]) -> None:
        super().__init__(mod)
        self._merges = merges

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Bind a merged variable to what computes it; copy every other binding."""
        merge = self._merges.get(binding.var)
        if merge is None:
            super().visit_var_binding_(binding)
            return
        emit = self.builder_.emit
        if not isinstance(merge, Merge):
            made = merge.written(self.visit_expr(merge.source), emit)
        else:
            made = written(merge.map, self.visit_expr(merge.source), emit, merge.rows)
            for other in merge.others:
                made = emit(relax.op.add(made, self.visit_expr(other)))
        self.builder_.emit_normalized(relax.VarBinding(binding.var, made))
