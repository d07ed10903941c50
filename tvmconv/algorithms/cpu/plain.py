"""Plain tensor expressions of every problem, without any of lowering's rewrites.

They are the fallback for problems whose better schedules do not compile. A window (window.py, backprop.py) has these stages, each
the formula itself:

    data_pad     data widened to the type of the sum, zero-padded, in the order of reads  (absent if it is read in place)
    filter_pack  filter widened to the type of the sum, in the order of the sum
    acc          the sum
    tile         acc copied out of registers                      (only where the store is not by whole vectors)
    out          bias added, rounded once to the output type

Lanes run along output channels, or along a row of the output if channels are apart or few. Rows and channels are
rounded up to whole tiles: additional sums are of zeros, and not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from tvm import te, tirx

from ...checks import within_reach
from ...problem import Problem
from ...targets.target import CpuTarget
from ..axes import axes_of
from ..definition import Definition, assemble
from ..epilogue import Epilogue
from ..flatten import flatten
from ..shapes import SSE_LANES, accumulators, divisors, lane_count
from ..stage_names import ACC, DATA_PAD, FILTER_PACK, OUT, TILE, stage_name
from ..subconvolution import Axis, Expr, store_index
from ..types import load_data, sum_type, zero_outside
from . import constant
from .model.cost import Counts
from .windows.filter import filter_element
from .windows.window import Window

MOST_PIXELS = 8  # of a tile
MOST_CHANNELS = 8  # of a tile whose lanes run along a row
# Least taps for which transposing NXC data to NCX takes less time than sums of mostly empty vectors; and least products per pixel of
# data or output for which transposing NCX to NXC does.
LEAST_TAPS, LEAST_PRODUCTS = 4, 2048


def covers(problem: Problem, target: CpuTarget, ordered: bool = False) -> None:
    """Return None: the algorithm computes every problem."""


def define(problem: Problem, target: CpuTarget, ordered: bool = False) -> Definition:
    """Define any problem by plain windows."""
    if problem.is_constant or problem.is_empty:
        return constant.define(problem, target, ordered)
    flat = flatten(problem)
    windows = plain_windows(flat, target)
    return assemble(problem, flat, windows, express_plain, asks=(), ordered=ordered)


def estimate(problem: Problem, target: CpuTarget, ordered: bool = False) -> Counts:
    """Count the events of a problem as if multiply-adds were of 128 bits, one per cycle: more than the actual cost."""
    moved = prod(problem.data_shape) + prod(problem.output_shape)
    return {"tile.scale": problem.flops / 2 / SSE_LANES, "elements.transpose": moved}


@dataclass(frozen=True)
class PlainWindow:
    """A window, and the shape and order of its tiles.

    Attributes
    ----------
    window
        The window, with lanes across groups if each group has one channel.
    by_rows
        Whether lanes run along a row of the output, not along its channels.
    pixels, channels
        Outputs along the row, and output channels, of a tile: whole vectors of those that lanes run along.
    """

    window: Window
    by_rows: bool
    pixels: int
    channels: int

    @property
    def row(self) -> int:
        """The outputs of a row, rounded up to whole tiles."""
        return _up(self.window.axes[-1].outputs, self.pixels)

    @property
    def outputs(self) -> int:
        """The output channels of a group, rounded up to whole tiles."""
        return _up(self.window.outputs, self.channels)

    @property
    def copied_channels(self) -> int:
        """Channels of the copy of data: with lanes across groups, one for each lane."""
        return max(self.window.problem.in_channels, self.outputs if self.window.across else 0)

    @cached_property
    def copied(self) -> list[int]:
        """Number of data coordinates that a copy of data holds along each axis, from the lowest that is read."""
        extents = [axis.extent for axis in self.window.axes]
        last = self.window.axes[-1]
        extents[-1] += (self.row - last.outputs) * last.stride
        return extents

    @property
    def copies(self) -> bool:
        """Return whether data is padded, widened or transposed before it is read."""
        problem, axes = self.window.problem, self.window.axes
        return (
            problem.dtype != "f32"
            or problem.data_format != ("NCX" if self.by_rows else "NXC")
            or self.copied_channels != problem.in_channels
            or (self.by_rows and axes[-1].stride > 1)
            or any(
                axis.lowest < 0 or axis.lowest + extent > axis.inputs
                for axis, extent in zip(axes, self.copied, strict=True)
            )
        )

    @property
    def stores_vectors(self) -> bool:
        """Return whether whole vectors of the sums are contiguous in the output."""
        axis = self.window.axes[-1]
        if not self.by_rows:
            return self.window.problem.data_format == "NXC" and self.outputs == self.window.outputs
        neighbours = self.window.problem.op == "convolution" or self.window.problem.strides[-1] == 1
        whole = self.row == axis.outputs and axis.always_inside
        return self.window.problem.data_format == "NCX" and neighbours and whole

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and the condition under which it is inside (None: always)."""
        if self.by_rows:
            *before, o, x = indices
            indices = [*before, x, o]
        return store_index(self.window.problem, self.window.axes, self.window.outputs, indices)


def plain_windows(flat: Problem, target: CpuTarget) -> list[PlainWindow]:
    """Return the windows of a flattened problem."""
    return [_window(flat, number, axes, target) for number, axes in enumerate(axes_of(flat))]


def _window(flat: Problem, number: int, axes: tuple[Axis, ...], target: CpuTarget) -> PlainWindow:
    per_group, row = flat.out_channels // flat.groups, axes[-1].outputs
    depthwise = flat.in_channels == flat.out_channels == flat.groups > 1
    taps = prod(flat.kernel)
    # A row of few outputs leaves most lanes empty, and so do few channels; and transposing data takes as long as some
    # products.
    few = per_group < SSE_LANES and not depthwise
    if flat.data_format == "NXC":
        by_rows = few and taps > LEAST_TAPS
    else:
        amortized = per_group >= SSE_LANES and per_group * taps * flat.in_channels // flat.groups >= LEAST_PRODUCTS
        by_rows = few or (row >= SSE_LANES and not amortized)
    across = depthwise and not by_rows
    outputs = flat.out_channels if across else per_group
    lanes = lane_count(row if by_rows else outputs, target)
    window = Window(flat, number, axes, lanes, across, row)
    if by_rows:
        channels = divisors(outputs, MOST_CHANNELS * target.vector_registers // 32)[-1]
        vectors = divisors(_up(row, lanes) // lanes, 4 if channels <= 2 else 2)[-1]
        return PlainWindow(window, True, vectors * lanes, channels)
    vectors = divisors(_up(outputs, lanes) // lanes, 2)[-1]
    most = min(MOST_PIXELS, accumulators(target) // vectors, row)
    whole = divisors(row, most)[-1]
    return PlainWindow(window, False, whole if 2 * whole >= most else most, vectors * lanes)


def express_plain(plain: PlainWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs..., o), with lanes along a row (..., o, x)."""
    window, rank = plain.window, len(plain.window.axes)
    read_data, read_filter = _data(plain, data), _filter(plain, weights)
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]
    c = te.reduce_axis((0, window.channels), name="c")
    phases = [axis.phases for axis in window.axes]
    rows = [axis.outputs for axis in window.axes[:-1]]

    def ordered(x: Expr, o: Expr) -> list[Expr]:
        return [o, x] if plain.by_rows else [x, o]

    def total(*indices: Expr) -> Expr:
        n, g, p = indices[0], indices[1], indices[2 : 2 + rank]
        x, o = ordered(*indices[-2:])
        y = [*indices[2 + rank : -2], x]
        return te.sum(read_data(n, g, p, y, taps, c, o) * read_filter(g, p, taps, c, o), axis=[*taps, c])

    before = (window.problem.batch, window.groups, *phases, *rows)
    acc = te.compute((*before, *ordered(plain.row, plain.outputs)), total, name=stage_name(ACC, window.index))
    if not plain.stores_vectors:
        acc = te.compute(acc.shape, lambda *indices: acc(*indices), name=stage_name(TILE, window.index))

    def rounded(*indices: Expr) -> Expr:
        channel = indices[1] * window.outputs + ordered(*indices[-2:])[1]
        return epilogue(acc(*indices), channel, plain.store_index(list(indices))[0])

    shape = (*before, *ordered(window.axes[-1].outputs, window.outputs))
    return te.compute(shape, rounded, name=stage_name(OUT, window.index))


def _data(plain: PlainWindow, data: te.Tensor) -> Callable[..., Expr]:
    """Return the function ``(n, g, phases, outputs, taps, c, o)`` that reads data for a product, in place or from its copy."""
    window = plain.window
    if plain.copies:
        return _copied_planes(plain, data) if plain.by_rows else _copied_pixels(plain, data)
    if plain.by_rows:
        return lambda n, g, p, y, k, c, o: data(n, _channel(window, g, c, o), *window.coordinates(p, y, k))
    return lambda n, g, p, y, k, c, o: data(n, *window.coordinates(p, y, k), _channel(window, g, c, o))


def _copied_pixels(plain: PlainWindow, data: te.Tensor) -> Callable[..., Expr]:
    """Return the function that reads a copy with channels as the fastest index."""
    window, axes = plain.window, plain.window.axes

    def copied(n: Expr, *at: Expr) -> Expr:
        return _pad(plain, data, plain.copied, n, at[-1], at[:-1])

    shape = within_reach((window.problem.batch, *plain.copied, plain.copied_channels), "the copy of data")
    copy = te.compute(shape, copied, name=stage_name(DATA_PAD, window.index))

    def read(n: Expr, g: Expr, p: Any, y: Any, k: Any, c: Expr, o: Expr) -> Expr:
        at = [x - axis.lowest for x, axis in zip(window.coordinates(p, y, k), axes, strict=True)]
        return copy(n, *at, _channel(window, g, c, o))

    return read


def _copied_planes(plain: PlainWindow, data: te.Tensor) -> Callable[..., Expr]:
    """Return the function that reads a copy of planes, in which the columns of a row's outputs are neighbours.

    The outputs of a row read columns `stride` apart, so column x is at (x % stride, x // stride).
    """
    window, problem, axes = plain.window, plain.window.problem, plain.window.axes
    last = axes[-1]
    columns = -(-plain.copied[-1] // last.stride)
    extents = [*plain.copied[:-1], columns * last.stride]

    def copied(n: Expr, c: Expr, *at: Expr) -> Expr:
        return _pad(plain, data, extents, n, c, [*at[:-2], at[-1] * last.stride + at[-2]])

    shape = (problem.batch, problem.in_channels, *extents[:-1], last.stride, columns)
    copy = te.compute(within_reach(shape, "the copy of data"), copied, name=stage_name(DATA_PAD, window.index))

    def read(n: Expr, g: Expr, p: Any, y: Any, k: Any, c: Expr, o: Expr) -> Expr:
        rows = [x - axis.lowest for x, axis in zip(window.coordinates(p, y, k), axes, strict=True)][:-1]
        first = last.offset(p[-1]) - last.lowest + k[-1] * last.dilation
        return copy(n, _channel(window, g, c, o), *rows, first % last.stride, y[-1] + first // last.stride)

    return read


def _channel(window: Window, g: Expr, c: Expr, o: Expr) -> Expr:
    """Return the `c`-th channel of data that output `o` of group `g` sums."""
    return o if window.across else g * window.channels + c


def _pad(plain: PlainWindow, data: te.Tensor, extents: Sequence[int], n: Expr, c: Expr, at: Sequence[Expr]) -> Expr:
    """Return the element at indices `at`, of channel `c`, of a copy with these extents: widened data, 0 in the padding."""
    problem, axes = plain.window.problem, plain.window.axes
    bounds = [c < problem.in_channels] if plain.copied_channels > problem.in_channels else []
    x = [index + axis.lowest for index, axis in zip(at, axes, strict=True)]
    for axis, extent, xx in zip(axes, extents, x, strict=True):
        bounds += axis.inside(xx, axis.lowest, extent)
    value = load_data(data(n, c, *x) if problem.data_format == "NCX" else data(n, *x, c), problem)
    return zero_outside(bounds, value, sum_type(problem))


def _filter(plain: PlainWindow, weights: te.Tensor) -> Callable[..., Expr]:
    """Return the function ``(g, phases, taps, c, o)`` that reads the filter for a product from its copy."""
    window, rank, block = plain.window, len(plain.window.axes), plain.channels
    element = filter_element(window, weights)

    def packed(g: Expr, b: Expr, *indices: Expr) -> Expr:
        o = b * block + indices[-1]
        value = element(g, indices[:rank], indices[rank : 2 * rank], indices[-2], o)
        if plain.outputs == window.outputs:
            return value
        return tirx.if_then_else(o < window.outputs, value, tirx.const(0, sum_type(window.problem)))

    phases, taps = [axis.phases for axis in window.axes], [axis.taps for axis in window.axes]
    shape = (window.groups, plain.outputs // block, *phases, *taps, window.channels, block)
    pack = te.compute(within_reach(shape, "the copy of the filter"), packed, name=stage_name(FILTER_PACK, window.index))
    return lambda g, p, k, c, o: pack(g, o // block, *p, *k, c, o % block)


def _up(number: int, multiple: int) -> int:
    """Return `number` rounded up to a multiple."""
    return -(-number // multiple) * multiple
