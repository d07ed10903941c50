"""Recognise activations by the values they compute, in graphs of models and of networks.

An activation is one operator or several, different for each frontend: hardswish is ``x * clip(x + 3, 0, 6) / 6`` or
``x * (clip(x + 3, 0, 6) / 6)``, ELU is two ReLUs. Operators on numbers and one tensor are a function of one variable, which is
computed at many points in float64 and compared with each activation of epilogues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import erf, inf
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..epilogue import Step
from ..reference import apply_step

Points = npt.NDArray[np.float64]
# Functions of points and numbers, by the names that graphs use. A graph may name a step, too.
FUNCTIONS: Mapping[str, Callable[..., Points]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "negative": np.negative,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "exp": np.exp,
    "erf": np.vectorize(erf, otypes=[np.float64]),
    "same": lambda x: x,
}
_UNARY = ("negative", "exp", "erf", "same")
_MOST = float(np.finfo(np.float32).max)
# Dense where activations bend, and up to f32's largest numbers, as any number may be a bound.
POINTS = np.concatenate([np.linspace(-12, 12, 1201), *(sign * np.geomspace(13, _MOST, 400) for sign in (-1, 1))])
_SIZES = np.maximum(1, np.abs(POINTS))
# Tolerance of a formula's numbers: some units in the last place of an f32.
_TOLERANCE = 1e-6
# Tolerance of a formula rounded to 16 bits: three quarters of the largest rounding error, so that a neighbouring factor is detected.
_ROUNDED = {"f16": 3 * 2.0**-13, "bf16": 3 * 2.0**-10}
_FORMULAS = tuple(map(Step, ("silu", "hardswish", "gelu", "gelu_tanh")))
_FIXED = (*map(Step, ("relu", "sigmoid", "tanh")), *_FORMULAS)
# GELU by tanh has nine operators.
_MOST_OPERATORS = 10


class Operators(Protocol):
    """Graph whose operators compute one tensor each."""

    def readers(self, op: Any) -> Sequence[Any]:
        """Return the operators that read another's result, each once; the graph's own output counts."""

    def function(self, op: Any) -> tuple[str | Step, Sequence[Any]] | None:
        """Return an operator's elementwise function and its operands, numbers and operators; None if it has none.

        The function is a step, the name of a step without numbers, or one of `FUNCTIONS`.
        """

    def is_alike(self, op: Any, other: Any) -> bool:
        """Return whether two operators' results have the same type and shape, as far as these are known."""

    def dtype(self, op: Any) -> str:
        """Return the type of an operator's result by its name in a Problem; another text for other types."""


def find_activation(graph: Operators, start: Any) -> tuple[tuple[Any, ...], Step] | None:
    """Return the operators that compute an activation of the result of `start`, in order, and the activation; None if none follows.

    Nothing else reads that result, or the operators' results before the last.
    """
    known: dict[Any, Points] = {start: POINTS}
    with np.errstate(all="ignore"):
        while len(known) <= _MOST_OPERATORS:
            readers = dict.fromkeys(reader for each in known for reader in graph.readers(each) if reader not in known)
            computed = ((reader, _compute(graph, reader, known)) for reader in readers)
            last, made = next(((reader, made) for reader, made in computed if made is not None), (None, None))
            if made is None:
                return None
            # Models in half precision may compute the activation in f32, between conversions.
            if len(readers) == 1 and graph.is_alike(last, start):
                step = recognise(made, graph.dtype(start))
                if step is not None:
                    return (*list(known)[1:], last), step
            known[last] = made
    return None


def recognise(values: Points, dtype: str = "f32") -> Step | None:
    """Return the step whose results for `POINTS` are nearest to `values` and within its tolerance; None: there is none.

    The tolerance of a formula allows for numbers rounded to `dtype`.
    """
    nearest: tuple[float, Step | None] = (1.0, None)
    with np.errstate(all="ignore"):
        for step, right in (
            *_compute_fixed().items(),
            *((each, apply_step(each, POINTS, {})) for each in _fit(values)),
        ):
            rounded = step in _FORMULAS or step.name == "hardsigmoid"
            tolerance = _ROUNDED.get(dtype, _TOLERANCE) if rounded else _TOLERANCE
            off = np.abs(values - right) / _SIZES
            error = float(off.max()) / tolerance  # relative to the largest allowed
            if error <= 1 and (nearest[1] is None or error < nearest[0]):
                nearest = error, step
    return nearest[1]


@cache
def _compute_fixed() -> dict[Step, Points]:
    """Return the steps without numbers, with their values at `POINTS`."""
    return {step: apply_step(step, POINTS, {}) for step in _FIXED}


def _compute(graph: Operators, op: Any, known: Mapping[Any, Points]) -> Points | None:
    """Return an operator's values at the points; None if it reads another tensor, or is unknown."""
    found = graph.function(op)
    if found is None:
        return None
    function, operands = found
    args = [each if isinstance(each, float) else known.get(each) for each in operands]
    if any(arg is None for arg in args) or all(isinstance(each, float) for each in operands):
        return None
    if isinstance(function, str) and function in FUNCTIONS:
        return FUNCTIONS[function](*args) if len(args) == (1 if function in _UNARY else 2) else None
    return apply_step(Step(function) if isinstance(function, str) else function, np.asarray(args[0]), {})


def _fit(values: Points) -> list[Step]:
    """Return the steps with numbers, fitted to values at a few points."""

    def at(x: float) -> float:
        return float(values[np.abs(POINTS - x).argmin()])

    low, high, middle = at(-_MOST), at(_MOST), at(0)
    lo, hi = (low if low == at(-_MOST / 2) else -inf), (high if high == at(_MOST / 2) else inf)
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
