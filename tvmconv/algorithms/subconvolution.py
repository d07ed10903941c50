"""Sub-convolutions of a problem: indices of their data, weights and outputs.

A convolution is one sub-convolution. A transposed convolution is several, one for each class of output phases with the same
number of taps, so that no product is with an inserted zero (backprop.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx

from ..problem import Problem

Expr = Any  # an int or a tirx expression


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a window: output `y` of phase `p` sums taps `k` of data at ``offset(p) + y*stride + k*dilation``."""

    inputs: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    phases: int
    offset: Callable[[Expr], Expr]
    filter_tap: Callable[[Expr, Expr], Expr]
    store_index: Callable[[Expr, Expr], Expr]
    store_extent: int
    always_inside: bool

    @cached_property
    def lowest(self) -> int:
        """Lowest data coordinate that is read; negative in padding."""
        return min(self.offset(phase) for phase in range(self.phases))

    @property
    def span(self) -> int:
        """Number of data coordinates from an output's first tap to its last."""
        return (self.taps - 1) * self.dilation + 1

    @cached_property
    def extent(self) -> int:
        """Number of data coordinates from the lowest to the highest that is read."""
        highest = max(self.offset(phase) for phase in range(self.phases))
        return highest - self.lowest + (self.outputs - 1) * self.stride + self.span

    @property
    def gap(self) -> int:
        """Distance between coordinates that are read: the stride along an axis with one tap, else 1."""
        return self.stride if self.taps == self.phases == 1 else 1

    @property
    def padded(self) -> bool:
        """Return whether coordinates outside of data are read."""
        return self.lowest < 0 or self.lowest + self.extent > self.inputs

    def meets(self, phase: int, tap: int) -> range:
        """Return the outputs of a phase for which a tap reads data, not padding."""
        start = self.offset(phase) + tap * self.dilation  # read for output 0
        return range(max(0, -(start // self.stride)), min(self.outputs, -((start - self.inputs) // self.stride)))

    @cached_property
    def met(self) -> float:
        """Share of products, of all taps and outputs, that are with data, not padding."""
        return self.visited(1)

    def visited(self, tile: int) -> float:
        """Return the share of products that whole tiles of `tile` outputs visit to meet all data; 1 if there are no products."""
        products, count = self.phases * self.taps * self.outputs, 0
        for meeting in (self.meets(phase, tap) for phase in range(self.phases) for tap in range(self.taps)):
            if meeting:
                count += min(self.outputs, (-(-meeting.stop // tile) - meeting.start // tile) * tile)
        return count / products if products else 1.0

    @property
    def meets_data(self) -> bool:
        """Return whether some tap of some output reads data, not padding."""
        return any(self.meets(phase, tap) for phase in range(self.phases) for tap in range(self.taps))

    def inside(self, x: Expr, lowest: int, extent: int) -> list[Expr]:
        """Return the conditions under which coordinate `x`, one of `extent` from `lowest` on, is in data."""
        return ([x >= 0] if lowest < 0 else []) + ([x < self.inputs] if lowest + extent > self.inputs else [])


@dataclass(frozen=True)
class SubConvolution:
    """One dense sub-convolution of a (flattened) problem; `index` ends its stages' names."""

    problem: Problem
    index: int
    axes: tuple[Axis, ...]

    @property
    def groups(self) -> int:
        """Extent of the group axis."""
        return self.problem.groups

    @property
    def channels(self) -> int:
        """Elements (channels) summed for one output and tap."""
        return self.problem.in_channels // self.problem.groups

    @property
    def outputs(self) -> int:
        """Output channels of one step of the group axis."""
        return self.problem.out_channels // self.problem.groups

    @property
    def products(self) -> int:
        """Products summed for an output, times the number of phases: the weights of an output channel and group."""
        return self.channels * prod(axis.taps * axis.phases for axis in self.axes)

    @property
    def row_neighbours(self) -> int:
        """Number of a vector's outputs that are neighbours in a row of a plane: 1, as each is in another plane."""
        return 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of (n, g, phases..., outputs..., o)."""
        phases, outputs = [axis.phases for axis in self.axes], [axis.outputs for axis in self.axes]
        return (self.problem.batch, self.groups, *phases, *outputs, self.outputs)

    def coordinates(self, phases: Sequence[Expr], outputs: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
        """Return the data coordinates that outputs of phases read for taps."""
        each = zip(self.axes, phases, outputs, taps, strict=True)
        return [axis.offset(p) + y * axis.stride + k * axis.dilation for axis, p, y, k in each]

    def inside(self, coordinates: Sequence[Expr]) -> list[Expr]:
        """Return the conditions under which data coordinates are not padding."""
        each = zip(self.axes, coordinates, strict=True)
        return [bound for axis, x in each for bound in axis.inside(x, axis.lowest, axis.extent)]

    def data_indices(self, n: Expr, coordinates: Sequence[Expr], g: Expr, c: Expr) -> list[Expr]:
        """Return data's indices of channel `c` of group `g` at the coordinates."""
        channel = g * self.channels + c
        return [n, *coordinates, channel] if self.problem.data_format == "NXC" else [n, channel, *coordinates]

    def filter_taps(self, phases: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
        """Return the filter's spatial indices of taps of phases."""
        return [axis.filter_tap(p, k) for axis, p, k in zip(self.axes, phases, taps, strict=True)]

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return the filter's indices of the weight of a tap, channel `c` and output `o` of group `g`."""
        if self.problem.op == "convolution":
            inner, outer = c, g * self.outputs + o
        else:
            inner, outer = o, g * (self.problem.in_channels // self.problem.groups) + c
        spatial = self.filter_taps(phases, taps)
        return [*spatial, inner, outer] if self.problem.filter_format == "XIO" else [outer, inner, *spatial]

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and where it is inside the output (None: always)."""
        return store_index(self.problem, self.axes, self.outputs, indices)


def shift_last(index: Expr, tile: int, extent: int) -> Expr:
    """Return the element at `index` of whole tiles, the last of which is shifted to end at `extent` (at least a tile)."""
    return tirx.min(index // tile * tile, extent - tile) + index % tile


def store_index(
    problem: Problem, axes: tuple[Axis, ...], outputs: int, indices: list[Expr]
) -> tuple[Expr, Expr | None]:
    """Return the flat output offset of element (n, g, phases..., outputs..., o) of a window with `outputs` channels a group.

    The second value is the condition under which it is inside the output, None where it always is.
    """
    rank = len(axes)
    n, g, o = indices[0], indices[1], indices[-1]
    phases, ys = indices[2 : 2 + rank], indices[2 + rank : -1]
    places = [axis.store_index(phase, y) for axis, phase, y in zip(axes, phases, ys, strict=True)]
    inside = [at < axis.store_extent for axis, at in zip(axes, places, strict=True) if not axis.always_inside]
    extents = [axis.store_extent for axis in axes]
    return output_offset(problem, n, g * outputs + o, places, extents), tirx.all(*inside) if inside else None


def output_offset(problem: Problem, n: Expr, channel: Expr, places: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """Return the flat offset of an output in an output array of these spatial `extents`."""
    spatial: Expr = 0
    for at, extent in zip(places, extents, strict=True):
        spatial = spatial * extent + at
    if problem.data_format == "NXC":
        return (n * prod(extents) + spatial) * problem.out_channels + channel
    return (n * problem.out_channels + channel) * prod(extents) + spatial


def choose_constant(values: Sequence[int], at: Expr) -> Expr:
    """Return ``values[at]`` as a selection among constants, whose bounds TVM 0.27 finds, unlike those of falling quotients."""
    value: Expr = tirx.const(values[-1], "int32")
    for index, each in enumerate(values[:-1]):
        if each != values[-1]:
            value = tirx.Select(at == index, tirx.const(each, "int32"), value)
    return value
