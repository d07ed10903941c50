"""What follows a convolution in an ONNX model, as the epilogue of its kernel.

Starting at the convolution's output, nodes are fused as long as each tensor is read by the next one alone. So
nothing else that a kernel reads can depend on what it computes, and fused models have no cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

import onnx

from ..epilogue import Step, parse_epilogue
from ..errors import InvalidProblemError
from ..problem import Problem
from .onnx_activations import activation, attribute
from .onnx_graph import OURS, Place
from .onnx_groups import find_group
from .onnx_tensors import Tensors

if TYPE_CHECKING:
    from onnx import NodeProto

# How far the numbers of a formula may be off, by the type that a model writes them in: some units in the last place.
_TOLERANCES = {onnx.TensorProto.FLOAT16: 2e-3, onnx.TensorProto.BFLOAT16: 1.6e-2}
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Chain:
    """The nodes after a convolution that its kernel computes, too.

    Parameters
    ----------
    output
        The tensor that the last of them computes.
    nodes
        All of them, in order.
    folded
        Those that go into the filter and the bias, the first ones.
    steps
        What the others do.
    arrays
        The fixed tensors that the steps take, by the names of the kernel's arguments, ``scale`` and ``slope``.
    residual
        The tensor that ``add`` adds.
    """

    output: str
    nodes: tuple[NodeProto, ...] = ()
    folded: tuple[NodeProto, ...] = ()
    steps: tuple[Step, ...] = ()
    arrays: Mapping[str, str] = field(default_factory=dict)
    residual: str | None = None

    def problem(self, convolution: Problem) -> Problem:
        """Return what the kernel of a convolution computes with them."""
        added = any(node.op_type != "Mul" for node in self.folded)
        return convolution.with_(bias=convolution.bias or added, epilogue=self.steps)


def follow(place: Place, problem: Problem, tensors: Tensors, fuse: bool = True) -> Chain:
    """Return what follows a convolution and is computed with it.

    An Add of what two convolutions compute becomes part of the one that is followed first.

    Parameters
    ----------
    place, problem
        The convolution, as the model has it.
    tensors
        Those of its graph.
    fuse
        False: only what goes into the filter and the bias.
    """
    walk = _Walk(place, problem, tensors)
    # Groups first: some begin with a node that could be folded.
    while (fuse and walk.group()) or walk.fold() or (fuse and (walk.activation() or walk.operand())):
        pass
    return walk.chain


def has_fixed_filter(place: Place, tensors: Tensors) -> bool:
    """Whether the filter of a convolution, and its bias if it has one, are fixed."""
    return all(tensors.is_fixed(name) for name in place.node.input[1:3] if name)


def other_input(node: NodeProto, name: str) -> str:
    """Return the input of a node of two that is not `name`."""
    return str(node.input[1] if node.input[0] == name else node.input[0])


class _Walk:
    """Each method takes what comes next, if that is of its kind."""

    def __init__(self, place: Place, problem: Problem, tensors: Tensors) -> None:
        self._place, self._tensors = place, tensors
        self._is_fixed = has_fixed_filter(place, tensors)
        self._shape = problem.output_shape
        self._rank = len(self._shape)
        data = place.scope.get(place.node.input[0])
        self._type = data.elem_type if data else onnx.TensorProto.UNDEFINED
        self.chain = Chain(place.node.output[0])

    def fold(self) -> bool:
        """Take a node that goes into the filter and the bias."""
        node = self._next()
        if node is None or self.chain.steps or not self._is_fixed:
            return False
        if node.op_type == "BatchNormalization":
            folds = node.input[0] == self.chain.output and self._is_inference(node)
        else:
            folds = node.op_type in ("Add", "Mul") and self._is_per_channel(other_input(node, self.chain.output))
        if folds:
            self._extend([node], replace(self.chain, folded=(*self.chain.folded, node)))
        return folds

    def activation(self) -> bool:
        """Take an activation of one node."""
        node = self._next()
        if node is None or node.input[0] != self.chain.output:
            return False
        step = activation(node, self._tensors, self._rank)
        if step is not None:
            return self._take([node], step)
        if node.op_type == "PRelu" and self._is_fixed and self._is_per_channel(node.input[1]):
            return self._take([node], Step("prelu"), slope=node.input[1])
        return False

    def group(self) -> bool:
        """Take an activation of several nodes."""
        found = find_group(self.chain.output, self._tensors, self._rank, _TOLERANCES.get(self._type, _TOLERANCE))
        return found is not None and self._take(*found)

    def operand(self) -> bool:
        """Take a product with fixed factors, or a sum with another tensor."""
        node = self._next()
        if node is None or len(node.input) != 2:
            return False
        other = other_input(node, self.chain.output)
        if node.op_type == "Mul" and self._is_fixed and self._is_per_channel(other):
            return self._take([node], Step("scale"), scale=other)
        if node.op_type not in ("Add", "Sum") or self.chain.residual is not None or not self._is_residual(other):
            return False
        if not self._tensors.claim(node.output[0], self._place.number):
            return False
        self._take([node], Step("add"))
        self.chain = replace(self.chain, residual=other)
        return True

    def _next(self) -> NodeProto | None:
        """Return the only reader of what is computed so far; None if there is another, or it is of another domain."""
        readers = self._tensors.readers(self.chain.output)
        if len(readers) != 1 or readers[0] < 0:
            return None
        node = self._tensors.nodes[readers[0]]
        # A node may read it in a graph of its own.
        return node if node.domain in OURS and self.chain.output in node.input else None

    def _take(self, nodes: list[NodeProto], step: Step, **arrays: str) -> bool:
        """Take nodes, unless no epilogue can go on with their step."""
        steps = (*self.chain.steps, step)
        try:
            parse_epilogue(steps)
        except InvalidProblemError:
            return False
        self._extend(nodes, replace(self.chain, steps=steps, arrays={**self.chain.arrays, **arrays}))
        return True

    def _extend(self, nodes: list[NodeProto], chain: Chain) -> None:
        self.chain = replace(chain, output=nodes[-1].output[0], nodes=(*chain.nodes, *nodes))

    def _is_inference(self, node: NodeProto) -> bool:
        """Whether a BatchNormalization has four fixed numbers for each channel."""
        if attribute(node, "training_mode", 0) or len(node.output) > 1:
            return False
        tensors = self._tensors
        return all(tensors.is_fixed(name) and tensors.shape(name) == self._shape[1:2] for name in node.input[1:5])

    def _is_per_channel(self, name: str) -> bool:
        """Whether a tensor is fixed, and one number for each channel of the output that it is broadcast to, or for all."""
        if not self._tensors.is_fixed(name):
            return False
        extents = self._tensors.shape(name)
        aligned = (1,) * (self._rank - len(extents)) + extents
        return len(aligned) == self._rank and (
            prod(extents) == 1 or aligned == (1, self._shape[1], *(1,) * (self._rank - 2))
        )

    def _is_residual(self, name: str) -> bool:
        """Whether a tensor has the output's shape and type."""
        value = self._place.scope.get(name)
        return value is not None and value.shape == self._shape and value.elem_type == self._type
