"""Recurrent layers of OpenVINO; see `openvino_layers`."""

from __future__ import annotations

from typing import Any

import numpy as np
from openvino import opset13
from openvino_models import Make, constant, ints, weights


def sequence(kind: str, gates: int, direction: str = "forward", **given: Any) -> Make:
    def make(y: Any, **_: Any) -> Any:
        many = 2 if direction == "bidirectional" else 1
        biases = gates + bool(given.get("linear_before_reset"))
        states = [weights(2, many, 4) for _ in range(2 if kind == "lstm" else 1)]
        op = getattr(opset13, f"{kind}_sequence")(
            y,
            *states,
            ints(5, 5),
            weights(many, gates * 4, 8),
            weights(many, gates * 4, 4),
            weights(many, biases * 4),
            4,
            direction,
            **given,
        )
        return list(op.outputs())

    return make


def cell(kind: str, gates: int, **given: Any) -> Make:
    def make(y: Any, **_: Any) -> Any:
        first = opset13.gather(y, constant(0, np.int64), constant(1, np.int64))
        biases = gates + bool(given.get("linear_before_reset"))
        states = [weights(2, 4) for _ in range(2 if kind == "lstm" else 1)]
        op = getattr(opset13, f"{kind}_cell")(
            first, *states, weights(gates * 4, 8), weights(gates * 4, 4), weights(biases * 4), 4, **given
        )
        return list(op.outputs())

    return make


RECURRENT: dict[str, Make] = {
    "lstm": sequence("lstm", 4),
    "lstm both": sequence("lstm", 4, "bidirectional"),
    "gru": sequence("gru", 3, "reverse"),
    "gru before": sequence("gru", 3, linear_before_reset=True),
    "rnn": sequence("rnn", 1),
    "lstm cell": cell("lstm", 4),
    "gru cell": cell("gru", 3, linear_before_reset=True),
    "rnn cell": cell("rnn", 1, activations=["relu"], activations_alpha=[], activations_beta=[]),
}
