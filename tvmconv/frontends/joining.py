"""Fixed convolutions of a model that add up, or follow each other, as one convolution, before the model's are read.

The algebra is that of networks (docs/algebra.md). A bundle's kernels are for any of several targets, so no estimate of time decides here:
what is joined multiplies at most as often as its parts, and where nothing but a chain is joined less often. Tensors have names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from ..linear.maps import LinearMap, add, compose, describe_gain, identity
from ..linear.rounding import rounds_more


@dataclass(frozen=True)
class LinearStep:
    """An operation that is a map of what it reads.

    Attributes
    ----------
    output, source
        The tensors that it computes and reads.
    map
        What it computes of it.
    name
        The operation's name.
    convolves
        Whether it is a convolution.
    """

    output: str
    source: str
    map: LinearMap
    name: str
    convolves: bool = False


class JoinableOperations(Protocol):
    """A model's graph."""

    def tensors(self) -> Sequence[str]:
        """Return the tensors that operations compute, in their order."""

    def shape(self, tensor: str) -> tuple[int, int] | None:
        """Return how many channels and spatial axes a tensor has; None if that is not known."""

    def dtype(self, tensor: str) -> str | None:
        """Return the type of a tensor by its name in a Problem; None if it has none."""

    def times_read(self, tensor: str) -> int:
        """Return how often a tensor is read; the model's own outputs count."""

    def terms(self, tensor: str) -> tuple[str, ...]:
        """Return what is added to give a tensor, all of its shape and type, and none of them fixed; nothing if it is no such sum."""

    def step(self, tensor: str) -> LinearStep | None:
        """Return the operation that computes a tensor as a map of another; None if it is another."""

    def name(self, tensor: str) -> str:
        """Return the name of the operation that computes a tensor."""


@dataclass(frozen=True)
class Join:
    """A convolution in the place of several operations.

    Attributes
    ----------
    output
        The tensor that they compute.
    source, map
        What it reads and computes.
    others
        Tensors that are added to that.
    name
        The name of the convolution among them that reads the source, which is its name, too.
    serves
        The names of all operations that it is in the place of, the convolution's first.
    inside
        The tensors that are computed no more.
    count, saved
        How many branches it is of, and how often these multiply for once that it does.
    """

    output: str
    source: str
    map: LinearMap
    others: tuple[str, ...]
    name: str
    serves: tuple[str, ...]
    inside: frozenset[str]
    count: int
    saved: float

    @property
    def said(self) -> str:
        """Description of the join, in words."""
        return describe_gain(self.count, self.saved)


@dataclass(frozen=True)
class _Level:
    """A tensor as a map of another, by steps, the last one first."""

    source: str
    map: LinearMap
    steps: tuple[LinearStep, ...] = ()


def find_joins(graph: JoinableOperations) -> list[Join]:
    """Return what can be joined in a model, none of it a part of another."""
    found: list[Join] = []
    inside: set[str] = set()
    for tensor in reversed(graph.tensors()):
        if tensor in inside or graph.shape(tensor) is None or graph.dtype(tensor) is None:
            continue
        sums = [tensor]
        terms = _flatten(tensor, graph, sums)
        inside.update(sums[1:])
        join = _best(tensor, terms, sums, graph)
        if join is not None:
            inside |= join.inside
            found.append(join)
    return found


def _flatten(tensor: str, graph: JoinableOperations, sums: list[str]) -> list[str]:
    """Return what is added to give a tensor, and add to `sums` the sums that are a part of it alone."""
    found = []
    for term in graph.terms(tensor) or (tensor,):
        inner = graph.terms(term) if term != tensor and graph.times_read(term) == 1 else ()
        if inner:
            sums.append(term)
        found += _flatten(term, graph, sums) if inner else [term]
    return found


def _best(tensor: str, terms: list[str], sums: list[str], graph: JoinableOperations) -> Join | None:
    """Return what saves most multiplications; None: nothing does."""
    best: Join | None = None
    alone = terms == [tensor]
    reached = [_levels(each, graph, alone or graph.times_read(each) == 1) for each in terms]
    for source in dict.fromkeys(level.source for levels in reached for level in levels):
        chosen = [next((level for level in levels if level.source == source), None) for levels in reached]
        others = tuple(term for term, level in zip(terms, chosen, strict=True) if level is None)
        if len(terms) - len(others) > (not alone):
            join = _join(tensor, source, [level for level in chosen if level is not None], graph, sums, others)
            if join is not None and (best is None or join.saved > best.saved):
                best = join
    return best


def _levels(tensor: str, graph: JoinableOperations, goes_on: bool) -> list[_Level]:
    """Return a tensor as maps of what it is computed of, itself first; that alone if something else reads it, too."""
    channels, rank = graph.shape(tensor) or (0, 0)
    found = [_Level(tensor, identity(channels, rank))]
    while goes_on:
        outer, step = found[-1], graph.step(found[-1].source)
        made = None if step is None else compose(outer.map, step.map)
        if step is None or made is None:
            break
        found.append(_Level(step.source, made, (*outer.steps, step)))
        goes_on = graph.times_read(step.source) == 1
    return found


def _join(
    tensor: str, source: str, taken: list[_Level], graph: JoinableOperations, sums: list[str], others: tuple[str, ...]
) -> Join | None:
    """Return levels of one source as a convolution of it; None: that is none, or multiplies more often, or rounds more."""
    merged = add([level.map for level in taken])
    steps = [step for level in taken for step in level.steps]
    starts = [step.name for step in steps if step.convolves and step.source == source]
    products = sum(step.map.products for step in steps if not (step.map.is_diagonal or step.map.passes))
    if merged is None or not starts:  # what is added has one shape, so all of these give equally many pixels
        return None
    if merged.products > products or (len(taken) == 1 and merged.products == products):
        return None
    if rounds_more(merged, [[step.map for step in level.steps] for level in taken], graph.dtype(tensor) or ""):
        return None
    inside = {*sums, *(step.output for step in steps)} - {tensor}
    serves = dict.fromkeys((starts[0], *(step.name for step in steps), *map(graph.name, reversed(sums))))
    return Join(
        tensor,
        source,
        merged,
        others,
        starts[0],
        tuple(serves),
        frozenset(inside),
        len(taken),
        products / merged.products,
    )


def average(
    channels: int, taps: Sequence[int], strides: Sequence[int], begins: Sequence[int], ends: Sequence[int]
) -> LinearMap:
    """Return the map of a pool that averages, its pads, which count as zeros, included."""
    filter_ = np.full((channels, 1, *taps), 1 / prod(taps))
    ones = (1,) * len(taps)
    return LinearMap(filter_, None, tuple(strides), ones, tuple(begins), tuple(ends), channels, passes=True)
