"""One direction of a recurrent layer, as a product of all steps with its weights and a loop over the steps (`operators/recurrent.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ..ir.free import dims_of
from ..operators.recurrent import pack, recur

Array = npt.NDArray[Any]
# Number of gates of each kind that `recur` supports.
GATES = {"tanh": 1, "relu": 1, "gru": 3, "gru_linear": 3, "lstm": 4, "lstm_projected": 4, "lstm_rounded": 4}


def multiply_steps(builder: relax.BlockBuilder, data: relax.Expr, matrix: Array) -> relax.Expr:
    """Return the product of all steps, ``[steps, batch, inputs]`` in f32, and a matrix, ``[gates * size, inputs]``."""
    return builder.emit(relax.op.matmul(data, relax.const(np.ascontiguousarray(matrix.T))))


def walk_steps(
    builder: relax.BlockBuilder,
    kind: str,
    product: relax.Expr,
    matrices: Sequence[Array],
    biases: Sequence[Array],
    states: Sequence[relax.Expr],
    backward: bool,
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Return all steps ``[steps, batch, state]``, the last state and, of an LSTM, the last cell, ``[1, batch, size]``.

    Parameters
    ----------
    kind
        A key of `GATES`; gates are in ONNX's order.
    product
        The product of all steps and the input's matrix, ``[steps, batch, gates * size]`` in f32 (:func:`multiply_steps`).
    matrices
        The state's matrix, ``[gates * size, state]``, and that of a projection, ``[state, size]``.
    biases
        The biases of the input's product and of the state's, ``[gates * size]``.
    states
        The first state and, of an LSTM, the first cell.
    backward
        Whether steps are computed from the last to the first.
    """
    emit: Callable[[relax.Expr], relax.Expr] = builder.emit
    before, after = biases
    size = len(before) // GATES[kind]
    more = np.zeros(size, np.float32)
    if kind == "gru_linear":
        more = after[2 * size :]
        after = np.concatenate([after[: 2 * size], np.zeros(size, np.float32)])
    if kind == "lstm_projected":
        more = pack(matrices[1], 1)
    rows = emit(relax.op.add(product, relax.const(before + after)))
    matrix = pack(matrices[0], GATES[kind])
    made = emit(recur(builder, kind, [rows, relax.const(matrix), relax.const(more), *states, states[-1]][:5], backward))
    steps, cell = (emit(relax.TupleGetItem(made, part)) for part in range(2))
    extent = (dims_of(product.ty) or ())[0]
    begin, end = (0, 1) if backward else (extent - 1, extent)
    last = emit(relax.op.strided_slice(steps, [0], [begin], [end], assume_inbound=True))
    return steps, last, emit(relax.op.expand_dims(cell, 0))
