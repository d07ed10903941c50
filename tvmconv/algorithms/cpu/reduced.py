"""Tensor expressions of windows whose lanes run along the channels that are summed: for few output channels.

The windows are those of window.py, but vectors hold neighbouring channels of a pixel of data and of the filter. The lanes of
each output's sum are added at the end. Stages:

    data_pad     data widened to f32, zero-padded              (absent if data is read in place)
    filter_pack  filter widened to f32, [g, o, taps, c / lanes, c % lanes]    (absent if these channels are contiguous)
    acc          the sums, f32, axes (n, g, phases..., outputs..., o, lanes / 4, 4)
    lane_sums    acc with 4 lanes, each the sum of a quarter of acc's
    tile         the sum of the four lanes
    out          bias added, rounded once to the output type
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tvm import te

from ...checks import within_reach
from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_data
from ..definition import Definition, assemble
from ..epilogue import Epilogue
from ..flatten import flatten
from ..shapes import FEW_OUTPUTS, divisors
from ..stage_names import ACC, FILTER_PACK, LANE_SUMS, TILE, stage_name
from ..subconvolution import Expr
from .model.cost import Counts, lines, multiply_add
from .model.counts import outputs, stored_lines
from .windows.data import staged_data
from .windows.express import rounded_sums
from .windows.filter import filter_element
from .windows.make import windows_of
from .windows.window import Window

# Sums of 3 outputs by 4 pixels, and least vectors of channels for them: with fewer channels LLVM unrolls all taps, and spills sums.
TWELVE, LEAST_STEPS = 12, 6


def covers(problem: Problem, target: CpuTarget) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    problem = flatten(problem)
    if problem.data_format != "NXC":
        return f"channels are not contiguous in {problem.data_format}"
    if problem.out_channels // problem.groups > FEW_OUTPUTS:
        return f"there are more than {FEW_OUTPUTS} output channels"
    if not reduced_lanes(problem.in_channels // problem.groups, target):
        return "the channels of a group are not a multiple of 4"
    return covers_data(problem, target)


def define(problem: Problem, target: CpuTarget) -> Definition:
    """Define `problem` by windows whose lanes run along the channels that are summed."""
    flat = flatten(problem)
    return assemble(problem, flat, reduced_windows(flat, target), express_reduced)


def reduced_windows(problem: Problem, target: CpuTarget) -> list[ReducedWindow]:
    """Return the windows of a flattened problem."""
    lanes = reduced_lanes(problem.in_channels // problem.groups, target)
    return [window.as_kind(ReducedWindow, lanes=lanes) for window in windows_of(problem, target)]


def estimate(problem: Problem, target: CpuTarget) -> Counts:
    """Count the events of a problem, its filter prepacked."""
    flat = flatten(problem)
    windows = reduced_windows(flat, target)
    lanes, width = windows[0].lanes, min(widths(window, target)[0] for window in windows)
    products = sum(_visited_products(window, width) for window in windows) / lanes
    # A tile reads the whole filter, from L2 if L1 does not keep it.
    far = 4 * prod(flat.filter_shape) // flat.groups > target.l1_share
    return {
        **stored_lines(flat, 1, target),
        "product_reduced": products * multiply_add(lanes, target),
        "lines.l2": products / width * lines(4 * lanes) if far else 0.0,
        "elements.add_lanes": prod(flat.output_shape),
        "elements.copy": prod(flat.data_shape) if any(window.stages_data for window in windows) else 0.0,
    }


def _visited_products(window: Window, width: int) -> float:
    """Return the number of products that tiles of so many pixels visit, without skipped ones with padding."""
    *outer, row = window.axes
    share = prod(axis.met for axis in outer) if window.skips_rows else 1.0
    share *= row.visited(width) if window.skips_columns else 1.0
    taps = prod(axis.taps for axis in window.axes)
    return outputs(window) * window.groups * window.outputs * taps * window.channels * share


def reduced_lanes(channels: int, target: CpuTarget) -> int:
    """Return the lanes of vectors that the channels of a group divide into; 0 if there are none."""
    return next((lanes for lanes in (target.vector_bits // 32, 8, 4) if channels % lanes == 0), 0)


def widths(window: Window, target: CpuTarget) -> list[int]:
    """Return the numbers of pixels that a tile may have, the most first.

    Sums mostly take half of the registers; the other half holds data and filter of a step, and later lanes that are added.
    """
    most = max(1, target.vector_registers // 2 // window.outputs)
    if _holds_twelve(window, target):
        most = TWELVE // window.outputs
    return divisors(window.row, most)[::-1]


def _holds_twelve(window: Window, target: CpuTarget) -> bool:
    """Return whether sums of 3 outputs by 4 pixels are held in 16 registers, with 3 vectors of the filter and one of data."""
    return "twelve_sums" in target.costs.pays and window.outputs == 3 and window.channels // window.lanes >= LEAST_STEPS


@dataclass(frozen=True)
class ReducedWindow(Window):
    """A window whose lanes run along the channels of data."""

    @property
    def shifted(self) -> bool:
        """Return False: vectors do not consist of output channels."""
        return False


def packs_filter(window: Window) -> bool:
    """Return whether the filter is packed: unless it is f32 and the channels of an output and tap are contiguous."""
    problem = window.problem
    if problem.dtype != "f32":
        return True
    if problem.op == "convolution_backprop_data":
        return problem.filter_format == "OIX"
    if problem.filter_format == "XIO":
        return problem.out_channels > 1
    return any(axis.taps > 1 for axis in window.axes)


def express_reduced(window: Window, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs..., o)."""
    rank, number, lanes = len(window.axes), window.index, window.lanes
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
    acc = te.compute((*shape, lanes // 4, 4), total, name=stage_name(ACC, number))
    part = te.reduce_axis((0, lanes // 4), name="part")
    partial = te.compute(
        (*shape, 4), lambda *at: te.sum(acc(*at[:-1], part, at[-1]), axis=part), name=stage_name(LANE_SUMS, number)
    )
    four = te.reduce_axis((0, 4), name="four")
    tile = te.compute(shape, lambda *at: te.sum(partial(*at, four), axis=four), name=stage_name(TILE, number))
    return rounded_sums(window, tile, window.outputs, epilogue)


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
    pack = te.compute(within_reach(shape, "the copy of the filter"), packed, name=stage_name(FILTER_PACK, window.index))
    return lambda g, p, k, step, lane, o: pack(g, o, *p, *k, step, lane)
