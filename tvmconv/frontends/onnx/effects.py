"""ONNX's nodes that follow convolutions, and what they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ...epilogue import Step
from ...problem import Problem
from ..following import Activation, Chain, Effect, Linear, Source, Sum, by_channel, is_per_channel
from ..model import Constants
from .activations import activation, attribute
from .graph import OURS, Place
from .groups import find_group
from .tensors import Tensors

if TYPE_CHECKING:
    from onnx import NodeProto

# Tolerance of a formula's numbers, by the type that a model writes them in: some units in the last place.
_TOLERANCES = {onnx.TensorProto.FLOAT16: 2e-3, onnx.TensorProto.BFLOAT16: 1.6e-2}
_TOLERANCE = 1e-6
_EPSILON = 1e-5  # the default of ONNX's BatchNormalization


class OnnxOperations(Source):
    """The graph of a convolution, as :func:`~tvmconv.frontends.following.follow` reads it; a node is the first tensor that it gives.

    Parameters
    ----------
    place, problem
        The convolution, as the model has it.
    tensors
        Those of its graph.
    """

    def __init__(self, place: Place, problem: Problem, tensors: Tensors) -> None:
        self._scope, self._tensors, self._shape = place.scope, tensors, problem.output_shape
        data = place.scope.get(place.node.input[0])
        self._type = data.elem_type if data else onnx.TensorProto.UNDEFINED

    def readers(self, op: Any) -> Sequence[Any]:
        """Return the nodes that read a tensor, empty for whoever reads what the graph gives."""
        found = dict.fromkeys(self._tensors.readers(op))
        return ["".join(self._tensors.nodes[each].output[:1]) if each >= 0 else "" for each in found]

    def name(self, op: Any) -> str:
        """Return the tensor."""
        return str(op)

    def group(self, last: Any, channels: int) -> tuple[tuple[Any, ...], Activation] | None:
        """Return an activation of several nodes."""
        tolerance = _TOLERANCES.get(self._type, _TOLERANCE)
        found = find_group(last, self._tensors, len(self._shape), tolerance)
        return None if found is None else (tuple(node.output[0] for node in found[0]), Activation(found[1]))

    def effect(self, op: Any, read: Any, channels: int) -> Effect | None:
        """Return what a node does of a tensor that it reads once, None for what no kernel does."""
        node, tensors = self._tensors.maker(op), self._tensors
        if node is None or node.domain not in OURS or list(node.input).count(read) != 1:
            return None
        if node.op_type in ("Add", "Mul", "Sum") and len(node.input) == 2:
            return self._arithmetic(node, other_input(node, read), channels)
        if node.input[0] != read:
            return None
        if node.op_type == "BatchNormalization":
            if not self._is_inference(node):
                return None
            return Linear(lambda: normalization(node, tensors)[0], lambda: normalization(node, tensors)[1])
        step = activation(node, tensors, len(self._shape))
        if step is None and node.op_type == "PRelu" and self._is_per_channel(node.input[1]):
            return Activation(Step("prelu"), lambda: by_channel(tensors.value(node.input[1]), channels))
        return None if step is None else Activation(step)

    def _arithmetic(self, node: NodeProto, other: str, channels: int) -> Effect | None:
        value = self._scope.get(other)
        alike = value is not None and value.shape == self._shape and value.elem_type == self._type
        if node.op_type != "Sum" and self._is_per_channel(other):

            def numbers() -> np.ndarray:
                return by_channel(self._tensors.value(other), channels)

            return Linear(numbers, None) if node.op_type == "Mul" else Linear(None, numbers, other if alike else None)
        return Sum(other) if alike and node.op_type != "Mul" else None

    def _is_inference(self, node: NodeProto) -> bool:
        """Return whether a BatchNormalization has four fixed numbers for each channel."""
        if attribute(node, "training_mode", 0) or len(node.output) > 1:
            return False
        tensors = self._tensors
        return all(tensors.is_fixed(name) and tensors.shape(name) == self._shape[1:2] for name in node.input[1:5])

    def _is_per_channel(self, name: str) -> bool:
        """Return whether a tensor is fixed, and one number for each channel of the output that it meets, or for all."""
        return self._tensors.is_fixed(name) and is_per_channel(
            self._tensors.shape(name), self._shape[1], len(self._shape)
        )


def constants_of(place: Place, chain: Chain, problem: Problem, tensors: Tensors) -> Callable[[], Constants] | None:
    """Return what computes the arrays that the model fixes for a convolution, in ONNX's layouts, and what follows it.

    None if the filter or the bias depends on an input.
    """
    if not has_fixed_filter(place, tensors):
        return None

    def compute() -> Constants:
        filter_, *given = (tensors.value(name) for name in place.node.input[1:3] if name)
        return chain.constants(problem, filter_, given[0] if given else None, chain.last)

    return compute


def has_fixed_filter(place: Place, tensors: Tensors) -> bool:
    """Return whether the filter of a convolution, and its bias if it has one, are fixed."""
    return all(tensors.is_fixed(name) for name in place.node.input[1:3] if name)


def other_input(node: NodeProto, name: str) -> str:
    """Return the input of a node of two that is not `name`."""
    return str(node.input[1] if node.input[0] == name else node.input[0])


def normalization(node: NodeProto, tensors: Tensors) -> tuple[np.ndarray, np.ndarray]:
    """Return by what a BatchNormalization by fixed numbers multiplies each channel, and what it adds then."""
    scale, offset, mean, variance = (np.asarray(tensors.value(name), np.float64) for name in node.input[1:5])
    by = scale / np.sqrt(variance + attribute(node, "epsilon", _EPSILON))
    return by, offset - mean * by
