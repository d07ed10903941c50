"""Elementwise operators of a Relax function, for the recognition of activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from ...epilogue import STEPS, Step
from ...frontends.activations import FUNCTIONS, Operators
from .graph import Graph, scalar
from .problem_of import DTYPES

_STEPS = [name for name, numbers in STEPS.items() if not numbers]


class RelaxOperators(Operators):
    """A graph, whose operators are variables."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def readers(self, op: Any) -> Sequence[Any]:
        """Return the variables that read a variable, each once; None among them: the function returns it."""
        return list(dict.fromkeys(self._graph.readers(op)))

    def function(self, op: Any) -> tuple[str | Step, Sequence[Any]] | None:
        """Return the elementwise function of a variable's operator, and its operands."""
        call = self._graph.call(op)
        if call is None:
            return None
        name = call.op.name.removeprefix("relax.").removeprefix("nn.")
        if name == "leakyrelu":
            return Step("leaky", (float(call.attrs.alpha),)), call.args[:1]
        if name == "prelu":
            slope = scalar(self._graph.array(call.args[1]))
            return None if slope is None else (Step("leaky", (slope,)), call.args[:1])
        if name == "astype":
            return ("same", call.args[:1]) if str(call.attrs.dtype) in DTYPES else None
        if name not in FUNCTIONS and name not in _STEPS:
            return None
        numbers = [scalar(self._graph.array(arg)) for arg in call.args]
        return name, [arg if each is None else each for arg, each in zip(call.args, numbers, strict=True)]

    def is_alike(self, op: relax.Var, other: relax.Var) -> bool:
        """Return whether two variables have the same type; with only scalars between them, their shapes are the same, too."""
        return bool(op.ty.dtype == other.ty.dtype)

    def dtype(self, op: relax.Var) -> str:
        """Return a variable's type."""
        return DTYPES.get(str(op.ty.dtype), "")
