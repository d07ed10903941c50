"""Find the operations that follow a convolution in a model or a network, and fuse them into its epilogue.

Starting at the convolution's output, operations are fused as long as each tensor is read by the next one alone. So no other input
of a kernel can depend on its output, and fused models have no cycles. Products and sums with one number a channel are folded into the
filter and the bias; operations after the first activation or sum become steps of the epilogue. A source describes its operations'
effects (:class:`FollowedGraph`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Protocol

import numpy as np

from ..epilogue import Step, parse_epilogue
from ..errors import InvalidProblemError
from ..problem import Problem
from .activations import Operators, find_activation
from .folding import fold
from .model import Constants

# One number for each channel, (M,), f64, read on demand.
Numbers = Callable[[], np.ndarray]


@dataclass(frozen=True)
class Linear:
    """Each channel times `factor`, plus `shift`, of which one may be None.

    A shift stored for each element may instead be treated as the sum with the result of `other`.
    """

    factor: Numbers | None
    shift: Numbers | None
    other: Any = None


@dataclass(frozen=True)
class Slopes:
    """A PReLU with a slope for each channel."""

    slope: Numbers


@dataclass(frozen=True)
class Sum:
    """Sum with another operation's result of the same shape and type."""

    other: Any


Effect = Linear | Slopes | Sum


class FollowedGraph(Operators, Protocol):
    """A graph whose operations compute one tensor each, with channels."""

    def effect(self, op: Any, read: Any, channels: int) -> Effect | None:
        """Return an operation's effect on the result of `read`, of `channels` channels; None if no kernel supports it."""

    def name(self, op: Any) -> str:
        """Return an operation's unique name."""


@dataclass(frozen=True)
class Following:
    """A convolution and the operations after it that its kernel also computes.

    Parameters
    ----------
    last
        The operation that computes the kernel's output.
    nodes
        The operations after the convolution, in order.
    folded
        Effects that are folded into the filter and the bias.
    steps
        Effects of the other operations.
    arrays
        Operands of the steps, by the names of the kernel's arguments, ``scale`` and ``slope``.
    residual
        The operation that computes the summand of ``add``.
    """

    last: Any
    nodes: tuple[Any, ...] = ()
    folded: tuple[Linear, ...] = ()
    steps: tuple[Step, ...] = ()
    arrays: Mapping[str, Numbers] = field(default_factory=dict)
    residual: Any = None

    def problem(self, convolution: Problem) -> Problem:
        """Return the problem of a convolution's kernel with these operations fused."""
        added = any(each.shift is not None for each in self.folded)
        return convolution.with_(bias=convolution.bias or added, epilogue=self.steps)

    def linear(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the folded factor and shift of each channel; None: there is none."""
        factor: np.ndarray | None = None
        shift: np.ndarray | None = None
        for each in self.folded:
            if each.factor is not None:
                by = each.factor()
                factor, shift = by if factor is None else factor * by, None if shift is None else shift * by
            if each.shift is not None:
                shift = each.shift() if shift is None else shift + each.shift()
        return factor, shift

    def fold(
        self, problem: Problem, filter_: np.ndarray, bias: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the kernel's filter and bias, made from the convolution's own, in ONNX's layouts."""
        return fold(filter_, bias, *self.linear(), None if problem.op == "convolution" else problem.groups)

    def constants(self, problem: Problem, filter_: np.ndarray, bias: np.ndarray | None, output: str) -> Constants:
        """Return the kernel's arrays, made from the convolution's own filter and bias, in ONNX's layouts."""
        vectors = {name: each().astype(np.float32) for name, each in self.arrays.items()}
        return Constants(*self.fold(problem, filter_, bias), output, **vectors)


def follow(
    source: FollowedGraph,
    start: Any,
    channels: int,
    taken: MutableMapping[str, str],
    *,
    folds: bool,
    fuse: bool,
    takes: bool | None = None,
    biased: bool = False,
) -> Following:
    """Return the operations after a convolution that its kernel fuses.

    Parameters
    ----------
    source, start, channels
        The graph, the convolution in it, and the number of its output's channels.
    taken
        The convolution whose kernel computes each sum, by their names; a fused sum is added.
    folds
        Whether its filter and bias are fixed, so that operations can be folded into them.
    fuse
        False: operations are only folded into the filter and the bias.
    takes
        Whether its epilogue may have fixed numbers for each channel; by default as `folds`.
    biased
        Whether numbers that are added to its output become its bias, even if nothing else is folded.
    """
    chain = Following(start)
    takes = folds if takes is None else takes
    nodes, effect = _next(source, start, channels, False)
    if biased and isinstance(effect, Linear) and effect.factor is None:
        chain = Following(nodes[-1], nodes, (effect,))
    own = source.name(start)
    while True:
        nodes, effect = _next(source, chain.last, channels, fuse)
        if isinstance(effect, Linear) and effect.other is not None and (chain.steps or not folds):
            effect = Sum(effect.other)
        if isinstance(effect, Sum) and taken.get(source.name(nodes[-1]), own) != own:
            return chain
        if isinstance(effect, Linear) and not chain.steps and (folds or (takes and effect.factor is None)):
            longer: Following | None = replace(chain, folded=(*chain.folded, effect))
        else:
            longer = _extend(chain, effect, takes) if fuse else None
        if longer is None:
            return chain
        if isinstance(effect, Sum):
            taken[source.name(nodes[-1])] = own
        chain = replace(longer, last=nodes[-1], nodes=(*chain.nodes, *nodes))


def _next(source: FollowedGraph, last: Any, channels: int, fuse: bool) -> tuple[tuple[Any, ...], Effect | Step | None]:
    """Return the only readers of the last operation's result, and their effects."""
    # Activations first: some begin with an operation that could be folded into the filter.
    if fuse and (found := find_activation(source, last)):
        return found
    readers = source.readers(last)
    return (tuple(readers), source.effect(readers[0], last, channels)) if len(readers) == 1 else ((), None)


def _extend(chain: Following, effect: Effect | Step | None, takes: bool) -> Following | None:
    """Return a chain with another effect in its epilogue; None if no kernel can fuse it."""
    arrays, residual = chain.arrays, chain.residual
    if isinstance(effect, Linear) and effect.factor is not None and effect.shift is None and takes:
        step, arrays = Step("scale"), {**arrays, "scale": effect.factor}
    elif isinstance(effect, Slopes) and takes:
        step, arrays = Step("prelu"), {**arrays, "slope": effect.slope}
    elif isinstance(effect, Sum):
        step, residual = Step("add"), effect.other
    elif isinstance(effect, Step):
        step = effect
    else:
        return None
    try:
        steps = parse_epilogue((*chain.steps, step))
    except InvalidProblemError:
        return None
    return replace(chain, steps=steps, arrays=arrays, residual=residual)


def affine(name: str, numbers: Numbers, is_first: bool, other: Any = None) -> Linear | None:
    """Return the effect on data of an operator with one number for each channel; None if it is not linear, or divides by zero.

    Parameters
    ----------
    name
        The operator, by its name in :data:`tvmconv.frontends.activations.FUNCTIONS`.
    is_first
        Whether the data is the first operand.
    other
        As of :class:`Linear`.
    """
    if name == "add":
        return Linear(None, numbers, other)
    if name == "subtract":
        return Linear(None, lambda: -numbers()) if is_first else Linear(lambda: -np.ones_like(numbers()), numbers)
    if name == "multiply":
        return Linear(numbers, None)
    if name == "divide" and is_first and numbers().all():
        return Linear(lambda: 1 / numbers(), None)
    return None


def is_per_channel(shape: Sequence[int], channels: int, rank: int) -> bool:
    """Return whether a tensor has one number for each channel of (N, M, spatial...), or one number."""
    aligned = (1,) * (rank - len(shape)) + tuple(shape)
    return len(aligned) == rank and (prod(shape) == 1 or aligned == (1, channels, *(1,) * (rank - 2)))


def per_channel(numbers: np.ndarray, channels: int, rank: int) -> np.ndarray | None:
    """Return the f64 numbers of such a tensor, (M,); None for another tensor."""
    return by_channel(numbers, channels) if is_per_channel(numbers.shape, channels, rank) else None


def by_channel(numbers: np.ndarray, channels: int) -> np.ndarray:
    """Return a tensor of one number for each channel, or one number, as (M,) in f64."""
    return np.broadcast_to(numbers.reshape(-1).astype(np.float64), (channels,))
