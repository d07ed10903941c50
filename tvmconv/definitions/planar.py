"""The tensor expressions of windows whose lanes run along a row of the output: for planar layouts, or few output channels.

The same windows as in window.py with other roles: a vector holds neighbouring outputs of a row, and each
filter element is broadcast. Stages:

    data_pad     data widened to f32, zero-padded, channel by channel  (absent when data can be read in place)
    data_phases  every s-th column of the copy together    (only with a stride s along the row)
    filter_pack  filter widened to f32                    (absent for f32)
    acc          the sum, f32, axes (n, g, phases..., outputs but the last..., o, x)
    tile         acc copied out of registers              (only where the store is not by whole vectors)
    out          bias added, rounded once to the output type
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tvm import te, tirx

from ..target import CpuTarget
from .shapes import lane_count
from .types import narrow, widen
from .window import Expr, Window, filter_element, within_reach


def planar_window(window: Window, target: CpuTarget) -> Window:
    """Return the window with lanes along its row, which is rounded up to whole vectors."""
    outputs = window.axes[-1].outputs
    lanes = lane_count(outputs, target)
    return replace(window, lanes=lanes, row=-(-outputs // lanes) * lanes)


def stages_planes(window: Window) -> bool:
    """Whether data is padded, widened or laid out anew before it is read."""
    return (
        any(axis.padded for axis in window.axes)
        or window.row != window.axes[-1].outputs
        or window.axes[-1].step != 1
        or window.problem.dtype != "f32"
        or window.problem.data_format == "NXC"
    )


def stores_rows(window: Window) -> bool:
    """Whether whole vectors of a row lie together in the output."""
    axis = window.axes[-1]
    together = window.problem.op == "convolution" or window.problem.strides[-1] == 1
    return window.problem.data_format == "NCX" and together and window.row == axis.outputs and axis.always_inside


def planar_place(window: Window) -> Callable[[list[Expr]], tuple[Expr, Expr | None]]:
    """Return the place of `out`'s elements: as window.place, with the last two axes exchanged."""
    return lambda indices: window.place([*indices[:-2], indices[-1], indices[-2]])


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
        p, y = indices[2 : 2 + rank], (*indices[2 + rank : -2], x)
        return te.sum(
            read_data(n, g * window.channels + c, p, y, taps) * read_filter(g, p, taps, c, o), axis=[c, *taps]
        )

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

    return te.compute((*shape[:-1], window.axes[-1].outputs), rounded, name=f"out{number}")


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
    columns = -(-(last.extent + (window.row - last.outputs) * last.step) // last.step)
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
    pad = te.compute(within_reach(shape, "the copy of data"), padded, name=f"data_pad{window.index}")
    if last.step > 1:
        # Without conditions LLVM separates the columns by shuffles.
        phases = min(last.step, (last.taps - 1) * last.spacing + 1)
        shape = (*shape[:-1], phases, columns)
        pad = te.compute(
            shape, lambda *at: pad(*at[:-2], at[-1] * last.step + at[-2]), name=f"data_phases{window.index}"
        )

    def read(n: Expr, c: Expr, p: Any, y: Any, k: Any) -> Expr:
        spatial = [x - low for x, low in zip(coordinates(p, y, k), lowest, strict=True)]
        offset = last.origin(p[-1]) - lowest[-1] + k[-1] * last.spacing
        if last.step == 1:
            return pad(n, c, *spatial)
        return pad(n, c, *spatial[:-1], offset % last.step, y[-1] + offset // last.step)

    return read


def _filter(window: Window, weights: te.Tensor) -> Callable[..., Expr]:
    problem, axes = window.problem, window.axes
    element = filter_element(window, weights)
    if problem.dtype == "f32":
        return element

    def packed(g: Expr, *indices: Expr) -> Expr:
        p, k = indices[: len(axes)], indices[len(axes) : -2]
        return element(g, p, k, indices[-2], indices[-1])

    phases, taps = [axis.phases for axis in axes], [axis.taps for axis in axes]
    shape = (window.groups, *phases, *taps, window.channels, window.outputs)
    pack = te.compute(within_reach(shape, "the copy of the filter"), packed, name=f"filter_pack{window.index}")
    return lambda g, p, k, c, o: pack(g, *p, *k, c, o)
