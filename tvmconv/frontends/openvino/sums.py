"""OpenVINO's products and reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import TensorProto

from ..onnx.writer import shape_array
from .layer import Array, IrLayer

_LOGICAL = {"ReduceLogicalAnd": "ReduceMin", "ReduceLogicalOr": "ReduceMax"}


def _multiply(layer: IrLayer) -> str:
    """Write MatMul; vectors are not transposed, whatever its attributes."""
    operands = []
    for place, name in enumerate(("transpose_a", "transpose_b")):
        rank = layer.rank(place)
        order = [*range(rank)]
        if layer.given[name] and rank > 1:
            order[-2:] = order[:-3:-1]
        if layer.is_fixed(place):
            operands.append(layer.weights(place, lambda array, order=order: array.transpose(order)))  # type: ignore[misc]
        elif order != [*range(rank)]:
            operands.append(layer.op("Transpose", layer.input(place), perm=order))
        else:
            operands.append(layer.input(place))
    return layer.op("MatMul", *operands)


def _reduce(layer: IrLayer) -> str:
    """Write a reduction; without axes an Identity."""
    data, axes = layer.input(0), layer.axes(1)
    kind = _LOGICAL.get(layer.kind, layer.kind)
    if not axes:
        return layer.op("Identity", data)
    if layer.kind in _LOGICAL:
        data = layer.op("Cast", data, to=TensorProto.INT32)
    made = layer.op(kind, data, shape_array(*axes), keepdims=int(layer.given["keep_dims"]))
    return layer.cast(made) if layer.kind in _LOGICAL else made


def _accumulate(layer: IrLayer) -> str:
    given = {name: int(layer.given[name]) for name in ("exclusive", "reverse")}
    return layer.op("CumSum", layer.input(0), layer.integers(1), **given)


def _sum_by_letters(layer: IrLayer) -> str:
    return layer.op("Einsum", *layer.inputs(), equation=layer.given["equation"])


def _attend(layer: IrLayer) -> str:
    """Write ScaledDotProductAttention as products and a softmax; a floating-point mask is added, a boolean one selects."""
    query, key, value = (layer.input(place) for place in range(3))
    scale: str | Array
    if layer.count > 4:
        scale = layer.input(4)
    else:
        depth = layer.shape(0)[-1]
        if depth is None:
            raise ValueError("sums vectors of a free extent")
        scale = layer.number_of(depth**-0.5)
    order = [*range(layer.rank(1))]
    order[-2:] = order[:-3:-1]
    scores = layer.op("MatMul", layer.op("Mul", query, scale), layer.op("Transpose", key, perm=order))
    hidden = layer.number_of(-np.inf)
    if layer.given.get("causal"):
        rows, columns = layer.static(0)[-2], layer.static(1)[-2]
        scores = layer.op("Where", np.tril(np.ones((rows, columns), bool)), scores, hidden)
    elif layer.count > 3 and (layer.shape(3) or not layer.is_fixed(3)):
        mask = layer.input(3)
        seen = layer.dtype_of(3) == np.bool_
        scores = layer.op("Where", mask, scores, hidden) if seen else layer.op("Add", scores, mask)
    return layer.op("MatMul", layer.op("Softmax", scores, axis=-1), value)


_REDUCTIONS = ("L1", "L2", "LogicalAnd", "LogicalOr", "Max", "Mean", "Min", "Prod", "Sum")
SUMS: Mapping[str, Callable[[IrLayer], str]] = {
    "CumSum": _accumulate,
    "Einsum": _sum_by_letters,
    "MatMul": _multiply,
    "ScaledDotProductAttention": _attend,
    **{f"Reduce{name}": _reduce for name in _REDUCTIONS},
}
