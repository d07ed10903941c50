"""Rule: replace nearest-neighbour upsampling and a convolution by a transposed convolution, which writes no repeated pixels.

Along an axis upsampled by ``s``, tap ``t`` of a filter with pad ``p`` reads input ``i`` for the outputs ``i * s + m`` with
``p - t <= m < p - t + s``. So tap ``m`` of the transposed filter is the sum of the taps that reach it: for 3 taps and ``s = 2`` these are
w2, w1 + w2, w0 + w1, w0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from ...targets.target import CpuTarget
from ..ir.constants import static_shape
from ..ir.graph import Graph
from ..ir.problem_of import DTYPES
from .costs import map_cycles, outputs, pass_cycles
from .maps import Array, LinearMap
from .reading import add_shift, filters
from .rounding import MOST, lost
from .transposing import transpose, transposed_cycles

# Largest ratio of the estimates, after by before, as a fraction: both err by about the rest (`python -m benchmarks.algebra`).
_AT_MOST = 4, 5


@dataclass(frozen=True)
class Upsampled:
    """A transposed convolution in place of upsampling by `factors` along each axis and a convolution."""

    source: Any
    map: LinearMap
    factors: tuple[int, ...]

    @property
    def said(self) -> str:
        """Description of the rewrite, in words."""
        return "upsampling and its convolution, one transposed convolution"

    @property
    def wide(self) -> tuple[int, ...]:
        """The shape after upsampling."""
        batch, channels, *sizes = static_shape(self.source.ty) or ()
        return (batch, channels, *(size * factor for size, factor in zip(sizes, self.factors, strict=True)))

    @property
    def filter(self) -> Array:
        """The transposed filter: outputs, inputs of a group, and taps."""
        filter_ = self.map.filter
        for axis, factor in enumerate(self.factors, 2):
            filter_ = _spread(filter_, axis, factor)
        return filter_

    @property
    def pads(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Pads of the transposed convolution, at the beginnings and ends of axes."""
        taps, map_ = self.map.taps, self.map
        begins, ends = (
            tuple(count - 1 - pad for count, pad in zip(taps, pads, strict=True)) for pads in (map_.begins, map_.ends)
        )
        return begins, ends

    def cycles(self, target: CpuTarget) -> float:
        """Return the cost of the transposed convolution."""
        return transposed_cycles(self, self.map.outputs, outputs(self.map, self.wide), target)

    def lost(self, dtype: str) -> float:
        """Return the squared error of rounding its filter, for one output pixel, which has a part of the taps."""
        return float(lost(self.filter, dtype).sum()) / prod(self.factors)

    @property
    def power(self) -> float:
        """Mean square of its outputs, summed over channels, for data of mean square 1."""
        return float((self.filter**2).sum()) / prod(self.factors)

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators, applied to the source."""
        return add_shift(transpose(self, visit, emit), self.map.bias, emit)


def find_upsampled(graph: Graph, target: CpuTarget) -> Iterator[tuple[Any, Upsampled]]:
    """Yield the convolutions of upsampled data that cost less as a transposed convolution."""
    for variable, level in filters(graph):
        found = find_upsampling(level.map, level.source, graph)
        if found is not None and is_cheaper(found, target) and not loses(found, DTYPES[str(variable.ty.dtype)]):
            yield variable, found


def is_cheaper(found: Upsampled, target: CpuTarget) -> bool:
    """Return whether a transposed convolution costs less than upsampling and a convolution, by more than estimates err."""
    dtype = DTYPES[str(found.source.ty.dtype)]
    before = map_cycles(found.map, found.wide, dtype, target) + repeating_cycles(found, target)
    return _AT_MOST[1] * found.cycles(target) < _AT_MOST[0] * before


def loses(found: Upsampled, dtype: str) -> bool:
    """Return whether the transposed filter has a larger rounding error than the original filter."""
    return dtype != "f32" and found.lost(dtype) > MOST * lost(found.map.filter, dtype).sum()


def repeating_cycles(found: Upsampled, target: CpuTarget) -> float:
    """Return the cost of the upsampling."""
    dtype, given = DTYPES[str(found.source.ty.dtype)], static_shape(found.source.ty) or ()
    return pass_cycles(found.wide, dtype, 1, target) + pass_cycles(given, dtype, 1, target)


def find_upsampling(map_: LinearMap, repeated: Any, graph: Graph) -> Upsampled | None:
    """Return a map of `repeated`, an upsampled value, as a transposed convolution of its source; None if it is not possible."""
    found = _count_repeats(repeated, graph)
    if found is None or {*map_.strides, *map_.dilations} != {1}:
        return None
    made = Upsampled(found[0], map_, found[1])
    return made if min(sum(made.pads, ())) >= 0 else None


def _spread(filter_: Array, axis: int, factor: int) -> Array:
    """Return the filter whose tap ``m + taps - 1 - pad`` is the sum of the taps that reach the outputs ``i * factor + m``."""
    taps = filter_.shape[axis]
    shape = list(filter_.shape)
    shape[axis] = taps + factor - 1
    made = np.zeros(shape)
    for tap in range(taps):
        place = [slice(None)] * filter_.ndim
        place[axis] = slice(taps - 1 - tap, taps - 1 - tap + factor)
        made[tuple(place)] += np.take(filter_, [tap], axis)
    return made


def _count_repeats(variable: Any, graph: Graph) -> tuple[Any, tuple[int, ...]] | None:
    """Return the source of an upsampled variable with one reader, and the factors along each axis; None for other variables."""
    source, shape = variable, static_shape(variable.ty) or ()
    while len(graph.readers(source)) == 1:
        before = _before(source, graph)
        if before is None:
            break
        source = before
    given = static_shape(source.ty)
    if source.same_as(variable) or given is None or source.ty.dtype != variable.ty.dtype:
        return None
    return source, tuple(size // before for size, before in zip(shape[2:], given[2:], strict=True))


def _before(variable: Any, graph: Graph) -> Any:
    """Return the source of a resize, or a take along one axis, that repeats pixels; None for other operators."""
    call = graph.call(variable)
    given = None if call is None or not isinstance(call.args[0], relax.Var) else static_shape(call.args[0].ty)
    made = static_shape(variable.ty)
    if call is None or given is None or made is None:
        return None
    if call.op.name == "relax.take":
        axis, at = call.attrs.axis, graph.array(call.args[1])
        if axis is None or int(axis) < 2 or at is None or at.ndim != 1 or len(at) % given[int(axis)]:
            return None
        size = given[int(axis)]
        return call.args[0] if (at == np.repeat(np.arange(size), len(at) // size)).all() else None
    attrs = call.attrs
    if not call.op.name.startswith("relax.image.resize") or str(attrs.method) != "nearest_neighbor":
        return None
    if not str(attrs.layout).startswith("NC") or made[:2] != given[:2]:
        return None
    if any(size % before for size, before in zip(made[2:], given[2:], strict=True)):
        return None
    # By integer factors, these modes repeat pixels; other roundings shift them by half a pixel.
    modes = (str(attrs.coordinate_transformation_mode), str(attrs.rounding_method))
    known = [
        ("asymmetric", "floor"),
        *(("half_pixel", f"round{each}") for each in ("", "_prefer_floor", "_prefer_ceil")),
    ]
    return call.args[0] if modes in known else None
