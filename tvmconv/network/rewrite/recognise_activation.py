"""Activations outside kernels, each as one operator, which is vectorized."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ...frontends.activations import find_activation
from ..ir.elementwise import RelaxOperators
from ..ir.mutator import GraphMutator, each_function

# Operators of activations whose formulas contain more than products and bounds.
_OPERATORS: Mapping[str, Callable[[relax.Expr], relax.Expr]] = {
    "sigmoid": relax.op.sigmoid,
    "silu": relax.op.nn.silu,
    "gelu": relax.op.nn.gelu,
    "gelu_tanh": relax.op.nn.gelu_tanh,
}


def recognise_activations(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with one operator for each activation outside kernels, such as GELU by erf after a normalization."""
    return each_function(mod, _Joining, with_bindings=True)


@mutator
class _Joining(GraphMutator):
    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod, function)
        self._found, graph = {}, self._graph
        operators = RelaxOperators(graph)
        for variable in (*function.params, *graph.values):
            found = find_activation(operators, variable)
            if found is not None and found[1].name in _OPERATORS:
                self._found[found[0][-1]] = variable, _OPERATORS[found[1].name]

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the operator of an activation; None for other values."""
        if binding.var not in self._found:
            return None
        variable, operator = self._found[binding.var]
        return operator(self.visit_expr(variable))
