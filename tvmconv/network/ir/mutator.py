"""Modules whose Relax functions a TVM mutator rewrites one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator

from .graph import Graph
from .nodes import name_new


class Rebinding(PyExprMutator):  # type: ignore[misc]
    """A mutator that binds some variables to something else, and copies every other binding."""

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return a binding's new value; None: visit the present one."""
        return None

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Bind a variable to the result of :meth:`rebound`."""
        made = self.rebound(binding)
        if made is None:
            super().visit_var_binding_(binding)
        else:
            self.builder_.emit_normalized(relax.VarBinding(binding.var, self.builder_.normalize(made)))


class GraphMutator(Rebinding):
    """A mutator that knows the graph of the function that it rewrites."""

    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod)
        self._graph = Graph(function)


def each_function(
    mod: tvm.IRModule, mutator_of: Callable[[tvm.IRModule, relax.Function], Any], with_bindings: bool = False
) -> tvm.IRModule:
    """Return a module with each Relax function, or each with bindings, rewritten by a mutator, and the functions that it adds.

    Parameters
    ----------
    mutator_of
        Makes the mutator of the new module and a function.
    with_bindings
        Leave functions alone whose body is a single expression, which are no graph.
    """
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function) and (not with_bindings or isinstance(function.body, relax.SeqExpr)):
            mutator = mutator_of(mod, function)
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
            mod = mutator.builder_.get()
    return name_new(mod)


def tidy(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module without aliases of variables, and without unused values."""
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(mod)
