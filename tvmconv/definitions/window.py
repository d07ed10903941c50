"""The tensor expressions of every direct algorithm: dense stride windows over channel-last tiles.

A convolution is one window. A transposed convolution is a few, one for each class of output phases
with the same number of taps, so that nothing is ever multiplied by an inserted zero (backprop.py).
Each window is the same five stages, whatever the layouts and types:

    data_pad     data widened to f32, zero-padded, channel-last   (absent when data can be read in place)
    filter_pack  filter widened to f32, [group, block, taps, c, vector, lane]     (absent likewise)
    acc          the sum, f32
    tile         acc copied out of registers                      (only where the store is not by whole vectors)
    out          bias added, rounded once to the output type

Stages are te.compute's, named with the window's number, for the schedules to find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import mul
from typing import Any

from tvm import te, tirx

from ..checks import within_reach
from ..problem import Problem
from .filter import staged_filter
from .pairs import multiply_pairs, pair, reads_pairs, round_pair
from .shapes import LEAST_SKIPPED, turned
from .types import kernel_dtype, narrow, widen

Expr = Any  # an int or a tirx expression
TOGETHER = 4  # vectors of the filter: more than most tiles have


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a window: output `y` of phase `p` sums taps `k` of data at ``origin(p) + y*step + k*spacing``."""

    inputs: int
    outputs: int
    taps: int
    step: int
    spacing: int
    phases: int
    origin: Callable[[Expr], Expr]
    filter_tap: Callable[[Expr, Expr], Expr]
    place: Callable[[Expr, Expr], Expr]
    places: int
    always_inside: bool

    @cached_property
    def lowest(self) -> int:
        """The lowest data coordinate that is read; negative where there is padding."""
        return min(self.origin(phase) for phase in range(self.phases))

    @cached_property
    def extent(self) -> int:
        """Data coordinates from the lowest to the highest that is read."""
        highest = max(self.origin(phase) for phase in range(self.phases))
        return highest - self.lowest + (self.outputs - 1) * self.step + (self.taps - 1) * self.spacing + 1

    @property
    def padded(self) -> bool:
        """Whether coordinates outside of data are read."""
        return self.lowest < 0 or self.lowest + self.extent > self.inputs


@dataclass(frozen=True)
class Window:
    """One dense window of a (flattened) problem and how its channels lie in vector lanes.

    Attributes
    ----------
    index
        The window's number, which ends its stages' names.
    lanes
        Vector lanes per group of output channels.
    across
        Whether lanes run across groups (depthwise and small groups) instead of within one.
    row
        Outputs computed along the last axis: `axes[-1].outputs`, or that rounded up for tiling.
    packed
        Channels in one 32-bit element of the copies: 1 (an f32), or 2 (a pair of bf16).
    ahead
        Whether the filter is packed ahead, so that laying it out takes no time: it is then widened, or transformed whole.
    tile
        Outputs of a tile where the last tile of the row is moved back, to end with the row. It computes and stores again
        what it shares with the one before, and nothing outside of the row is read or written. 0: what `row` exceeds
        the outputs by is never stored.
    shuffles
        Whether lanes across groups find their own group's channels by shuffles of a pixel's, in registers.
    planes
        Whether a tile has all rows, of one vector of channels, so that the filter is read once.
    """

    problem: Problem
    index: int
    axes: tuple[Axis, ...]
    lanes: int
    across: bool
    row: int
    packed: int = 1
    ahead: bool = False
    tile: int = 0
    shuffles: bool = False
    planes: bool = False

    @property
    def groups(self) -> int:
        """Extent of the explicit group axis."""
        return 1 if self.across else self.problem.groups

    @property
    def channels(self) -> int:
        """Elements summed for one output and tap: its channels, or pairs of them."""
        return -(-self.problem.in_channels // self.problem.groups // self.packed)

    @property
    def pixel(self) -> int:
        """Elements of a pixel of data, or of its copy."""
        return self.channels * (self.padded_outputs if self.expands else self.problem.groups)

    @property
    def outputs(self) -> int:
        """Output channels of one step of the group axis."""
        return self.problem.out_channels // self.groups

    @property
    def padded_outputs(self) -> int:
        """`outputs` rounded up to whole vectors."""
        return -(-self.outputs // self.lanes) * self.lanes

    @property
    def moved(self) -> bool:
        """Whether the last vector of output channels is moved back, to end with them, as `tile` moves the last tile of a row."""
        return self.lanes < self.outputs < self.padded_outputs and self.problem.data_format == "NXC"

    @property
    def excess(self) -> int:
        """Elements of a row that are computed but not stored."""
        return 0 if self.tile else self.row - self.axes[-1].outputs

    def column(self, y: Expr) -> Expr:
        """Return the output of a row that its element `y` computes."""
        if not self.tile:
            return y
        return tirx.min(y // self.tile * self.tile, self.axes[-1].outputs - self.tile) + y % self.tile

    def output(self, o: Expr) -> Expr:
        """Return the output channel of a group that lane `o` of all its vectors computes."""
        if not self.moved:
            return o
        return tirx.min(o // self.lanes * self.lanes, self.outputs - self.lanes) + o % self.lanes

    def coordinates(self, x: list[Expr]) -> list[Expr]:
        """Return where in data what the window finds at `x` lies."""
        return x

    def filter_taps(self, p: Sequence[Expr], k: Sequence[Expr]) -> list[Expr]:
        """Return the filter's spatial indices of the taps `k` of phases `p`."""
        return [axis.filter_tap(pp, kk) for axis, pp, kk in zip(self.axes, p, k, strict=True)]

    @property
    def expands(self) -> bool:
        """Whether data is copied so that each lane finds its own group's channel, and left-over lanes find zeros."""
        depthwise = self.problem.out_channels == self.problem.groups and self.channels == 1
        whole = self.moved or self.padded_outputs == self.outputs
        return self.across and not self.shuffles and not (depthwise and whole)

    @property
    def element_type(self) -> str:
        """Type of the copies' elements."""
        return "uint32" if self.packed == 2 else "float32"

    @property
    def stages_data(self) -> bool:
        """Whether data is padded, widened or laid out anew before it is read."""
        return (
            any(axis.padded for axis in self.axes)
            or self.excess > 0
            or (not reads_pairs(self.problem) if self.packed == 2 else self.problem.dtype != "f32")
            or self.problem.data_format == "NCX"
            or self.expands
        )

    @property
    def stages_filter(self) -> bool:
        """Whether the filter is laid out anew: where its fastest index is not the lane, or lanes are left over."""
        fastest_is_lane = self.problem.filter_format == "XIO" and (
            self.problem.op == "convolution" or (self.across and not self.expands)
        )
        left_over = self.padded_outputs != self.outputs
        return not fastest_is_lane or left_over or self.shuffles or self.packed == 2 or self.ahead

    @property
    def vectors_together(self) -> int:
        """Vectors of output channels that lie together in the copy of the filter: those of a tile are one stream of lines."""
        vectors = self.padded_outputs // self.lanes
        return 1 if self.planes else max(v for v in range(1, TOGETHER + 1) if vectors % v == 0)

    @property
    def stores_vectors(self) -> bool:
        """Whether whole vectors of output channels lie together in the output."""
        return self.problem.data_format == "NXC" and (self.moved or self.padded_outputs == self.outputs)

    @property
    def stored(self) -> int:
        """Output channels of `out`."""
        return self.padded_outputs if self.moved else self.outputs

    def summed(self, c: Expr, o: Expr) -> Expr:
        """Return the channel, or pair of them, that output channel `o` sums as its `c`-th."""
        return turned(c, o, self.channels, self.problem.out_channels // self.problem.groups) if self.shuffles else c

    def place(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and where it is inside the output (None: always)."""
        at = [*indices[:-2], self.column(indices[-2]), self.output(indices[-1])]
        return place(self.problem, self.axes, self.outputs, at)


def place(problem: Problem, axes: tuple[Axis, ...], outputs: int, indices: list[Expr]) -> tuple[Expr, Expr | None]:
    """Return the flat output offset of element (n, g, phases..., outputs..., o) of a window, `outputs` of o a group.

    The second value is the condition under which it is inside the output, None where it always is.
    """
    rank = len(axes)
    n, g, o = indices[0], indices[1], indices[-1]
    phases, ys = indices[2 : 2 + rank], indices[2 + rank : -1]
    places = [axis.place(phase, y) for axis, phase, y in zip(axes, phases, ys, strict=True)]
    channel = g * outputs + o
    spatial: Expr = 0
    for axis, at in zip(axes, places, strict=True):
        spatial = spatial * axis.places + at
    area = prod(axis.places for axis in axes)
    if problem.data_format == "NXC":
        offset = (n * area + spatial) * problem.out_channels + channel
    else:
        offset = (n * problem.out_channels + channel) * area + spatial
    bounds = []
    for axis, at in zip(axes, places, strict=True):
        if not axis.always_inside:
            bounds.append(at < axis.places)
    return offset, tirx.all(*bounds) if bounds else None


def placeholders(problem: Problem, packed: int = 1) -> tuple[te.Tensor, te.Tensor, te.Tensor | None]:
    """Return data (as pairs of channels where `packed` is 2 and it has them), filter and bias (or None) of a problem."""
    dtype = kernel_dtype(problem.dtype)
    data = te.placeholder(problem.data_shape, dtype, name="data")
    if packed == 2 and reads_pairs(problem):
        data = te.placeholder((*problem.data_shape[:-1], problem.in_channels // 2), "uint32", name="data")
    weights = te.placeholder(problem.filter_shape, dtype, name="filter")
    bias = te.placeholder(problem.bias_shape, dtype, name="bias") if problem.bias else None
    return data, weights, bias


def express(window: Window, data: te.Tensor, weights: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs..., o).

    Raises
    ------
    InvalidProblemError
        If a stage has more elements than 32-bit indices reach.
    """
    rank, number = len(window.axes), window.index
    read_data = staged_data(window, data)
    read_filter = staged_filter(window, weights)
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]
    c = te.reduce_axis((0, window.channels), name="c")
    multiply = multiply_pairs if window.packed == 2 else mul
    phases = tuple(axis.phases for axis in window.axes)
    spatial = (*(axis.outputs for axis in window.axes[:-1]), window.row)

    def total(*indices: Expr) -> Expr:
        n, g, o = indices[0], indices[1], indices[-1]
        p, y = indices[2 : 2 + rank], [*indices[2 + rank : -2], window.column(indices[-2])]
        return te.sum(multiply(read_data(n, g, p, y, taps, c, o), read_filter(g, p, taps, c, o)), axis=[*taps, c])

    shape = (window.problem.batch, window.groups, *phases, *spatial, window.padded_outputs)
    acc = te.compute(shape, total, name=f"acc{number}")
    return finished(window, acc, bias)


def finished(window: Window, acc: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    """Return `out` of the whole sums: axes (n, g, phases..., outputs..., o)."""
    number, dtype = window.index, window.problem.dtype
    if not window.stores_vectors:
        acc = te.compute(acc.shape, lambda *indices: acc(*indices), name=f"tile{number}")

    def rounded(*indices: Expr) -> Expr:
        value = acc(*indices)
        if bias is not None:
            value = value + widen(bias[indices[1] * window.outputs + window.output(indices[-1])], dtype)
        return round_pair(value) if window.packed == 2 else narrow(value, dtype)

    outputs = tuple(axis.outputs for axis in window.axes[:-1])
    phases = tuple(axis.phases for axis in window.axes)
    shape = (window.problem.batch, window.groups, *phases, *outputs, window.row - window.excess, window.stored)
    return te.compute(shape, rounded, name=f"out{number}")


def staged_data(window: Window, data: te.Tensor) -> Callable[..., Expr]:
    """Return what reads data for a product, ``(n, g, phases, outputs, taps, c, o)``: in place or from its copy."""
    problem, axes = window.problem, window.axes
    skips_rows = not window.across
    at = data_reader(window, data, skips_rows)

    def channel(g: Expr, c: Expr, o: Expr) -> Expr:
        if not window.across:
            return g * window.channels + c
        return window.output(o) // (problem.out_channels // problem.groups) * window.channels + window.summed(c, o)

    def read(n: Expr, g: Expr, p: Any, y: Any, k: Any, c: Expr, o: Expr) -> Expr:
        spatial = [
            axis.origin(pp) + yy * axis.step + kk * axis.spacing for axis, pp, yy, kk in zip(axes, p, y, k, strict=True)
        ]
        value = at(n, *spatial, c, o) if window.expands else at(n, *spatial, channel(g, c, o))
        if not window.stages_data or not skips_rows:
            return value
        # Known to be zero in padding, of which lowering skips rows, and columns as far as whole tiles read them
        # (tvmconv/padding.py).
        lowest, extents = _copied(window)
        *rows, columns = map(_inside, axes, spatial, lowest, extents)
        bounds = [bound for row in rows for bound in row]
        if max(-lowest[-1], lowest[-1] + extents[-1] - axes[-1].inputs) >= LEAST_SKIPPED:
            bounds += [tirx.likely(bound) for bound in columns]
        return tirx.if_then_else(tirx.all(*bounds), value, tirx.const(0, window.element_type)) if bounds else value

    return read


def _copied(window: Window) -> tuple[list[int], list[int]]:
    """Return the lowest data coordinates that the copy of data holds, and how many along each axis."""
    extents = [axis.extent for axis in window.axes]
    extents[-1] += window.excess * window.axes[-1].step
    return [axis.lowest for axis in window.axes], extents


def data_reader(window: Window, data: te.Tensor, skips_rows: bool = False) -> Callable[..., Expr]:
    """Return ``at(n, *x, channel)``: data at coordinates x, from its copy where the window stages it.

    A copy that `expands` takes a channel of a group and an output channel instead. Where the reader `skips_rows` of
    padding, the copy may lack them.
    """
    problem, axes = window.problem, window.axes
    if not window.stages_data:
        return lambda n, *at: data(n, *at)
    lowest, extents = _copied(window)
    # Along an axis with one tap, a stride leaves out what lies between.
    gaps = [axis.step if axis.taps == axis.phases == 1 else 1 for axis in axes]

    def padded(n: Expr, *indices: Expr) -> Expr:
        spatial, rest = indices[: len(axes)], indices[len(axes) :]
        x = [index * gap + low for index, gap, low in zip(spatial, gaps, lowest, strict=True)]
        source = rest[0]
        if window.expands:
            source = window.output(rest[1]) // (problem.out_channels // problem.groups) * window.channels + rest[0]
        *rows, columns = map(_inside, axes, x, lowest, extents)
        bounds = [tirx.likely(bound) if skips_rows else bound for row in rows for bound in row] + columns
        if window.expands and window.stored < window.padded_outputs:
            bounds.append(rest[1] < window.outputs)
        value = element(n, x, source)
        return tirx.if_then_else(tirx.all(*bounds), value, tirx.const(0, window.element_type)) if bounds else value

    def element(n: Expr, x: list[Expr], source: Expr) -> Expr:
        def load(c: Expr) -> Expr:
            at = window.coordinates(x)
            return data(n, *at, c) if problem.data_format == "NXC" else data(n, c, *at)

        if window.packed == 1:
            return widen(load(source), problem.dtype)
        if reads_pairs(problem):
            return load(source)
        # Pair c of group g are its channels 2c and 2c + 1, the last possibly alone.
        g, c = source // window.channels, source % window.channels * 2
        per_group = problem.in_channels // problem.groups
        return pair(lambda which: load(g * per_group + c + which), c, per_group)

    last = (window.channels, window.padded_outputs) if window.expands else (window.pixel,)
    held = [-(-extent // gap) for extent, gap in zip(extents, gaps, strict=True)]
    shape = within_reach((problem.batch, *held, *last), "the copy of data")
    pad = te.compute(shape, padded, name=f"data_pad{window.index}")

    def at(n: Expr, *indices: Expr) -> Expr:
        spatial = [(x - low) // gap for x, low, gap in zip(indices, lowest, gaps, strict=False)]
        return pad(n, *spatial, *indices[len(axes) :])

    return at


def _inside(axis: Axis, x: Expr, lowest: int, extent: int) -> list[Expr]:
    """Return what holds for coordinate `x` of `extent` ones from `lowest` on if it is one of data's."""
    return ([x >= 0] if lowest < 0 else []) + ([x < axis.inputs] if lowest + extent > axis.inputs else [])
