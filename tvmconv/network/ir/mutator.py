"""Mutators of Relax functions, and their application to modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator

from .graph import Graph
from .nodes import name_new


class Rebinding(PyExprMutator):  # type: ignore[misc]
    """A mutator that replaces the values of some variables, and copies other bindings."""

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return a binding's new value; None: visit the present value."""
        return None

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Bind a variable to the result of :meth:`rebound`."""
        made = self.rebound(binding)
        if made is None:
            super().visit_var_binding_(binding)
        else:
            self.builder_.emit_normalized(relax.VarBinding(binding.var, self.builder_.normalize(made)))


class GraphMutator(Rebinding):
    """A mutator with the graph of its function."""

    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod)
        self._graph = Graph(function)


def each_function(
    mod: tvm.IRModule, mutator_of: Callable[[tvm.IRModule, relax.Function], Any], with_bindings: bool = False
) -> tvm.IRModule:
    """Return a module with its Relax functions rewritten by mutators, and the functions that these add.

    Parameters
    ----------
    mutator_of
        Function from the module so far and a function to the function's mutator.
    with_bindings
        Skip functions whose body is a single expression, which are no graph.
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
