"""Recurrent layers by a C function (`lowering/native/operators/recurrent.c`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

FUNCTION = "tvmconv_network_recurrent"
# Columns computed together, 8 vectors of AVX2, which hides the sums' latency; the last panel has a multiple of `_PART` columns.
_PANEL, _PART = 64, 16
# Kinds in the order of their numbers in the function.
KINDS = ("tanh", "relu", "gru", "gru_linear", "lstm", "lstm_projected", "lstm_rounded")


def pack(matrix: npt.NDArray[Any], gates: int) -> npt.NDArray[Any]:
    """Return a matrix ``[gates * size, state]`` packed by gates, each in panels of columns whose rows are contiguous."""
    packed = []
    for each in np.split(matrix, gates):
        wide = np.pad(each.T, ((0, 0), (0, -len(each) % _PART)))
        packed += [wide[:, begin : begin + _PANEL].reshape(-1) for begin in range(0, wide.shape[1], _PANEL)]
    return np.concatenate(packed)


def recur(
    builder: relax.BlockBuilder,
    kind: str,
    arrays: Sequence[relax.Expr],
    backward: bool,
) -> relax.Expr:
    """Return all steps of a layer, and its last cell.

    Parameters
    ----------
    arrays
        The inputs' products of each step, ``[steps, batch, gates * size]``; the state's matrix, packed by :func:`pack`; the bias that a
        linear GRU adds to the last gate's product, ``[size]``, or the packed projection of a projected LSTM; the first state,
        ``[batch, state]``, and the first cell, ``[batch, size]``.
    backward
        Whether steps are computed from the last to the first.
    """

    def called(*given: te.Tensor) -> Any:
        steps, batch, _ = given[0].shape
        state, size = (each.shape[1] for each in given[3:])

        def body(read: Any, written: Any) -> Any:
            places = [each.data for each in (*read, *written)]
            numbers = [KINDS.index(kind), int(backward), steps, batch, size, state]
            integers = [
                tirx.Cast("int64", each) if not isinstance(each, int) else tirx.const(each, "int64") for each in numbers
            ]
            failed = tirx.call_extern("int32", FUNCTION, *places, *integers) != 0
            return tirx.IfThenElse(failed, tirx.Evaluate(tirx.tvm_throw_last_error()), None)

        shapes = [(steps, batch, state), (batch, size)]
        return te.extern(shapes, list(given), body, dtype=["float32", "float32"], name="steps")

    return builder.call_te(called, *arrays, primfunc_name_hint="recurrent")
