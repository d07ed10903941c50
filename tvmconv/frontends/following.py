"""Find the operations that follow a convolution in a model, and fuse them into its epilogue.

Starting at the convolution's output, operations are fused as long as each tensor is read by the next one alone. So nothing else
that a kernel reads can depend on what it computes, and fused models have no cycles. A source says what each of its operations
does (:class:`Source`).
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
from .folding import fold
from .model import Constants

# Numbers for each channel, (M,), f64, which are read when they are asked for.
Numbers = Callable[[], np.ndarray]


@dataclass(frozen=True)
class Linear:
    """Each channel times `factor`, plus `shift`, of which one may be None.

    A shift that is there for each element may be the sum with what `other` computes, as well.
    """

    factor: Numbers | None
    shift: Numbers | None
    other: Any = None


@dataclass(frozen=True)
class Activation:
    """A step; `slope` is what ``prelu`` takes."""

    step: Step
    slope: Numbers | None = None


@dataclass(frozen=True)
class Sum:
    """The sum with what another operation computes, of the same shape and type."""

    other: Any


Effect = Linear | Activation | Sum
# Activations that are x times another activation of x.
_GATED = {Step("sigmoid"): Step("silu"), Step("hardsigmoid", (1 / 6, 0.5)): Step("hardswish")}


class Source(Protocol):
    """A graph, whose operations compute one tensor each."""

    def readers(self, op: Any) -> Sequence[Any]:
        """Return the operations that read what one computes, each once; the graph's own output counts."""

    def effect(self, op: Any, read: Any, channels: int) -> Effect | None:
        """Return what an operation does of what `read` computes, which has so many channels; None for all else."""

    def name(self, op: Any) -> str:
        """Return an operation's name, unlike those of others."""

    def group(self, last: Any, channels: int) -> tuple[tuple[Any, ...], Activation] | None:
        """Return several operations that compute an activation of what `last` computes; None: there are none.

        Nothing else reads that, or what they compute before the last.
        """


class Gates(Source, Protocol):
    """A graph whose activations are one operation, or two: a gate, and its product with what it is of."""

    def is_product(self, op: Any, one: Any, other: Any) -> bool:
        """Return whether an operation multiplies, element by element, the results of two others."""

    def group(self, last: Any, channels: int) -> tuple[tuple[Any, ...], Activation] | None:
        """Return a gate and its product."""
        readers = self.readers(last)
        for gate, product in (readers, reversed(readers)) if len(readers) == 2 else ():
            effect = self.effect(gate, last, channels)
            gated = _GATED.get(effect.step) if isinstance(effect, Activation) else None
            if gated and len(self.readers(gate)) == 1 and self.is_product(product, last, gate):
                return (gate, product), Activation(gated)
        return None


@dataclass(frozen=True)
class Chain:
    """A convolution, and the operations after it that its kernel computes, too.

    Parameters
    ----------
    last
        The operation that computes the kernel's output.
    nodes
        The operations after the convolution, in order.
    folded
        What goes into the filter and the bias.
    steps
        What the others do.
    arrays
        What the steps take, by the names of the kernel's arguments, ``scale`` and ``slope``.
    residual
        The operation that computes what ``add`` adds.
    """

    last: Any
    nodes: tuple[Any, ...] = ()
    folded: tuple[Linear, ...] = ()
    steps: tuple[Step, ...] = ()
    arrays: Mapping[str, Numbers] = field(default_factory=dict)
    residual: Any = None

    def problem(self, convolution: Problem) -> Problem:
        """Return what the kernel of a convolution computes with them."""
        added = any(each.shift is not None for each in self.folded)
        return convolution.with_(bias=convolution.bias or added, epilogue=self.steps)

    def constants(self, problem: Problem, filter_: np.ndarray, bias: np.ndarray | None, output: str) -> Constants:
        """Return the arrays that the kernel takes, of the convolution's own filter and bias, in ONNX's layouts."""
        factor: np.ndarray | None = None
        shift: np.ndarray | None = None
        for each in self.folded:
            if each.factor is not None:
                by = each.factor()
                factor, shift = by if factor is None else factor * by, None if shift is None else shift * by
            if each.shift is not None:
                shift = each.shift() if shift is None else shift + each.shift()
        groups = None if problem.op == "convolution" else problem.groups
        filter_, bias = fold(filter_, bias, factor, shift, groups)
        vectors = {name: each().astype(np.float32) for name, each in self.arrays.items()}
        return Constants(filter_, bias, output, **vectors)


def follow(
    source: Source,
    start: Any,
    channels: int,
    taken: MutableMapping[str, str],
    *,
    folds: bool,
    fuse: bool,
    biased: bool = False,
) -> Chain:
    """Return what follows a convolution and is computed with it.

    Parameters
    ----------
    source, start, channels
        The graph, the convolution in it, and the number of its output's channels.
    taken
        By the names of sums those of the convolutions whose kernels they are part of; one is added.
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
        chain = Chain(nodes[-1], nodes, (effect,))
    own = source.name(start)
    while True:
        nodes, effect = _next(source, chain.last, channels, fuse)
        if isinstance(effect, Linear) and effect.other is not None and (chain.steps or not folds):
            effect = Sum(effect.other)
        if isinstance(effect, Sum) and taken.get(source.name(nodes[-1]), own) != own:
            return chain
        longer = _extend(chain, effect, folds, fuse)
        if longer is None:
            return chain
        if isinstance(effect, Sum):
            taken[source.name(nodes[-1])] = own
        chain = replace(longer, last=nodes[-1], nodes=(*chain.nodes, *nodes))


def _next(source: Source, last: Any, channels: int, fuse: bool) -> tuple[tuple[Any, ...], Effect | None]:
    """Return the operations that alone read what the last one computes, and what they do."""
    # Groups first: some begin with an operation that could be folded.
    if fuse and (group := source.group(last, channels)):
        return group
    readers = source.readers(last)
    return (tuple(readers), source.effect(readers[0], last, channels)) if len(readers) == 1 else ((), None)


def _extend(chain: Chain, effect: Effect | None, folds: bool, fuse: bool) -> Chain | None:
    """Return a chain that has an effect, too; None if no kernel goes on so."""
    if isinstance(effect, Linear) and not chain.steps and folds:
        return replace(chain, folded=(*chain.folded, effect))
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


def is_per_channel(shape: Sequence[int], channels: int, rank: int) -> bool:
    """Return whether a tensor has one number for each channel of what it meets, (N, M, spatial...), or one for all."""
    aligned = (1,) * (rank - len(shape)) + tuple(shape)
    return len(aligned) == rank and (prod(shape) == 1 or aligned == (1, channels, *(1,) * (rank - 2)))


def per_channel(numbers: np.ndarray, channels: int, rank: int) -> np.ndarray | None:
    """Return one f64 number for each channel, (M,), of such a tensor; None if it is another."""
    return by_channel(numbers, channels) if is_per_channel(numbers.shape, channels, rank) else None


def by_channel(numbers: np.ndarray, channels: int) -> np.ndarray:
    """Return one f64 number for each channel of what has that, or one for all."""
    return np.broadcast_to(numbers.reshape(-1).astype(np.float64), (channels,))
