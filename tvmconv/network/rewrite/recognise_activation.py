"""Activations, recognised by what they compute.

A frontend spells an activation as several operators, each in its own way: hardswish is ``x * clip(x + 3, 0, 6) / 6`` or
``x * (clip(x + 3, 0, 6) / 6)``, ELU is two ReLUs. Operators on single numbers and one tensor are a function of one
variable; it is computed at many points in float64 and compared with each step that an epilogue has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf, inf

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ...epilogue import Step
from ...reference import apply_step
from ..ir.graph import ARITHMETIC, Graph, scalar
from ..ir.mutator import Rebinding, each_function

Points = npt.NDArray[np.float64]
_FUNCTIONS: Mapping[str, Callable[..., Points]] = {
    **ARITHMETIC,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.exp": np.exp,
    "relax.tanh": np.tanh,
    "relax.erf": np.vectorize(erf, otypes=[np.float64]),
    "relax.sigmoid": lambda x: apply_step(Step("sigmoid"), x, {}),
    "relax.nn.relu": lambda x: np.maximum(x, 0),
    "relax.nn.silu": lambda x: apply_step(Step("silu"), x, {}),
    "relax.nn.gelu": lambda x: apply_step(Step("gelu"), x, {}),
    "relax.nn.gelu_tanh": lambda x: apply_step(Step("gelu_tanh"), x, {}),
}
_FLOATS = ("float32", "float16", "bfloat16")
# Dense where activations bend, and far beyond where the last of them is straight.
_POINTS = np.concatenate([np.linspace(-12, 12, 1201), *(sign * np.geomspace(13, 1e4, 60) for sign in (-1, 1))])
# Tolerance of a formula's numbers: some units in the last place of an f32.
_TOLERANCE = 1e-6
# tanh's GELU has nine operators.
_MOST_OPERATORS = 10
_FIXED = tuple(map(Step, ("relu", "sigmoid", "tanh", "silu", "hardswish", "gelu", "gelu_tanh")))
# The operators of those that cost more than the products and bounds that they are spelled with, as `functions` legalizes them.
_OPERATORS: Mapping[str, Callable[[relax.Expr], relax.Expr]] = {
    "sigmoid": relax.op.sigmoid,
    "silu": relax.op.nn.silu,
    "gelu": relax.op.nn.gelu,
    "gelu_tanh": relax.op.nn.gelu_tanh,
}


def joined_activations(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with one operator for each activation that is no kernel's, such as GELU by erf after a normalization."""
    return each_function(mod, _Joining, with_bindings=True)


@mutator
class _Joining(Rebinding):
    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod)
        self._found, graph = {}, Graph(function)
        for variable in (*function.params, *graph.values):
            found = find_activation(variable, graph)
            if found is not None and found[1].name in _OPERATORS:
                self._found[found[0]] = variable, _OPERATORS[found[1].name]

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the operator of an activation."""
        if binding.var not in self._found:
            return None
        variable, operator = self._found[binding.var]
        return operator(self.visit_expr(variable))


def find_activation(variable: relax.Var, graph: Graph) -> tuple[relax.Var, Step] | None:
    """Return the variable that holds an activation of another, and which; None if none follows.

    Nothing else reads the other variable, or one between the two.
    """
    known: dict[relax.Var, Points] = {variable: _POINTS}
    with np.errstate(all="ignore"):
        while len(known) <= _MOST_OPERATORS:
            readers = {reader for each in known for reader in graph.readers(each)}
            if None in readers:
                return None
            computed = ((reader, _compute(reader, known, graph)) for reader in readers - known.keys())
            reader, made = next(((reader, made) for reader, made in computed if made is not None), (None, None))
            if reader is None or made is None:
                return None
            # Half precision is computed in f32, between conversions.
            converted = reader.ty.dtype != variable.ty.dtype
            if not converted and readers | known.keys() == {reader} | known.keys():
                step = recognise(made)
                if step is not None:
                    return reader, step
            known[reader] = made
    return None


def recognise(values: Points) -> Step | None:
    """Return the step that makes ``values`` of the points; None: there is none."""
    with np.errstate(all="ignore"):
        return next((step for step in (*_FIXED, *_fit(values)) if _equal(values, step)), None)


def _compute(variable: relax.Var, known: Mapping[relax.Var, Points], graph: Graph) -> Points | None:
    """Return what an operator makes of the points; None: it takes something else, too, or is not known."""
    call = graph.call(variable)
    if call is None or not any(isinstance(arg, relax.Var) and arg in known for arg in call.args):
        return None
    if call.op.name == "relax.nn.leakyrelu":
        return apply_step(Step("leaky", (float(call.attrs.alpha),)), known[call.args[0]], {})
    if call.op.name == "relax.astype":
        return known[call.args[0]] if str(call.attrs.dtype) in _FLOATS else None
    function = _FUNCTIONS.get(call.op.name)
    if function is None:
        return None
    args = [known[arg] if arg in known else scalar(graph.array(arg)) for arg in call.args]
    return None if any(arg is None for arg in args) else function(*args)


def _fit(values: Points) -> list[Step]:
    """Return the steps with numbers that agree with values at a few points."""

    def at(x: float) -> float:
        return float(values[np.abs(_POINTS - x).argmin()])

    low, high, middle = at(-1e4), at(1e4), at(0)
    lo, hi = (low if low == at(-5e3) else -inf), (high if high == at(5e3) else inf)
    slope = (at(0.1) - middle) / 0.1
    found = []
    for name, numbers in (
        ("clip", (lo, hi)),
        ("leaky", (-at(-1),)),
        ("elu", (-low,)),
        ("hardsigmoid", (slope, middle)),
    ):
        if name != "clip" or lo <= hi:
            found.append(Step(name, tuple(float(np.float32(number)) for number in numbers)))
    return found


def _equal(values: Points, step: Step) -> bool:
    expected = apply_step(step, _POINTS, {})
    return bool(np.all(np.abs(values - expected) <= _TOLERANCE * np.maximum(1, np.abs(_POINTS))))
