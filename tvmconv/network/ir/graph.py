"""A Relax function as a graph: the value and readers of each variable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ...problem import Problem
from .constants import constant
from .stand_ins import StandIns

# Entry function of a network.
MAIN = "main"
# Attribute of this function: the names of its outputs; without it they are numbered.
OUTPUT_NAMES = "tvmconv.output_names"
# NumPy's functions for arithmetic operators.
ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.power": np.power,
    "relax.negative": np.negative,
}


@dataclass(frozen=True)
class Normalization:
    """A batch normalization by constants.

    Attributes
    ----------
    data, axis
        The normalized tensor, and its channel axis.
    numbers
        Scale, shift, mean and variance.
    factor, shift
        The equivalent multiplier and addend of each channel.
    """

    data: Any
    axis: int
    numbers: tuple[npt.NDArray[Any], ...]
    factor: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]


class Graph:
    """The bindings of a function whose calls take variables and constants (A-normal form)."""

    def __init__(self, function: relax.Function) -> None:
        self.values: dict[relax.Var, Any] = {}
        self._readers: dict[relax.Var, list[relax.Var | None]] = {}
        self._stand_ins = StandIns()
        for block in function.body.blocks:
            for binding in block.bindings:
                if isinstance(binding, relax.VarBinding):
                    self.values[binding.var] = binding.value
                self._note(binding.value, binding.var)
        self._note(function.body.body, None)

    def readers(self, variable: relax.Var) -> list[relax.Var | None]:
        """Return the variables whose values read a variable, once for each argument; None stands for the function's result."""
        return self._readers.get(variable, [])

    def call(self, variable: relax.Var | None, name: str = "") -> relax.Call | None:
        """Return the operator call that a variable is bound to; None if it is bound to none, or not to one of `name`, if this is given."""
        value = self.values.get(variable) if variable is not None else None
        if not isinstance(value, relax.Call) or not hasattr(value.op, "name"):
            return None
        return value if name in ("", value.op.name) else None

    def shape(self, expr: Any) -> tuple[int, ...] | None:
        """Return the extents of a value or type, with stand-ins for free ones; None if they are unknown."""
        return self._stand_ins.shape(getattr(expr, "ty", expr))

    def array(self, expr: Any) -> npt.NDArray[Any] | None:
        """Return the array of a constant, or of a variable bound to one; None for other values."""
        return constant(self.values.get(expr) if isinstance(expr, relax.Var) else expr)

    def fields(self, expr: Any) -> list[Any]:
        """Return a tuple's fields; nothing if they are unknown."""
        value = self.values.get(expr) if isinstance(expr, relax.Var) else expr
        return list(value.fields) if isinstance(value, relax.Tuple) else []

    def normalization(self, item: Any) -> Normalization | None:
        """Return the batch normalization by constants whose first result an item is; None if there is none."""
        if not isinstance(item, relax.TupleGetItem) or item.index:
            return None
        call = self.call(item.tuple_value, "relax.nn.batch_norm")
        if call is None or getattr(call.attrs, "training", False):
            return None
        numbers = tuple(array for array in map(self.array, call.args[1:5]) if array is not None)
        if len(numbers) < 4:
            return None
        gamma, beta, mean, variance = (each.astype(np.float64) for each in numbers)
        factor = gamma / np.sqrt(variance + float(call.attrs.epsilon))
        axis = int(call.attrs.axis) % call.args[0].ty.ndim
        return Normalization(call.args[0], axis, numbers, factor, beta - mean * factor)

    def _note(self, value: Any, reader: relax.Var | None) -> None:
        def visit(expr: Any) -> None:
            if isinstance(expr, relax.Var):
                self._readers.setdefault(expr, []).append(reader)

        relax.analysis.post_order_visit(value, visit)


def scalar(array: npt.NDArray[Any] | None) -> float | None:
    """Return the number of an array with one element; None for other arrays."""
    return None if array is None or array.size != 1 else float(np.asarray(array, np.float64).reshape(()))


def channel_axis(problem: Problem) -> int:
    """Return the axis of channels in a problem's data and output."""
    return problem.rank + 1 if problem.data_format == "NXC" else 1


def along(array: npt.NDArray[Any] | None, rank: int, axis: int, channels: int) -> npt.NDArray[np.float64] | None:
    """Return one number for each channel from an array that varies along a tensor's channel axis only; None for other arrays."""
    if array is None or array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if array.size not in (1, channels) or any(size != 1 for at, size in enumerate(shape) if at != axis):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float64), (channels,)).copy()


def by_channel(array: npt.NDArray[Any] | None, problem: Problem, channels: int) -> npt.NDArray[np.float64] | None:
    """Return one number for each channel from an array that broadcasts along the other axes of a problem's data; None for other arrays."""
    return along(array, problem.rank + 2, channel_axis(problem), channels)
