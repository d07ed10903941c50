"""A compiled network beside onnxruntime: an operator that TVM's frontend takes for another shows in the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError, last_line
from ..frontends.onnx_session import open_session

if TYPE_CHECKING:
    from onnx import ModelProto

    from ..runtime.compiled_network import Array, CompiledNetwork

# Of an output in relative L2, or of its integers the share that differs. Rounding stays far below it; on random inputs another
# operator is of the order of 1: Resize by a scale that gives no whole size 0.7 to 1.9, a LayerNorm of several axes 2.
MOST = 1e-2
# Outputs that are less than this in the mean are compared as if they were so large: of a text detector's probabilities on noise,
# 4e-7, onnxruntime's own answers with and without its optimizations differ by 0.02.
SMALL = 1e-4


def differences(model: ModelProto, network: CompiledNetwork) -> list[str]:
    """Return in words which outputs of a network differ from onnxruntime's, on the same random inputs, and by how much.

    Parameters
    ----------
    model
        What was compiled, its weights within; as :func:`tvmconv.relax.onnx.fixed` returns it.
    network
        The network.

    Raises
    ------
    InputError
        If onnxruntime cannot read the model, as most in bf16, or refuses the inputs, such as an index of what has one element.
    """
    try:
        session = open_session(model)
    except Exception as refusal:  # its own have no other class
        raise InputError(f"it cannot read the model: {last_line(refusal)}") from refusal
    arrays = network.random_inputs()
    taken = {each.name for each in session.get_inputs()}
    try:
        expected = session.run(None, {name: each for name, each in arrays.items() if name in taken})
    except Exception as refusal:  # its own have no other class
        raise InputError(f"it refuses random inputs: {last_line(refusal)}") from refusal
    found = []
    for (name, answer), right in zip(network(**arrays).items(), expected, strict=True):
        if answer.shape != right.shape:
            found.append(f"{name} has the shape {answer.shape} instead of {right.shape}")
        elif (error := _error(answer, right)) > MOST:
            found.append(f"{name} by {error:.2g}")
    return found


def _error(answer: Array, right: Array) -> float:
    """Return how far an output is from onnxruntime's; what is not finite must be the same."""
    if right.dtype.kind in "biu":
        return float(np.mean(answer != right)) if right.size else 0.0
    got, want = answer.astype(np.float64), right.astype(np.float64)
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return float("inf")
    least = SMALL * max(float(np.count_nonzero(finite)), 1.0) ** 0.5
    return float(np.linalg.norm(got[finite] - want[finite]) / max(float(np.linalg.norm(want[finite])), least))
