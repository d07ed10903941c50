"""The tensor expressions of windows whose lanes run along the channels that are summed: for few output channels.

The same windows as in window.py with other roles: a vector holds neighbouring channels of a pixel of data, which a
vector of the filter's multiplies. The lanes of each output's sum are added at the end. Stages:

    data_pad     data widened to f32, zero-padded              (absent when data can be read in place)
    filter_pack  filter widened to f32, [g, o, taps, c / lanes, c % lanes]    (absent when these already lie together)
    acc          the sums, f32, axes (n, g, phases..., outputs..., o, lanes / 4, 4)
    quarter      acc with 4 lanes, each the sum of a quarter of them
    tile         the four added
    out          bias added, rounded once to the output type
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm import te

from ..checks import within_reach
from ..target import CpuTarget
from .few_outputs import reduced_lanes
from .filter import filter_element
from .types import narrow, widen
from .window import Expr, Window, staged_data


def reduced_window(window: Window, target: CpuTarget) -> Window:
    """Return the window with lanes along the channels of data."""
    return replace(window, lanes=reduced_lanes(window.channels, target))


def packs_filter(window: Window) -> bool:
    """Whether the filter is laid out anew: unless it is f32 and the channels of an output and tap lie together."""
    problem = window.problem
    if problem.dtype != "f32":
        return True
    if problem.op == "convolution_backprop_data":
        return problem.filter_format == "OIX"
    if problem.filter_format == "XIO":
        return problem.out_channels > 1
    return any(axis.taps > 1 for axis in window.axes)


def express_reduced(window: Window, data: te.Tensor, weights: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs..., o).

    Raises
    ------
    InvalidProblemError
        If a stage has more elements than 32-bit indices reach.
    """
    rank, number, lanes, dtype = len(window.axes), window.index, window.lanes, window.problem.dtype
    read_data, read_filter = staged_data(window, data), _filter(window, weights)
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]
    step = te.reduce_axis((0, window.channels // lanes), name="c")

    def total(*indices: Expr) -> Expr:
        n, g, o, lane = indices[0], indices[1], indices[-3], indices[-2] * 4 + indices[-1]
        p, y = indices[2 : 2 + rank], indices[2 + rank : -3]
        product = read_data(n, g, p, y, taps, step * lanes + lane, o) * read_filter(g, p, taps, step, lane, o)
        return te.sum(product, axis=[*taps, step])

    phases, outputs = [axis.phases for axis in window.axes], [axis.outputs for axis in window.axes]
    shape = (window.problem.batch, window.groups, *phases, *outputs, window.outputs)
    acc = te.compute((*shape, lanes // 4, 4), total, name=f"acc{number}")
    part = te.reduce_axis((0, lanes // 4), name="part")
    quarter = te.compute(
        (*shape, 4), lambda *at: te.sum(acc(*at[:-1], part, at[-1]), axis=part), name=f"quarter{number}"
    )
    four = te.reduce_axis((0, 4), name="four")
    tile = te.compute(shape, lambda *at: te.sum(quarter(*at, four), axis=four), name=f"tile{number}")

    def rounded(*indices: Expr) -> Expr:
        value = tile(*indices)
        if bias is not None:
            value = value + widen(bias[indices[1] * window.outputs + indices[-1]], dtype)
        return narrow(value, dtype)

    return te.compute(shape, rounded, name=f"out{number}")


def _filter(window: Window, weights: te.Tensor) -> Callable[..., Expr]:
    axes, lanes = window.axes, window.lanes
    element = filter_element(window, weights)

    def in_place(g: Expr, p: list[Expr], k: list[Expr], step: Expr, lane: Expr, o: Expr) -> Expr:
        return element(g, p, k, step * lanes + lane, o)

    if not packs_filter(window):
        return in_place

    def packed(g: Expr, o: Expr, *indices: Expr) -> Expr:
        p, k = list(indices[: len(axes)]), list(indices[len(axes) : -2])
        return in_place(g, p, k, indices[-2], indices[-1], o)

    phases, taps = [axis.phases for axis in axes], [axis.taps for axis in axes]
    shape = (window.groups, window.outputs, *phases, *taps, window.channels // lanes, lanes)
    pack = te.compute(within_reach(shape, "the copy of the filter"), packed, name=f"filter_pack{window.index}")
    return lambda g, p, k, step, lane, o: pack(g, o, *p, *k, step, lane)
