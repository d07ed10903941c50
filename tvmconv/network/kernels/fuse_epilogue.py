"""Fuse the operators that follow a convolution in a Relax function into its epilogue.

Models and networks are followed by one walk (`tvmconv.frontends.following`).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ...family import Extent, ProblemFamily
from ...frontends.families import family_like
from ...frontends.following import Effect, FollowedGraph, Following, Linear, Slopes, Sum, affine
from ...frontends.following import follow as walk
from ...problem import Problem
from ..ir.elementwise import RelaxOperators
from ..ir.free import same_shape
from ..ir.graph import Graph, by_channel, channel_axis
from ..ir.problem_of import NotCoveredError, filter_of, free_extents, is_product, problem_of
from .follow_integers import follow_integers

Vector = npt.NDArray[np.float64]


@dataclass(kw_only=True)
class Followed:
    """A kernel's problem, with the operators fused into it.

    Attributes
    ----------
    name
        Name of the convolution's variable.
    data
        Input of the convolution.
    problem
        Problem of the kernel.
    output
        Variable of the last fused operator.
    vectors
        Bias and steps' per-channel operands, by the names of the kernel's operands.
    residual
        Tensor that the step ``add`` adds.
    free
        Ranges of batch and spatial extents, where some are free; the problem is then one of many.
    is_product
        Whether it is a product of rows and a matrix.
    """

    name: str
    data: Any
    problem: Problem
    output: relax.Var
    vectors: dict[str, Vector] = field(default_factory=dict)
    residual: Any = None
    free: tuple[Extent, ...] = ()
    is_product: bool = False

    @property
    def family(self) -> ProblemFamily | None:
        """The family of the kernel's problems, where extents are free."""
        return family_like(self.problem, self.free[0], self.free[1:]) if self.free else None


@dataclass(kw_only=True)
class EpilogueChain(Followed):
    """A convolution with a constant filter, in OIX order and as the module has it (`constant`), and its fused operators."""

    filter: Vector
    constant: npt.NDArray[Any]


Taken = MutableMapping[Any, Any]


def follow(variable: relax.Var, graph: Graph, taken: Taken) -> EpilogueChain:
    """Return the convolution that a variable is bound to, with the operators after it fused.

    Raises
    ------
    NotCoveredError
        If no kernel can compute the convolution, with the reason.
    """
    call = graph.call(variable)
    assert call is not None
    array = graph.array(call.args[1])
    problem = problem_of(call)
    if array is None:
        raise NotCoveredError("its filter is not fixed: it cannot be prepacked")
    chain = EpilogueChain(
        name=variable.name,
        data=call.args[0],
        problem=problem,
        output=variable,
        filter=filter_of(call, array),
        constant=array,
        free=free_extents(call),
        is_product=is_product(call),
    )
    if problem.is_quantized:
        follow_integers(chain, _RelaxOperations(graph, problem), graph, taken)
        return chain
    found = _follow(chain, graph, taken, folds=True)
    chain.filter, bias = found.fold(problem, chain.filter, None)
    if bias is not None and bias.any():
        chain.vectors["bias"] = bias
    chain.problem = chain.problem.with_(bias="bias" in chain.vectors)
    return chain


def follow_steps(chain: Followed, graph: Graph, taken: Taken) -> None:
    """Fuse the operators after a kernel whose filter is not fixed: none is folded into the filter."""
    found = _follow(chain, graph, taken, folds=False)
    if (shift := found.linear()[1]) is not None:
        chain.vectors["bias"] = shift


def _follow(chain: Followed, graph: Graph, taken: Taken, folds: bool) -> Following:
    """Fuse all following operators with a chain, except those folded into its filter and bias."""
    source, channels = _RelaxOperations(graph, chain.problem), chain.problem.out_channels
    found = walk(source, chain.output, channels, taken, folds=folds, fuse=True, takes=True)
    chain.problem, chain.output, chain.residual = found.problem(chain.problem), found.last, found.residual
    chain.vectors |= {name: each() for name, each in found.arrays.items()}
    return found


class _RelaxOperations(RelaxOperators, FollowedGraph):
    """The operators of a function around one convolution or product; a product's problem has all rows on one axis."""

    def __init__(self, graph: Graph, problem: Problem) -> None:
        super().__init__(graph)
        self._problem, self._axis = problem, channel_axis(problem)

    def name(self, op: Any) -> Any:
        """Return the variable itself, which names its operator."""
        return op

    def effect(self, op: Any, read: Any, channels: int) -> Effect | None:
        """Return an operator's effect on a variable; None if no epilogue has it."""
        if isinstance(item := self._graph.values.get(op), relax.TupleGetItem):
            return None if self._graph.normalization(item) is None else Linear(None, None)
        call = self._graph.call(op)
        if call is None or sum(read.same_as(each) for each in call.args) != 1:
            return None
        if call.op.name == "relax.nn.batch_norm":
            return self._normalization(op, call, channels)
        if call.op.name == "relax.nn.prelu":
            return self._slopes(call, channels)
        if len(call.args) != 2:
            return None
        is_first = call.args[0].same_as(read)
        other = call.args[1 if is_first else 0]
        vector = by_channel(self._graph.array(other), self._problem, channels)
        if vector is not None:
            return affine(call.op.name.removeprefix("relax."), lambda: vector, is_first)
        if call.op.name != "relax.add" or not isinstance(other, relax.Var) or other.ty.dtype != call.ty.dtype:
            return None
        return Sum(other) if same_shape(read.ty, other.ty) else None

    def _normalization(self, op: relax.Var, call: relax.Call, channels: int) -> Effect | None:
        """Return the effect of a batch normalization by constants, of whose results only the first is read."""
        taken = self.readers(op)
        found = self._graph.normalization(self._graph.values.get(taken[0])) if len(taken) == 1 else None
        if found is None or found.axis != self._axis_in(call) or found.factor.size != channels:
            return None
        return Linear(lambda: found.factor, lambda: found.shift)

    def _axis_in(self, call: relax.Call) -> int:
        """Return the channel axis in a call's input, whose rank may differ from the problem's: the last one stays last."""
        own = self._problem.rank + 2
        return (self._axis - own if self._axis == own - 1 else self._axis) % int(call.args[0].ty.ndim)

    def _slopes(self, call: relax.Call, channels: int) -> Effect | None:
        """Return the effect of a PReLU with fixed slopes of each channel."""
        array, rank = self._graph.array(call.args[1]), int(call.args[0].ty.ndim)
        if array is None or array.size != channels or int(call.attrs.axis) % rank != self._axis_in(call):
            return None
        return Slopes(lambda: array.astype(np.float64).reshape(-1))
