"""What follows a convolution in OpenVINO IR and in exported programs, as the epilogue of its kernel.

Starting at the convolution's output, operations are fused as long as each tensor is read by the next one alone.
A source says what each of its operations does (:class:`Source`); ONNX, whose models spell more, has a walk of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from ..epilogue import Step, parse_epilogue
from ..errors import InvalidProblemError
from ..problem import Problem
from .folding import fold
from .model import Constants


@dataclass(frozen=True)
class Linear:
    """Each channel times `factor`, plus `shift`, of which one may be None: numbers for each, (M,), f64."""

    factor: np.ndarray | None
    shift: np.ndarray | None


@dataclass(frozen=True)
class Activation:
    """A step; `slope`, (M,), is what ``prelu`` takes."""

    step: Step
    slope: np.ndarray | None = None


@dataclass(frozen=True)
class Sum:
    """The sum with what another operation computes, of the same shape and type."""

    other: Any


Effect = Linear | Activation | Sum
# What x times these activations of x is.
_GATED = {Step("sigmoid"): Step("silu"), Step("hardsigmoid", (1 / 6, 0.5)): Step("hardswish")}


class Source(Protocol):
    """A graph, whose operations compute one tensor each."""

    def readers(self, op: Any) -> Sequence[Any]:
        """Return the operations that read what one computes, each once; the graph's own output counts."""

    def effect(self, op: Any, read: Any, channels: int) -> Effect | None:
        """Return what an operation does of what `read` computes, which has so many channels; None for all else."""

    def is_product(self, op: Any, one: Any, other: Any) -> bool:
        """Whether an operation multiplies, element by element, what two others compute."""

    def name(self, op: Any) -> str:
        """Return an operation's name."""


@dataclass(frozen=True)
class Chain:
    """A convolution, and the operations after it that its kernel computes, too.

    Parameters
    ----------
    last
        The operation that computes the kernel's output.
    nodes
        The operations after the convolution, in order.
    factor, shift
        What goes into the filter and the bias, (M,); None if nothing does.
    steps
        What the others do.
    arrays
        What the steps take, by the names of the kernel's arguments, ``scale`` and ``slope``.
    residual
        The operation that computes what ``add`` adds.
    """

    last: Any
    nodes: tuple[Any, ...] = ()
    factor: np.ndarray | None = None
    shift: np.ndarray | None = None
    steps: tuple[Step, ...] = ()
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    residual: Any = None

    def problem(self, convolution: Problem) -> Problem:
        """Return what the kernel of a convolution computes with them."""
        return convolution.with_(bias=convolution.bias or self.shift is not None, epilogue=self.steps)

    def constants(self, problem: Problem, filter_: np.ndarray, bias: np.ndarray | None, output: str) -> Constants:
        """Return the arrays that the kernel takes, of the convolution's own filter and bias, in ONNX's layouts."""
        if self.factor is not None or self.shift is not None:
            groups = None if problem.op == "convolution" else problem.groups
            filter_, bias = fold(filter_, bias, self.factor, self.shift, groups)
        return Constants(filter_, bias, output, **{name: each.astype(np.float32) for name, each in self.arrays.items()})


def follow(
    source: Source, start: Any, channels: int, taken: set[str], *, folds: bool, fuse: bool, biased: bool = False
) -> Chain:
    """Return what follows a convolution and is computed with it.

    Parameters
    ----------
    source, start, channels
        The graph, the convolution in it, and the number of its output's channels.
    taken
        The names of sums that are part of a kernel, to which one is added.
    folds
        Whether its filter and its bias are fixed, so that others may go into them.
    fuse
        False: only what goes into the filter and the bias.
    biased
        Whether numbers that are added to what it computes are its bias, even if nothing else is folded.
    """
    chain = Chain(start)
    nodes, effect = _next(source, start, channels, False)
    if biased and isinstance(effect, Linear) and effect.factor is None:
        chain = Chain(nodes[-1], nodes, shift=effect.shift)
    while True:
        nodes, effect = _next(source, chain.last, channels, fuse)
        if isinstance(effect, Sum) and source.name(nodes[-1]) in taken:
            return chain
        longer = _extended(chain, effect, folds, fuse)
        if longer is None:
            return chain
        if isinstance(effect, Sum):
            taken.add(source.name(nodes[-1]))
        chain = replace(longer, last=nodes[-1], nodes=(*chain.nodes, *nodes))


def _next(source: Source, last: Any, channels: int, fuse: bool) -> tuple[tuple[Any, ...], Effect | None]:
    """Return the operations that alone read what the last one computes, and what they do."""
    readers = source.readers(last)
    if len(readers) == 1:
        return (readers[0],), source.effect(readers[0], last, channels)
    if len(readers) == 2 and fuse:
        for gate, product in (readers, reversed(readers)):
            effect = source.effect(gate, last, channels)
            gated = _GATED.get(effect.step) if isinstance(effect, Activation) else None
            if gated and len(source.readers(gate)) == 1 and source.is_product(product, last, gate):
                return (gate, product), Activation(gated)
    return (), None


def _extended(chain: Chain, effect: Effect | None, folds: bool, fuse: bool) -> Chain | None:
    """Return a chain that has an effect, too; None if no kernel goes on so."""
    if isinstance(effect, Linear) and not chain.steps and folds:
        factor, shift = chain.factor, chain.shift
        if effect.factor is not None:
            factor = effect.factor if factor is None else factor * effect.factor
            shift = None if shift is None else shift * effect.factor
        if effect.shift is not None:
            shift = effect.shift if shift is None else shift + effect.shift
        return replace(chain, factor=factor, shift=shift)
    if effect is None or not fuse:
        return None
    if isinstance(effect, Linear):
        if effect.factor is None or effect.shift is not None or not folds:
            return None
        longer = replace(chain, steps=(*chain.steps, Step("scale")), arrays={**chain.arrays, "scale": effect.factor})
    elif isinstance(effect, Sum):
        longer = replace(chain, steps=(*chain.steps, Step("add")), residual=effect.other)
    else:
        slope = {} if effect.slope is None else {"slope": effect.slope}
        if slope and not folds:
            return None
        longer = replace(chain, steps=(*chain.steps, effect.step), arrays={**chain.arrays, **slope})
    try:
        parse_epilogue(longer.steps)
    except InvalidProblemError:
        return None
    return longer


def per_channel(numbers: np.ndarray, channels: int, rank: int) -> np.ndarray | None:
    """Return one f64 number for each channel, (M,), of what is broadcast to (N, M, spatial...); None if it is no such."""
    aligned = (1,) * (rank - numbers.ndim) + numbers.shape
    if numbers.size == 1 and len(aligned) == rank:
        return np.full(channels, numbers.reshape(-1)[0], np.float64)
    if aligned != (1, channels, *(1,) * (rank - 2)):
        return None
    return numbers.reshape(-1).astype(np.float64)
