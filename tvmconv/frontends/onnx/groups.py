"""Activations that an ONNX model spells as several nodes.

What nodes compute of a tensor x is a polynomial of x and of functions of x: ``0.5*x + 0.5*x*erf`` is GELU, whatever the
order of its nodes and wherever they multiply by a half. Polynomials are equal if their numbers are, within the
rounding of the type that the model writes them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isclose, isfinite, nan, pi, sqrt
from typing import TYPE_CHECKING

from ...epilogue import Step
from .activations import attribute, clip_bounds
from .graph import OURS
from .tensors import Tensors

if TYPE_CHECKING:
    from onnx import NodeProto

# The numbers before products of factors: of x, and of these functions of x.
#   erf(x/sqrt 2), tanh(sqrt(2/pi)*(x + 0.044715*x^3)), sigmoid(x), bound: min(max(x/6 + 0.5, 0), 1)
_Polynomial = Mapping[tuple[str, ...], float]
_X: _Polynomial = {("x",): 1.0}
_ROOT = sqrt(2 / pi)
_ARGUMENTS: dict[str, _Polynomial] = {
    "erf": {("x",): 1 / sqrt(2)},
    "tanh": {("x",): _ROOT, ("x", "x", "x"): _ROOT * 0.044715},
    "sigmoid": _X,
    "bound": {("x",): 1 / 6, (): 0.5},
}
_STEPS: list[tuple[Step, _Polynomial]] = [
    (Step("silu"), {("sigmoid", "x"): 1.0}),
    (Step("hardswish"), {("bound", "x"): 1.0}),
    (Step("hardsigmoid", (1 / 6, 0.5)), {("bound",): 1.0}),
    (Step("gelu"), {("x",): 0.5, ("erf", "x"): 0.5}),
    (Step("gelu_tanh"), {("x",): 0.5, ("tanh", "x"): 0.5}),
]
_FUNCTIONS = {"Erf": "erf", "Tanh": "tanh", "Sigmoid": "sigmoid"}
# tanh's GELU has nine nodes if x^3 is two products, and its factors of x four.
_MOST_NODES = 10
_HIGHEST_DEGREE = 4


def find_group(name: str, tensors: Tensors, rank: int, tolerance: float) -> tuple[list[NodeProto], Step] | None:
    """Return the nodes that compute an activation of a tensor, in order, and the activation.

    Nothing else reads the tensor, or one inside of the group.

    Parameters
    ----------
    name
        The tensor.
    tensors
        Those of its graph.
    rank
        Its number of dimensions.
    tolerance
        The relative error of the numbers in the model.
    """
    known: dict[str, _Polynomial] = {name: _X}
    group: list[int] = []
    while len(group) < _MOST_NODES:
        waiting = sorted({i for each in known for i in tensors.readers(each) if i >= 0}.difference(group))
        computed = ((i, _compute(tensors.nodes[i], known, tensors, rank, tolerance)) for i in waiting)
        i, made = next(((i, made) for i, made in computed if made is not None), (0, None))
        if made is None:
            return None
        group.append(i)
        output = tensors.nodes[i].output[0]
        if len(group) > 1 and all(set(tensors.readers(each)) <= set(group) for each in known):
            for step, polynomial in _STEPS:
                if _equal(made, polynomial, tolerance):
                    return [tensors.nodes[each] for each in group], step
        known[output] = made
    return None


def _compute(
    node: NodeProto, known: Mapping[str, _Polynomial], tensors: Tensors, rank: int, tolerance: float
) -> _Polynomial | None:
    """Return what a node computes; None if that is no polynomial of what is known, or of too high a degree."""
    if node.domain not in OURS or len(node.output) != 1 or not node.input:
        return None
    kind, made = node.op_type, None
    if kind in ("Add", "Sub", "Mul", "Div", "Pow") and len(node.input) == 2:
        a, b = (known.get(name) or _number(name, tensors, rank) for name in node.input)
        made = None if a is None or b is None else _arithmetic(kind, a, b)
    elif node.input[0] in known:
        made = _function(node, known[node.input[0]], tensors, tolerance)
    return made if made is not None and all(len(factors) <= _HIGHEST_DEGREE for factors in made) else None


def _number(name: str, tensors: Tensors, rank: int) -> _Polynomial | None:
    number = tensors.number(name, rank)
    return None if number is None else {(): number}


def _arithmetic(kind: str, a: _Polynomial, b: _Polynomial) -> _Polynomial | None:
    if kind == "Add":
        return _sum(a, b)
    if kind == "Sub":
        return _sum(a, _product(b, {(): -1.0}))
    if kind == "Mul":
        return _product(a, b)
    number = b[()] if set(b) == {()} else nan
    if kind == "Div":
        return _product(a, {(): 1 / number}) if isfinite(number) and number else None
    powers = {2.0: _product(a, a), 3.0: _product(_product(a, a), a)}
    return powers.get(number)


def _sum(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    return {factors: a.get(factors, 0.0) + b.get(factors, 0.0) for factors in {**a, **b}}


def _product(a: _Polynomial, b: _Polynomial) -> _Polynomial:
    made: dict[tuple[str, ...], float] = {}
    for one, number in a.items():
        for other, by in b.items():
            factors = tuple(sorted(one + other))
            made[factors] = made.get(factors, 0.0) + number * by
    return made


def _function(node: NodeProto, argument: _Polynomial, tensors: Tensors, tolerance: float) -> _Polynomial | None:
    """Return what a node of one input computes, if its argument is that of a formula."""
    kind, most = node.op_type, 1.0
    if kind == "HardSigmoid":
        alpha, beta = attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)
        name, argument = "bound", _sum(_product(argument, {(): alpha}), {(): beta})
    elif kind == "Clip":
        lo, most = clip_bounds(node, tensors) or (0.0, inf)
        if lo != 0 or not 0 < most < inf:
            return None
        name, argument = "bound", _product(argument, {(): 1 / most})
    elif kind in _FUNCTIONS:
        name = _FUNCTIONS[kind]
    else:
        return None
    return {(name,): most} if _equal(argument, _ARGUMENTS[name], tolerance) else None


def _equal(a: _Polynomial, b: _Polynomial, tolerance: float) -> bool:
    return all(isclose(a.get(f, 0.0), b.get(f, 0.0), rel_tol=tolerance) for f in {**a, **b})
