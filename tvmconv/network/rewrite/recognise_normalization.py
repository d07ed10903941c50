"""Normalizations of rows, recognised by the values they compute.

Before its opset 17 ONNX has no operator for layer normalization, and none for one by the root mean square: each exporter writes nine
operators in its own way, and onnxruntime moves transpositions in between. The operators on a tensor are evaluated for a few rows in
float64, and compared with the two normalizations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ..ir.graph import ARITHMETIC, Graph, scalar
from ..ir.stand_ins import StandIn

Array = npt.NDArray[np.float64]
_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    **ARITHMETIC,
    "relax.square": np.square,
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: 1 / np.sqrt(x),
}
_ALONG: Mapping[str, Callable[..., Any]] = {"relax.mean": np.mean, "relax.sum": np.sum, "relax.variance": np.var}
_MOVES = ("relax.astype", "relax.permute_dims")
_FLOATS = ("float32", "float16")
# Limit above 14: a mean by a sum and a factor, two squares, the root, a transposition, and two conversions.
_MOST_OPERATORS = 16
# Tolerance of a formula whose factor, 1 / (elements of a row), was rounded to f32.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class RowsNormalization:
    """A normalization by the mean and the variance of rows, or by their root mean square.

    Attributes
    ----------
    axis
        The axis of the rows.
    order
        The axes of ``data`` in their order in the result.
    output
        The variable of the result.
    """

    data: relax.Var
    axis: int
    order: tuple[int, ...]
    epsilon: float
    takes_mean: bool
    output: relax.Var


@dataclass(frozen=True)
class _Value:
    """Value of a variable for the rows, with axes in the order of the data, and the order of its own axes."""

    array: Array
    order: tuple[int, ...]


def find_normalization(variable: relax.Var, graph: Graph) -> RowsNormalization | None:
    """Return the normalization that begins with a mean, sum or variance of data, or of its squares; None if there is none."""
    call = graph.call(variable)
    if call is None or call.op.name not in _ALONG or call.attrs.axis is None or len(call.attrs.axis) != 1:
        return None
    data, square = call.args[0], graph.call(call.args[0])
    shape = graph.shape(data)
    if shape is None or len(shape) < 2 or str(data.ty.dtype) not in _FLOATS or not isinstance(data, relax.Var):
        return None
    axis = int(call.attrs.axis[0]) % len(shape)
    if isinstance(shape[axis], StandIn) or shape[axis] < 2:
        return None
    if square is not None and square.op.name in ("relax.power", "relax.multiply", "relax.square"):
        found = _of(square.args[0], axis, variable, graph)
        if found is not None:
            return found
    return _of(data, axis, variable, graph)


def _of(data: Any, axis: int, first: relax.Var, graph: Graph) -> RowsNormalization | None:
    """Return the normalization of data computed by a chain of operators that contains `first`; None if there is none."""
    shape = graph.shape(data)
    if shape is None or not isinstance(data, relax.Var):
        return None
    rows = _rows(len(shape), axis, shape[axis])
    known: dict[Any, _Value | None] = {data: _Value(rows, tuple(range(len(shape))))}
    front: set[Any] = {first}
    with np.errstate(all="ignore"):
        while front and len(known) <= _MOST_OPERATORS:
            for each in front:
                made = _compute(each, known, graph)
                found = None if made is None else _recognise(made.array, rows, axis)
                if found is not None and made is not None and each.ty.dtype == data.ty.dtype:
                    return RowsNormalization(data, axis, made.order, *found, each)
            front = {reader for each in front if known[each] is not None for reader in graph.readers(each)}
            front -= {None, *known}
    return None


def _rows(rank: int, axis: int, extent: int) -> Array:
    """Return random rows, with variances both far below and far above usual epsilons."""
    shape = [extent if each == axis else 2 + each for each in range(rank)]
    rng = np.random.default_rng(0)
    deviations = np.expand_dims(10 ** rng.uniform(-4, 1, [each for at, each in enumerate(shape) if at != axis]), axis)
    rows: Array = (rng.standard_normal(shape) + 0.5) * deviations
    return rows


def _compute(variable: Any, known: dict[Any, _Value | None], graph: Graph) -> _Value | None:
    """Return a variable's value for the rows, and store it in `known`; None if it depends on other tensors or unknown operators."""
    if variable not in known:
        known[variable] = None
        if len(known) <= _MOST_OPERATORS:
            known[variable] = _apply(graph.call(variable), known, graph)
    return known[variable]


def _apply(call: relax.Call | None, known: dict[Any, _Value | None], graph: Graph) -> _Value | None:
    """Return an operator's result for known or computable operands; None for other operands and operators."""
    if call is None or call.op.name not in {*_ELEMENTWISE, *_ALONG, *_MOVES}:
        return None
    given: list[_Value | float | None] = []
    for arg in call.args:
        number = scalar(graph.array(arg))
        given.append(number if number is not None else _compute(arg, known, graph))
    values = [each for each in given if isinstance(each, _Value)]
    if not values or any(each is None for each in given) or any(each.order != values[0].order for each in values):
        return None
    name, first = call.op.name, values[0]
    if name == "relax.astype":
        return first if str(call.attrs.dtype) in _FLOATS else None
    if name == "relax.permute_dims":
        axes = call.attrs.axes
        return None if axes is None else _Value(first.array, tuple(first.order[int(axis)] for axis in axes))
    if name in _ALONG:
        if not call.attrs.keepdims or call.attrs.axis is None:
            return None
        axes = tuple(first.order[int(axis)] for axis in call.attrs.axis)
        return _Value(_ALONG[name](first.array, axis=axes, keepdims=True), first.order)
    return _Value(
        _ELEMENTWISE[name](*(each.array if isinstance(each, _Value) else each for each in given)), first.order
    )


def _recognise(values: Array, rows: Array, axis: int) -> tuple[float, bool] | None:
    """Return the epsilon, and whether the mean is subtracted, of the normalization of rows with these ``values``; None if there is none."""
    if values.shape != rows.shape:
        return None
    for takes_mean in (True, False):
        centered = rows - rows.mean(axis, keepdims=True) if takes_mean else rows
        square = (centered**2).mean(axis, keepdims=True)
        at = np.unravel_index(np.abs(centered / np.sqrt(square) * (square == square.min())).argmax(), rows.shape)
        least = float(square.min())
        epsilon = float((centered[at] / values[at]) ** 2) - least
        # Without an epsilon the difference is a rounding error.
        epsilon = epsilon if epsilon > _TOLERANCE * least else 0.0
        if np.isfinite(epsilon) and np.allclose(centered / np.sqrt(square + epsilon), values, 1e-5, _TOLERANCE):
            return epsilon, takes_mean
    return None
