"""Rule: replace a convolution and a pixel shuffle by a convolution with reordered outputs, or a transposed convolution.

A shuffle by ``s`` makes the channels ``c * s + a`` of a convolution the pixels ``i * s + a`` of channel ``c``. If channels are computed in
another order, those of one ``a`` together, the shuffle moves contiguous channels. And since output ``i * s + a`` reads input
``j = i + t - p`` by tap ``t`` of channel ``c * s + a``, a transposed convolution of stride ``s`` with that number as its tap
``s * (taps - 1 - t) + a`` needs no shuffle, if the bias is the same for all ``a``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from ...targets.target import CpuTarget
from ..ir.constants import static_shape
from ..ir.graph import Graph
from ..ir.problem_of import DTYPES
from ..rewrite.pixel_shuffle import Order, pixel_shuffle
from .costs import map_cycles, pass_cycles
from .maps import Array, LinearMap
from .reading import add_shift, filters, write_map
from .transposing import transpose, transposed_cycles


@dataclass(frozen=True)
class Ordered:
    """A convolution with reordered outputs, places within a pixel outermost, and its shuffle by `factors` along each axis."""

    source: Any
    map: LinearMap
    factors: tuple[int, ...]

    @property
    def said(self) -> str:
        """Description of the rewrite, in words."""
        return "a convolution's outputs in the order of the pixels that they become"

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators, applied to the source."""
        made, rank = write_map(self.map, visit(self.source), emit, rows=False), len(self.factors)
        batch, channels, *sizes = static_shape(made.ty) or ()
        channels //= int(np.prod(self.factors))
        cut = emit(relax.op.reshape(made, (batch, *self.factors, channels, *sizes)))
        pixels = [each for axis in range(rank) for each in (rank + 2 + axis, 1 + axis)]
        moved = emit(relax.op.permute_dims(cut, [0, rank + 1, *pixels]))
        wide = (size * factor for size, factor in zip(sizes, self.factors, strict=True))
        return emit(relax.op.reshape(moved, (batch, channels, *wide)))


@dataclass(frozen=True)
class Strided:
    """A transposed convolution in place of a convolution and a pixel shuffle of this `order`."""

    source: Any
    map: LinearMap
    order: Order

    @property
    def said(self) -> str:
        """Description of the rewrite, in words."""
        return "a convolution and its pixel shuffle, one transposed convolution"

    @property
    def factors(self) -> tuple[int, ...]:
        """Strides of the transposed convolution."""
        return self.order.shape[1:]

    @property
    def pads(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Pads of the transposed convolution, at the beginnings and ends of axes."""
        begins, ends = (
            tuple(step * (taps - 1 - pad) for step, taps, pad in zip(self.factors, self.map.taps, pads, strict=True))
            for pads in (self.map.begins, self.map.ends)
        )
        return begins, ends

    @property
    def filter(self) -> Array:
        """Filter of the transposed convolution: outputs, inputs of a group, and taps."""
        kernel = [step * taps for step, taps in zip(self.factors, self.map.taps, strict=True)]
        made = np.zeros((self.order.shape[0], self.map.filter.shape[1], *kernel))
        turned = np.flip(self.map.filter, tuple(range(2, self.map.filter.ndim)))
        for place in np.ndindex(self.factors):
            taps = tuple(slice(begin, None, step) for begin, step in zip(place, self.factors, strict=True))
            chosen, at = (slice(None), *place), (slice(None), slice(None), *taps)
            made[at] = turned[self.order[chosen]]
        return made

    def cycles(self, target: CpuTarget, wide: tuple[int, ...]) -> float:
        """Return the cost for an output shape."""
        return transposed_cycles(self, wide[1], wide[2:], target)

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators, applied to the source."""
        bias = self.map.bias
        return add_shift(
            transpose(self, visit, emit),
            None if bias is None else bias[self.order.reshape(len(self.order), -1)[:, 0]],
            emit,
        )


def find_shuffled(graph: Graph, target: CpuTarget) -> Iterator[tuple[Any, Ordered | Strided]]:
    """Yield the pixel shuffles after convolutions that a reordered or transposed convolution replaces."""
    known = dict(filters(graph))
    for variable in graph.values:
        shuffle = pixel_shuffle(variable, graph)
        level = None if shuffle is None else known.get(shuffle.data)
        if shuffle is None or level is None or len(graph.readers(shuffle.data)) != 1:
            continue
        wide, given = static_shape(variable.ty) or (), static_shape(level.source.ty) or ()
        dtype = DTYPES[str(variable.ty.dtype)]
        strided = _stride(level.source, level.map, shuffle.order)
        before = map_cycles(level.map, given, dtype, target) + pass_cycles(wide, dtype, 2, target)
        if strided is not None and strided.cycles(target, wide) < before:
            yield variable, strided
            continue
        places_first = np.moveaxis(shuffle.order, 0, -1).reshape(-1)
        if level.map.groups == 1 and (places_first != np.arange(places_first.size)).any():
            bias = None if level.map.bias is None else level.map.bias[places_first]
            map_ = replace(level.map, filter=level.map.filter[places_first], bias=bias)
            yield variable, Ordered(level.source, map_, shuffle.order.shape[1:])


def _stride(source: Any, map_: LinearMap, order: Order) -> Strided | None:
    """Return a convolution and its pixel shuffle as one transposed convolution; None if there is none."""
    channels, groups = order.shape[0], map_.groups
    if {*map_.strides, *map_.dilations} != {1} or channels % groups:
        return None
    of_groups = (order // (map_.outputs // groups)).reshape(channels, -1)
    if (of_groups != np.arange(channels)[:, None] // (channels // groups)).any():
        return None
    if map_.bias is not None and np.ptp(map_.bias[order].reshape(channels, -1), 1).any():
        return None
    made = Strided(source, map_, order)
    return made if min(sum(made.pads, ())) >= 0 else None
