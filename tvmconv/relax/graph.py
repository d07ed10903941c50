"""A Relax function as a graph: what each variable is bound to, and who reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ..problem import Problem
from .simplify import constant

# What operators of two arguments, and the sign, compute of arrays.
ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.power": np.power,
    "relax.negative": np.negative,
}


class Graph:
    """The bindings of a function whose calls take variables and constants (A-normal form).

    Attributes
    ----------
    values
        What each variable is bound to, in order.
    """

    def __init__(self, function: relax.Function) -> None:
        self.values: dict[relax.Var, Any] = {}
        self._readers: dict[relax.Var, list[relax.Var | None]] = {}
        for block in function.body.blocks:
            for binding in block.bindings:
                if isinstance(binding, relax.VarBinding):
                    self.values[binding.var] = binding.value
                self._note(binding.value, binding.var)
        self._note(function.body.body, None)

    def readers(self, variable: relax.Var) -> list[relax.Var | None]:
        """Return the variables whose values read one, each as often as it does; None: the function returns it."""
        return self._readers.get(variable, [])

    def call(self, variable: relax.Var | None, name: str = "") -> relax.Call | None:
        """Return the call of an operator that a variable is bound to, of `name` if one is given; None: of nothing such."""
        value = self.values.get(variable) if variable is not None else None
        if not isinstance(value, relax.Call) or not hasattr(value.op, "name"):
            return None
        return value if name in ("", value.op.name) else None

    def array(self, expr: Any) -> npt.NDArray[Any] | None:
        """Return the numbers of a constant, or of a variable bound to one; None: they are not fixed."""
        return constant(self.values.get(expr) if isinstance(expr, relax.Var) else expr)

    def _note(self, value: Any, reader: relax.Var | None) -> None:
        def visit(expr: Any) -> None:
            if isinstance(expr, relax.Var):
                self._readers.setdefault(expr, []).append(reader)

        relax.analysis.post_order_visit(value, visit)


def scalar(array: npt.NDArray[Any] | None) -> float | None:
    """Return the number of an array of one element; None if it has several, or is None."""
    return None if array is None or array.size != 1 else float(np.asarray(array, np.float64).reshape(()))


def channel_axis(problem: Problem) -> int:
    """Return the axis of channels of what a problem reads and computes."""
    return problem.rank + 1 if problem.data_format == "NXC" else 1


def by_channel(array: npt.NDArray[Any] | None, problem: Problem, channels: int) -> npt.NDArray[np.float64] | None:
    """Return the numbers of an array that has one for each channel, or one for all; None: it is another, or none."""
    rank = problem.rank + 2
    if array is None or array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(size != 1 for axis, size in enumerate(shape) if axis != channel_axis(problem)):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float64), (channels,)).copy()
