"""The arrays of a kernel that an ONNX model fixes: filter and bias, with what follows folded into them, and its steps'."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .folding import fold
from .model import Constants
from .onnx_activations import attribute
from .onnx_epilogue import Chain, has_fixed_filter, other_input
from .onnx_graph import Place
from .onnx_tensors import Tensors

if TYPE_CHECKING:
    from onnx import NodeProto

_EPSILON = 1e-5  # the default of ONNX's BatchNormalization


def constants_of(place: Place, chain: Chain, channels: int, tensors: Tensors) -> Callable[[], Constants] | None:
    """Return what computes the arrays that the model fixes for a convolution and what follows it.

    None if the filter or the bias depends on an input. What is folded into them is, in float64: an Add or a Mul of
    numbers for each channel, and a BatchNormalization, which makes them filter * s and (bias - mean) * s + b, with
    s = scale / sqrt(variance + epsilon).

    Parameters
    ----------
    place, chain
        The convolution, and what follows it.
    channels
        Of its output.
    tensors
        Those of its graph.
    """
    if not has_fixed_filter(place, tensors):
        return None

    def compute() -> Constants:
        filter_, *given = (tensors.value(name) for name in place.node.input[1:3] if name)
        bias = given[0] if given else None
        if chain.folded:
            groups = None if place.node.op_type == "Conv" else attribute(place.node, "group", 1)
            filter_, bias = fold(filter_, bias, *_folded(place, chain, channels, tensors), groups)
        vectors = {name: _vector(tensors.value(tensor), channels, np.float32) for name, tensor in chain.arrays.items()}
        return Constants(filter_, bias, chain.output, **vectors)

    return compute


def _folded(place: Place, chain: Chain, channels: int, tensors: Tensors) -> tuple[np.ndarray, np.ndarray | None]:
    """Return by what the folded nodes multiply each channel, and what they add then; None if they add nothing."""
    factor: np.ndarray = np.ones(channels)
    shift: np.ndarray | None = None
    added: np.ndarray | None
    before = place.node.output[0]
    for node in chain.folded:
        if node.op_type == "BatchNormalization":
            by, added = normalization(node, tensors)
        else:
            numbers = _vector(tensors.value(other_input(node, before)), channels, np.float64)
            by, added = (numbers, None) if node.op_type == "Mul" else (np.ones(channels), numbers)
        factor, shift = factor * by, None if shift is None else shift * by
        if added is not None:
            shift = added if shift is None else shift + added
        before = node.output[0]
    return factor, shift


def normalization(node: NodeProto, tensors: Tensors) -> tuple[np.ndarray, np.ndarray]:
    """Return by what a BatchNormalization by fixed numbers multiplies each channel, and what it adds then."""
    scale, offset, mean, variance = (np.asarray(tensors.value(name), np.float64) for name in node.input[1:5])
    by = scale / np.sqrt(variance + attribute(node, "epsilon", _EPSILON))
    return by, offset - mean * by


def _vector(numbers: np.ndarray, channels: int, dtype: type[np.floating]) -> np.ndarray:
    """Return one number for each channel of what has that, or one for all."""
    return np.broadcast_to(numbers.reshape(-1).astype(dtype), (channels,))
