"""Fuse the operators that follow a convolution in a Relax function into its epilogue.

From the convolution's output on, operators are taken while each value is read by the next alone, so nobody else misses it.
What multiplies or adds one number a channel goes into the filter and the bias, what comes after the first activation or
sum is a step of the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ...epilogue import Step
from ...errors import InvalidProblemError
from ...frontends.folding import fold
from ...problem import Problem
from ..ir.constants import static_shape
from ..ir.graph import Graph, affine, by_channel, channel_axis, scalar
from ..ir.problem_of import NotCoveredError, filter_of, problem_of
from ..rewrite.recognise_activation import find_activation

Vector = npt.NDArray[np.float64]


@dataclass(kw_only=True)
class Followed:
    """Problem of a kernel, with the operators that follow.

    Attributes
    ----------
    name
        Of the variable that it is bound to.
    data
        What is convolved.
    problem
        What the kernel computes.
    output
        The variable that the last operator is bound to.
    vectors
        The bias, and what the steps take for each channel, by the names of the kernel's operands.
    residual
        What ``add`` adds.
    """

    name: str
    data: Any
    problem: Problem
    output: relax.Var
    vectors: dict[str, Vector] = field(default_factory=dict)
    residual: Any = None


@dataclass(kw_only=True)
class EpilogueChain(Followed):
    """A convolution by a fixed filter, and what follows it.

    Attributes
    ----------
    filter
        In the order OIX.
    constant
        The filter as the module has it.
    """

    filter: Vector
    constant: npt.NDArray[Any]


def follow(variable: relax.Var, graph: Graph, sums: set[relax.Var]) -> EpilogueChain:
    """Return the convolution that a variable is bound to, and what follows it.

    Parameters
    ----------
    sums
        The sums that are part of other chains; those of this one are added.

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
    )
    walk = _Walk(chain, graph, sums)
    # Activations first: some begin with an operator that could be folded.
    while walk.activation() or walk.normalization() or walk.by_channel() or walk.slope() or walk.sum():
        pass
    return chain


def follow_steps(chain: Followed, graph: Graph, sums: set[relax.Var]) -> None:
    """Take what follows a kernel whose filter is not fixed, so that nothing goes into it."""
    walk = _Walk(chain, graph, sums)
    while walk.activation() or walk.by_channel() or walk.sum():
        pass


class _Walk:
    """Each method takes what comes next, if that is of its kind."""

    def __init__(self, chain: Followed, graph: Graph, sums: set[relax.Var]) -> None:
        self.chain, self._graph, self._sums = chain, graph, sums
        self._channel_axis = channel_axis(chain.problem)

    def activation(self) -> bool:
        """Take operators that compute an activation."""
        found = find_activation(self.chain.output, self._graph)
        return found is not None and self._step(found[1], found[0])

    def normalization(self) -> bool:
        """Take a batch normalization by fixed numbers."""
        reader, call = self._next("relax.nn.batch_norm")
        if call is None or reader is None or self.chain.problem.epilogue:
            return False
        taken = self._graph.readers(reader)
        item = taken[0] if len(taken) == 1 else None
        found = None if item is None else self._graph.normalization(self._graph.values.get(item))
        # Of a product the problem has all rows on one axis.
        rank, own = call.args[0].ty.ndim, self.chain.problem.rank + 2
        axis = self._channel_axis - own if self._channel_axis == own - 1 else self._channel_axis
        if found is None or found.axis != axis % rank:
            return False
        self._fold(found.factor, found.shift, item)
        return True

    def by_channel(self) -> bool:
        """Take an operator of one fixed number, or one a channel."""
        reader, call = self._next()
        if call is None or len(call.args) != 2:
            return False
        is_first = call.args[0].same_as(self.chain.output)
        problem = self.chain.problem
        vector = by_channel(self._graph.array(call.args[1 if is_first else 0]), problem, problem.out_channels)
        numbers = None if vector is None else affine(call.op.name, vector, is_first)
        if numbers is None:
            return False
        factor, shift = numbers
        if not self.chain.problem.epilogue and isinstance(self.chain, EpilogueChain):
            self._fold(factor, shift, reader)
            return True
        if not self.chain.problem.epilogue and (factor == 1).all():
            self._add(shift, reader)
            return True
        if shift.any():
            return False
        return self._step(Step("scale"), reader, scale=factor)

    def slope(self) -> bool:
        """Take a PReLU of fixed slopes."""
        reader, call = self._next("relax.nn.prelu")
        array = None if call is None else self._graph.array(call.args[1])
        number = scalar(array)
        if number is not None:
            return self._step(Step("leaky", (number,)), reader)
        if call is None or array is None or int(call.attrs.axis) % (self.chain.problem.rank + 2) != self._channel_axis:
            return False
        return self._step(Step("prelu"), reader, slope=array.astype(np.float64).reshape(-1))

    def sum(self) -> bool:
        """Take the addition of another tensor of the output's shape."""
        reader, call = self._next("relax.add")
        if reader is None or call is None or reader in self._sums:
            return False
        other = call.args[1] if call.args[0].same_as(self.chain.output) else call.args[0]
        # Of a product the problem has all rows on one axis.
        shape = static_shape(self.chain.output.ty)
        same = shape is not None and static_shape(other.ty) == shape and other.ty.dtype == call.ty.dtype
        if not same or not isinstance(other, relax.Var) or not self._step(Step("add"), reader):
            return False
        self.chain.residual = other
        self._sums.add(reader)
        return True

    def _next(self, name: str = "") -> tuple[relax.Var | None, relax.Call | None]:
        """Return the one reader of the output, and its call; None if there is another, or it is a call of something else."""
        readers = self._graph.readers(self.chain.output)
        reader = readers[0] if len(readers) == 1 else None
        return reader, self._graph.call(reader, name)

    def _fold(self, factor: Vector, shift: Vector, output: Any) -> None:
        """Put ``sum * factor + shift`` into the filter and the bias."""
        chain, problem = self.chain, self.chain.problem
        assert isinstance(chain, EpilogueChain)
        groups = None if problem.op == "convolution" else problem.groups
        chain.filter, bias = fold(chain.filter, chain.vectors.get("bias"), factor, shift, groups)
        if bias is not None and (problem.bias or shift.any()):
            chain.vectors["bias"] = bias
            chain.problem = problem.with_(bias=True)
        chain.output = output

    def _add(self, shift: Vector, output: Any) -> None:
        """Put ``sum + shift`` into the bias."""
        self.chain.vectors["bias"] = self.chain.vectors.get("bias", 0) + shift
        self.chain.problem = self.chain.problem.with_(bias=True)
        self.chain.output = output

    def _step(self, step: Step, output: Any, **vectors: Vector) -> bool:
        """Add a step to the epilogue, if it can have another; say whether."""
        try:
            self.chain.problem = self.chain.problem.with_(epilogue=(*self.chain.problem.epilogue, step))
        except InvalidProblemError:
            return False  # it has such a step, whose array it takes, already
        self.chain.vectors |= vectors
        self.chain.output = output
        return True
