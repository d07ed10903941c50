"""OpenVINO's recurrent cells and sequences as ONNX's, with their gates reordered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..onnx.writer import shape_array
from .layer import Array, IrLayer

# Indices of ONNX's gates among OpenVINO's: an LSTM's are i, o, f, c in ONNX, and f, i, c, o in OpenVINO.
_GATES = {"LSTM": [1, 3, 0, 2], "GRU": [0, 1, 2], "RNN": [0]}


def _recur(layer: IrLayer) -> list[str]:
    kind = layer.kind.removesuffix("Cell").removesuffix("Sequence")
    given, gates, states = layer.given, _GATES[kind], 2 if kind == "LSTM" else 1
    is_cell = layer.kind.endswith("Cell")
    first = 1 + states + (not is_cell)
    filters, recurrent, bias = (_fix(layer, first + at, is_cell) for at in range(3))
    more = _take_attributes(layer, kind)
    data, *initial = (layer.input(place) for place in range(1 + states))
    if is_cell:
        data = layer.op("Unsqueeze", data, shape_array(0))
        initial = [layer.op("Unsqueeze", each, shape_array(0)) for each in initial]
        lengths = ""
    else:
        data = layer.op("Transpose", data, perm=[1, 0, 2])
        initial = [layer.op("Transpose", each, perm=[1, 0, 2]) for each in initial]
        lengths = _find_lengths(layer, 1 + states)
    taken: list[str | Array] = [
        data,
        _order(filters, gates),
        _order(recurrent, gates),
        _split_bias(bias, gates, given),
        lengths,
        *initial,
    ]
    outputs = layer.split(kind, 1 + states, *taken, hidden_size=int(given["hidden_size"]), **more)
    if is_cell:
        return [layer.op("Squeeze", each, shape_array(0)) for each in outputs[1:]]
    return [
        layer.op("Transpose", outputs[0], perm=[2, 1, 0, 3]),
        *(layer.op("Transpose", each, perm=[1, 0, 2]) for each in outputs[1:]),
    ]


def _fix(layer: IrLayer, place: int, is_cell: bool) -> Array:
    array = layer.fixed(place)
    if array is None:
        raise ValueError(f"lacks its input {place}")
    return array[None] if is_cell else array


def _find_lengths(layer: IrLayer, place: int) -> str:
    """Return the name of the sequences' lengths; empty if all have all steps."""
    steps = layer.shape()[1]
    if layer.is_fixed(place) and steps is not None and all(each == steps for each in layer.numbers(place)):
        return ""
    return layer.op("Cast", layer.input(place), to=6)


def _order(array: Array, gates: list[int]) -> Array:
    """Return weights, or biases, with ONNX's order of gates."""
    count, hidden = len(gates), array.shape[1] // len(gates)
    parts = array.reshape(array.shape[0], count, hidden, *array.shape[2:])
    return np.ascontiguousarray(parts[:, gates]).reshape(array.shape)


def _split_bias(bias: Array, gates: list[int], given: Mapping[str, Any]) -> Array:
    """Return biases of the data and of the state: all belong to the data, but a GRU's that is reset after the product with its state."""
    if not given.get("linear_before_reset"):
        return np.concatenate([_order(bias, gates), np.zeros_like(bias)], 1)
    hidden = bias.shape[1] // 4
    before, after = bias[:, : 3 * hidden], bias[:, 3 * hidden :]
    return np.concatenate([before, np.zeros_like(bias[:, : 2 * hidden]), after], 1)


def _take_attributes(layer: IrLayer, kind: str) -> dict[str, Any]:
    given = layer.given
    direction = str(given.get("direction", "forward")).lower()
    more: dict[str, Any] = {"direction": direction}
    names = [str(each).capitalize() for each in given.get("activations", [])]
    if names:
        more["activations"] = names * (2 if direction == "bidirectional" else 1)
    if given.get("clip"):
        more["clip"] = float(given["clip"])
    if kind == "GRU":
        more["linear_before_reset"] = int(bool(given.get("linear_before_reset")))
    if given.get("activations_alpha") or given.get("activations_beta"):
        raise ValueError("has activations with parameters (alpha, beta)")
    return more


RECURRENT: Mapping[str, Callable[[IrLayer], list[str]]] = {
    f"{kind}{form}": _recur for kind in _GATES for form in ("Cell", "Sequence")
}
