"""The tensor expressions of windows whose lanes run along a row of the output: for planar layouts, or few output channels.

The same windows as in window.py with other roles: a vector holds neighbouring outputs of a row, and each
filter element is broadcast. Stages:

    data_pad     data widened to f32, zero-padded, channel by channel  (absent when data can be read in place)
    data_phases  every s-th column of the copy together    (only with a stride s along the row)
    filter_pack  filter widened to f32, in the order of the sum    (absent for f32 unless packed ahead)
    acc          the sum, f32, axes (n, g, phases..., outputs but the last..., o, x)
    tile         acc copied out of registers              (only where the store is not by whole vectors)
    out          bias added, rounded once to the output type; a row's phases, where neighbours, come last
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from tvm import te, tirx

from ..checks import within_reach
from ..target import CpuTarget
from .filter import filter_element
from .shapes import F32_BITS, IN_FLIGHT, QUARTER, divisors, lane_count
from .tile import L1_WAY_BYTES, L1_WAYS
from .types import narrow, widen
from .window import Expr, Window
from .window import place as lies

L1_BYTES = 32 * 1024
MOST_CHANNELS = 16  # of a tile, beside whose sums a register holds the row's data and another the broadcast


def planar_window(window: Window, target: CpuTarget) -> Window:
    """Return the window with lanes along its row, which is rounded up to whole vectors."""
    outputs, full = window.axes[-1].outputs, target.vector_bits // F32_BITS
    if outputs < full or not _lie_together(window):
        lanes = lane_count(outputs, target)
        if window.outputs == 1 and lanes > max(QUARTER, outputs) and _lie_together(window):
            lanes //= 2  # depthwise: two vectors that overlap rather than one whose lanes are left over
        return replace(window, lanes=lanes, row=-(-outputs // lanes) * lanes)
    # Some vectors more, which repeat others, where they divide into better tiles.
    least = -(-outputs // full)
    rows = [replace(window, lanes=full, row=vectors * full) for vectors in range(least, least + 4)]
    return min(rows, key=lambda each: each.row * min(tile_cycles(each, *tile) for tile in tiles(each, target)))


def tiles(window: Window, target: CpuTarget) -> list[tuple[int, int]]:
    """Return how many channels and vectors of a row a tile may have together.

    Each vector takes a register for its data and one for each sum; one more holds the broadcast.
    """
    registers, phases = target.vector_registers, row_phases(window)
    fitting = []
    for channels in divisors(window.outputs, max(1, min(MOST_CHANNELS, registers - 2) // phases)):
        most = max(1, (registers - 1) // (channels * phases + 1))
        fitting += [(channels, vectors) for vectors in divisors(window.row // window.lanes, most)]
    return fitting


def tile_cycles(window: Window, channels: int, vectors: int) -> float:
    """Cycles per multiply-add of a tile, and part of its loads.

    A shifted vector crosses two cache lines, and comes from the second level cache where the sum has many channels; a
    broadcast shares the load ports.
    """
    sums = channels * row_phases(window)
    far = 4 * window.lanes * vectors * window.channels > L1_BYTES // 2
    return (max(sums * vectors, IN_FLIGHT) + (2.0 if far else 1.0) * vectors + 0.5 * sums) / (sums * vectors)


def row_phases(window: Window) -> int:
    """Return how many phases' sums a tile holds."""
    return window.axes[-1].phases if interleaves(window) else 1


def interleaves(window: Window) -> bool:
    """Whether a row's phases are neighbours in the output, in order, so that together they fill whole vectors."""
    axis = window.axes[-1]
    return axis.phases > 1 and axis.place(1, 0) == axis.place(0, 0) + 1


def _lie_together(window: Window) -> bool:
    """Whether neighbouring outputs of a row, all its phases taken together, are neighbours in the output."""
    together = window.problem.op == "convolution" or window.problem.strides[-1] == 1 or interleaves(window)
    return window.problem.data_format == "NCX" and together and window.axes[-1].always_inside


def overlaps(window: Window) -> bool:
    """Whether the last vector of a row begins before the one before it ends, so that it ends with the row.

    Both compute and store the same sums of what they share: nothing outside of the row is read or written.
    """
    outputs = window.axes[-1].outputs
    return window.row != outputs and outputs >= window.lanes and _lie_together(window)


def _column(window: Window, x: Expr) -> Expr:
    """Return the output of a row that its element x computes."""
    if not overlaps(window):
        return x
    lanes, last = window.lanes, window.axes[-1].outputs - window.lanes
    return tirx.min(x // lanes * lanes, last) + x % lanes


def stages_planes(window: Window) -> bool:
    """Whether data is padded, widened or laid out anew before it is read."""
    return (
        any(axis.padded for axis in window.axes)
        or _excess(window) > 0
        or window.axes[-1].step != 1
        or window.problem.dtype != "f32"
        or window.problem.data_format == "NXC"
        or _crowded(window)
    )


def _crowded(window: Window) -> bool:
    """Whether a row's data of all channels would lie in one set of the first level cache, and several tiles read it."""
    plane = F32_BITS // 8 * prod(window.problem.in_spatial)
    several = len(window.axes) > 1 and window.channels > L1_WAYS and window.outputs > MOST_CHANNELS
    return several and plane % L1_WAY_BYTES == 0


def stores_rows(window: Window) -> bool:
    """Whether whole vectors of a row lie together in the output."""
    return _lie_together(window) and _excess(window) == 0


def _excess(window: Window) -> int:
    """Elements of a row that are computed but not stored."""
    return 0 if overlaps(window) else window.row - window.axes[-1].outputs


def planar_place(window: Window) -> Callable[[list[Expr]], tuple[Expr, Expr | None]]:
    """Return the place of `out`'s elements: as window.place, with the last two axes exchanged."""
    rank = len(window.axes)

    def place(indices: list[Expr]) -> tuple[Expr, Expr | None]:
        if interleaves(window):  # the last index is the phase
            indices = [*indices[: 1 + rank], indices[-1], *indices[1 + rank : -1]]
        at = [*indices[:-2], _column(window, indices[-1]), indices[-2]]
        return lies(window.problem, window.axes, window.outputs, at)

    return place


def express_planar(window: Window, data: te.Tensor, weights: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs but the last..., o, x).

    Raises
    ------
    InvalidProblemError
        If a stage has more elements than 32-bit indices reach.
    """
    rank, number, dtype = len(window.axes), window.index, window.problem.dtype
    read_data, read_filter = _data(window, data), _filter(window, weights)
    c = te.reduce_axis((0, window.channels), name="c")
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]

    def total(*indices: Expr) -> Expr:
        n, g, o, x = indices[0], indices[1], indices[-2], indices[-1]
        p, y = indices[2 : 2 + rank], (*indices[2 + rank : -2], _column(window, x))
        product = read_data(n, g * window.channels + c, p, y, taps) * read_filter(g, p, taps, c, o)
        # Phases of a row are unrolled, and its taps unless there are many: no condition is left.
        return te.sum(_where_tapped(window, p, taps, product), axis=[c, *taps])

    last = window.axes[-1]
    phases = tuple(axis.phases for axis in window.axes)
    rows = tuple(axis.outputs for axis in window.axes[:-1])
    shape = (window.problem.batch, window.groups, *phases, *rows, window.outputs, window.row)
    acc = te.compute(shape, total, name=f"acc{number}")
    if not stores_rows(window):
        acc = te.compute(shape, lambda *indices: acc(*indices), name=f"tile{number}")

    def rounded(*indices: Expr) -> Expr:
        value = acc(*indices)
        if bias is not None:
            value = value + widen(bias[indices[1] * window.outputs + indices[-2]], dtype)
        return narrow(value, dtype)

    shape = (*shape[:-1], window.row - _excess(window))
    if not interleaves(window):
        return te.compute(shape, rounded, name=f"out{number}")
    before = 1 + rank

    def interleaved(*indices: Expr) -> Expr:
        return rounded(*indices[:before], indices[-1], *indices[before:-1])

    return te.compute((*shape[:before], *shape[before + 1 :], last.phases), interleaved, name=f"out{number}")


def _data(window: Window, data: te.Tensor) -> Callable[..., Expr]:
    problem, axes = window.problem, window.axes

    def coordinates(p: Any, y: Any, k: Any) -> list[Expr]:
        return [
            axis.origin(pp) + yy * axis.step + kk * axis.spacing for axis, pp, yy, kk in zip(axes, p, y, k, strict=True)
        ]

    if not stages_planes(window):
        return lambda n, c, p, y, k: data(n, c, *coordinates(p, y, k))

    last, lowest = axes[-1], [axis.lowest for axis in axes]
    # Column x lies at (x % step, x // step) of the phases: outputs of a row read columns `step` apart.
    columns = -(-(last.extent + _excess(window) * last.step) // last.step)
    extents = [*(axis.extent for axis in axes[:-1]), columns * last.step]

    def padded(n: Expr, c: Expr, *indices: Expr) -> Expr:
        x = [index + low for index, low in zip(indices, lowest, strict=True)]
        bounds = []
        for axis, extent, low, xx in zip(axes, extents, lowest, x, strict=True):
            bounds += [xx >= 0] if low < 0 else []
            bounds += [xx < axis.inputs] if low + extent > axis.inputs else []
        value = widen(data(n, c, *x) if problem.data_format == "NCX" else data(n, *x, c), problem.dtype)
        return tirx.if_then_else(tirx.all(*bounds), value, tirx.const(0, "float32")) if bounds else value

    shape = (problem.batch, problem.in_channels, *extents[:-1], columns * last.step)
    taken: Callable[..., Expr] = padded
    # Lowering separates the columns of planes in f32 by shuffles (tvmconv/striding.py), LLVM others, without conditions.
    if last.step == 1 or problem.dtype != "f32" or problem.data_format != "NCX":
        taken = pad = te.compute(within_reach(shape, "the copy of data"), padded, name=f"data_pad{window.index}")
    if last.step > 1:
        phases = min(last.step, (last.taps - 1) * last.spacing + 1)
        shape = within_reach((*shape[:-1], phases, columns), "the copy of data")
        pad = te.compute(
            shape, lambda *at: taken(*at[:-2], at[-1] * last.step + at[-2]), name=f"data_phases{window.index}"
        )

    def read(n: Expr, c: Expr, p: Any, y: Any, k: Any) -> Expr:
        spatial = [x - low for x, low in zip(coordinates(p, y, k), lowest, strict=True)]
        offset = last.origin(p[-1]) - lowest[-1] + k[-1] * last.spacing
        if last.step == 1:
            return pad(n, c, *spatial)
        return pad(n, c, *spatial[:-1], offset % last.step, y[-1] + offset // last.step)

    return read


def _where_tapped(window: Window, p: Any, k: Any, value: Expr) -> Expr:
    """Return `value`, or 0 beyond the filter's end, where interleaved phases with one tap less find their last."""
    axis, taps = window.axes[-1], window.problem.kernel[-1]
    if not interleaves(window) or axis.taps * axis.phases == taps:
        return value
    return tirx.if_then_else(axis.filter_tap(p[-1], k[-1]) < taps, value, tirx.const(0, "float32"))


def _filter(window: Window, weights: te.Tensor) -> Callable[..., Expr]:
    """Return what reads the filter for a product, ``(g, p, k, c, o)``: in place, or in the order of the sum's loops."""
    problem, axes, rank = window.problem, window.axes, len(window.axes)
    element = filter_element(window, weights)
    if problem.dtype == "f32" and not window.ahead:
        return element
    # A tile's channels divide these, which divide the outputs.
    block = divisors(window.outputs, MOST_CHANNELS)[-1]

    def packed(g: Expr, b: Expr, *indices: Expr) -> Expr:
        *p, c = indices[:rank]
        k, (row_phase, o) = indices[rank : 2 * rank], indices[2 * rank :]
        p.append(row_phase)
        return _where_tapped(window, p, k, element(g, p, k, c, b * block + o))

    phases, taps = [axis.phases for axis in axes], [axis.taps for axis in axes]
    shape = (window.groups, window.outputs // block, *phases[:-1], window.channels, *taps, phases[-1], block)
    pack = te.compute(within_reach(shape, "the copy of the filter"), packed, name=f"filter_pack{window.index}")
    return lambda g, p, k, c, o: pack(g, o // block, *p[:-1], c, *k, p[-1], o % block)
