"""ONNX nodes that follow convolutions, and their effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ...epilogue import Step
from ...problem import Problem
from ..following import Effect, FollowedGraph, Following, Linear, Slopes, Sum, affine, by_channel, is_per_channel
from ..model import Constants
from .activations import activation, attribute
from .graph import DTYPES, OURS, Place
from .tensors import Tensors

if TYPE_CHECKING:
    from onnx import NodeProto

# Nodes by the elementwise functions that they compute; a conversion that changes no number counts as none.
_ARITHMETIC = {"Add": "add", "Sum": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide"}
_FUNCTIONS = _ARITHMETIC | {
    "Pow": "power", "Neg": "negative", "Max": "maximum", "Min": "minimum", "Exp": "exp", "Erf": "erf", "Identity": "same",
    "Cast": "same",
}  # fmt: skip
_EPSILON = 1e-5  # the default of ONNX's BatchNormalization


class OnnxOperations(FollowedGraph):
    """Graph around a convolution for :func:`~tvmconv.frontends.following.follow`; a node is identified by its first output."""

    def __init__(self, place: Place, problem: Problem, tensors: Tensors) -> None:
        self._scope, self._tensors, self._shape = place.scope, tensors, problem.output_shape
        data = place.scope.get(place.node.input[0])
        self._type = data.elem_type if data else onnx.TensorProto.UNDEFINED

    def readers(self, op: Any) -> Sequence[Any]:
        """Return the nodes that read a tensor; an empty name stands for the graph's output."""
        found = dict.fromkeys(self._tensors.readers(op))
        return ["".join(self._tensors.nodes[each].output[:1]) if each >= 0 else "" for each in found]

    def name(self, op: Any) -> str:
        """Return the tensor."""
        return str(op)

    def function(self, op: Any) -> tuple[str | Step, Sequence[Any]] | None:
        """Return a node's elementwise function, and its operands."""
        node, tensors, rank = self._tensors.maker(op), self._tensors, len(self._shape)
        if node is None or node.domain not in OURS or not node.input or len(node.output) != 1:
            return None
        if (step := activation(node, tensors, rank)) is not None:
            return step, node.input[:1]
        name = _FUNCTIONS.get(node.op_type)
        # A conversion to any type but f32 or the convolution's changes numbers.
        exact = ("f32", DTYPES.get(self._type))
        if name is None or (node.op_type == "Cast" and (op not in self._scope or self.dtype(op) not in exact)):
            return None
        return name, [each if (number := tensors.number(each, rank)) is None else number for each in node.input]

    def is_alike(self, op: Any, other: Any) -> bool:
        """Return whether two tensors have the same type; their shapes agree, as operators between them have scalar operands."""
        return self.dtype(op) == self.dtype(other)

    def dtype(self, op: Any) -> str:
        """Return a tensor's type; if it is unknown, the convolution's."""
        value = self._scope.get(op)
        return DTYPES.get(self._type if value is None else value.elem_type, "")

    def effect(self, op: Any, read: Any, channels: int) -> Effect | None:
        """Return a node's effect on a tensor that it reads once; None if no kernel supports it."""
        node, tensors = self._tensors.maker(op), self._tensors
        if node is None or node.domain not in OURS or list(node.input).count(read) != 1:
            return None
        if node.op_type in _ARITHMETIC and len(node.input) == 2:
            return self._arithmetic(node, read, channels)
        if node.input[0] != read:
            return None
        if node.op_type == "BatchNormalization":
            if not self._is_inference(node):
                return None
            return Linear(lambda: normalization(node, tensors)[0], lambda: normalization(node, tensors)[1])
        if node.op_type == "PRelu" and self._is_per_channel(node.input[1]):
            return Slopes(lambda: by_channel(tensors.value(node.input[1]), channels))
        return None

    def _arithmetic(self, node: NodeProto, read: str, channels: int) -> Effect | None:
        is_first = node.input[0] == read
        other = node.input[1 if is_first else 0]
        value = self._scope.get(other)
        alike = value is not None and value.shape == self._shape and value.elem_type == self._type
        if self._is_per_channel(other):
            numbers = partial(self._numbers, other, channels)
            return affine(_ARITHMETIC[node.op_type], numbers, is_first, other if alike else None)
        return Sum(other) if alike and _ARITHMETIC[node.op_type] == "add" else None

    def _numbers(self, name: str, channels: int) -> np.ndarray:
        return by_channel(self._tensors.value(name), channels)

    def _is_inference(self, node: NodeProto) -> bool:
        """Return whether a BatchNormalization has four fixed numbers for each channel."""
        if attribute(node, "training_mode", 0) or len(node.output) > 1:
            return False
        tensors = self._tensors
        return all(tensors.is_fixed(name) and tensors.shape(name) == self._shape[1:2] for name in node.input[1:5])

    def _is_per_channel(self, name: str) -> bool:
        """Return whether a tensor is fixed, with one number for each channel of the output, or one number."""
        return self._tensors.is_fixed(name) and is_per_channel(
            self._tensors.shape(name), self._shape[1], len(self._shape)
        )


def constants_of(place: Place, chain: Following, problem: Problem, tensors: Tensors) -> Callable[[], Constants] | None:
    """Return a function that computes the fixed arrays of a convolution and the nodes after it, in ONNX's layouts.

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


def normalization(node: NodeProto, tensors: Tensors) -> tuple[np.ndarray, np.ndarray]:
    """Return the factor and the shift of each channel in a BatchNormalization with fixed numbers."""
    scale, offset, mean, variance = (np.asarray(tensors.value(name), np.float64) for name in node.input[1:5])
    by = scale / np.sqrt(variance + attribute(node, "epsilon", _EPSILON))
    return by, offset - mean * by
