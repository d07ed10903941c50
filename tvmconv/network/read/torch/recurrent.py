"""PyTorch's LSTM, GRU and RNN (`whole_layers.py`) as loops over their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ....frontends.torch.memory import dense, numbers
from ..recurrent import GATES, multiply_steps, walk_steps
from .arguments import Converters, Given

_KINDS = {"lstm": "lstm", "gru": "gru_linear", "rnn_tanh": "tanh", "rnn_relu": "relu"}
# Positions of ONNX's gates among PyTorch's.
_ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}


def _convert(given: Given) -> relax.Expr:
    if given.dtype == "float64":
        raise ValueError("it is of float64; loops over steps compute in float32 only")
    layer, directions = given["layer"], 1 + given["bidirectional"]
    params = given.nodes["params"]
    if not given.fixed.keys() >= {*params}:
        raise ValueError("its weights are not fixed")
    weights = [numbers(dense(given.fixed[each].float())) for each in params]
    states = [given.of_type(each, "float32") for each in given["hx"]]
    width, size = int(states[0].ty.shape[2]), weights[1].shape[0] // GATES[_KINDS[layer]]
    kind = "lstm_projected" if width != size else _KINDS[layer]
    each = len(weights) // (given["num_layers"] * directions)
    rows, lasts = given.of_type(given["input"], "float32"), []
    for number in range(given["num_layers"]):
        found = []
        for place in range(number * directions, (number + 1) * directions):
            mine = weights[place * each : (place + 1) * each]
            projection = [mine.pop()] if kind == "lstm_projected" else []
            matrices, biases = ([_order(part, layer) for part in mine[begin : begin + 2]] for begin in (0, 2))
            biases = biases or [np.zeros(len(mine[0]), np.float32)] * 2
            cuts = [relax.op.strided_slice(state, [0], [place], [place + 1], assume_inbound=True) for state in states]
            before = [given.emit(relax.op.squeeze(given.emit(cut), [0])) for cut in cuts]
            backward = place % directions == 1
            product = multiply_steps(given.builder, rows, matrices[0])
            of_state = [matrices[1], *projection]
            found.append(walk_steps(given.builder, kind, product, of_state, biases, before, backward))
        rows = given.emit(relax.op.concat([steps for steps, *_ in found], 2))
        lasts += found
    ends = [given.emit(relax.op.concat([last[part] for last in lasts], 0)) for part in range(1, 1 + len(states))]
    return relax.Tuple([given.of_type(made, given.dtype) for made in (rows, *ends)])


def _order(array: Any, layer: str) -> Any:
    """Return an array with its gates reordered from PyTorch's order to ONNX's."""
    gates = np.split(array, GATES[_KINDS[layer]])
    return np.concatenate([gates[place] for place in _ORDERS.get(layer, (0,))])


RECURRENT: Converters = {"recurrent.default": _convert}
