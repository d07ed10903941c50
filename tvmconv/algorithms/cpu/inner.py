"""Windows whose lanes run along the products of a sum, which are contiguous in the filter: for few pixels and plain filters.

The filter is read once, in place, row by row. In OIX a row has all input channels and taps of an output channel, and data is copied to
rows of the same order; in XIO a transposed convolution's filter has a row of channels for each tap. Nothing is packed. A
tile is some pixels by some output channels, and the lanes of each sum are added at its end. Stages:

    data_pad     data widened to f32, or pairs of bf16, in the order of the products        (absent if data has that order)
    acc          the sums, f32, axes (n, g, phases..., outputs..., o, lanes)
    lane_sums    acc with lanes along the output channels
    tile         its vectors added
    out          bias added, rounded once to the output type
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import te

from ...problem import Problem
from ...targets.cpus import L1_WAY_BYTES
from ...targets.target import CpuTarget
from ..axes import convolution_axes
from ..data_dependence import covers_data
from ..definition import Definition, assemble
from ..epilogue import Epilogue
from ..flatten import flatten
from ..pairs import multiply_of
from ..shapes import accumulators, divisors
from ..stage_names import ACC, LANE_SUMS, TILE, stage_name
from ..subconvolution import Expr
from .direct import no_dot
from .model.cost import Counts, lines, multiply_add, tile_step, total
from .model.counts import copied_element, stored_lines
from .reduced import ReducedWindow, reduced_lanes
from .windows.data import staged_data
from .windows.express import rounded_sums
from .windows.filter import filter_element
from .windows.im2col import Im2colWindow
from .windows.make import windows_of
from .windows.window import Kind, Window

# Least products of a sum: adding its lanes takes as long as so many, or longer.
LEAST_PRODUCTS = 128
# Most rows of the filter that a tile reads at a time: hardware prefetches no more streams.
MOST_OUTPUTS = 8
# Most pixels of a phase: more of them make packing worth it.
MOST_PIXELS = 16


@dataclass(frozen=True)
class InnerWindow(ReducedWindow):
    """A window whose channels of data are in the order of the filter's rows."""

    @property
    def stages_data(self) -> bool:
        """Return whether data is copied, also because its pixels share sets of L1 with each other and the filter."""
        shared = self.pixels > 1 and 4 * self.pixel % L1_WAY_BYTES == 0
        return super().stages_data or shared

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return the indices in the filter, or a convolution's filter rows, of the weight of a tap, channel `c` and output `o`."""
        if self.problem.op == "convolution":
            return [g * self.outputs + o, c]
        return super().filter_indices(g, phases, taps, c, o)


@dataclass(frozen=True)
class RowWindow(Im2colWindow):
    """A window of one axis and one tap, whose channels are all channels and taps, in the order of an OIX filter."""

    @property
    def shifted(self) -> bool:
        """Return False: vectors do not consist of output channels."""
        return False

    @property
    def data_in_pairs(self) -> bool:
        """Return False: a pair may consist of two taps."""
        return False

    @property
    def _taps_first(self) -> bool:
        return False

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return the indices in the filter's rows of the weight of channel `c` and output `o` of group `g`."""
        return [g * self.outputs + o, c]


def covers(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    flat = flatten(problem)
    if vnni_factor == 2 and (reason := no_dot(flat, target)):
        return reason
    if vnni_factor == 2 and target.isa.dots_by_element:
        return "dot products here take one operand by element, not by vector"
    products = _together(flat)
    if not products:
        return f"the products of a sum are not contiguous in a filter of {flat.filter_format}"
    if products % vnni_factor or not reduced_lanes(products // vnni_factor, target):
        return f"{products} contiguous products do not fill whole vectors"
    if products < LEAST_PRODUCTS:
        return f"{products} products are contiguous; it takes {LEAST_PRODUCTS} or more"
    if reason := covers_data(problem, target):
        return reason
    pixels = max((window.pixels for window in windows_of(flat, target)), default=0)
    return f"it is for {MOST_PIXELS} pixels or fewer, not {pixels}" if pixels > MOST_PIXELS else None


def _together(flat: Problem) -> int:
    """Return the number of a sum's products that are contiguous in the filter of a flattened problem."""
    channels = flat.in_channels // flat.groups
    if flat.op == "convolution":
        return channels * prod(flat.kernel) if flat.filter_format == "OIX" else 0
    return channels if flat.filter_format == "XIO" else 0


def _in_order(flat: Problem) -> bool:
    """Return whether data has the products of a filter's row in that row's order: a single tap's channels."""
    carried = flat.in_spatial == flat.out_spatial and max(flat.strides) == 1 and prod(flat.kernel) == 1
    return flat.op != "convolution" or (carried and len(flat.kernel) == 1)


def define(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> Definition:
    """Define `problem` by windows whose lanes run along the products of a sum."""
    flat = flatten(problem)
    windows = inner_windows(problem, target, vnni_factor)
    return assemble(problem, flat, windows, express_inner, vnni_factor, filter_rows=flat.op == "convolution")


def inner_windows(problem: Problem, target: CpuTarget, vnni_factor: int) -> list[Window]:
    """Return the windows of `define`."""
    flat = flatten(problem)
    lanes = reduced_lanes(_together(flat) // vnni_factor, target)
    windows = windows_of(flat, target)
    if not _in_order(flat):
        return [_rounded_up(_rows(window, lanes, vnni_factor), target) for window in windows]
    inner = [window.as_kind(InnerWindow, lanes=lanes, vnni_factor=vnni_factor) for window in windows]
    return [_rounded_up(window, target) if flat.op == "convolution" else window for window in inner]


def _rounded_up(window: Kind, target: CpuTarget) -> Kind:
    """Return a window of one axis with its row of pixels rounded up to whole tiles of the least loads."""
    outputs = window.axes[-1].outputs

    def cost(width: int) -> float:
        return -(-outputs // width) * width * (1 + _loads(window, width, target))

    width = min(range(1, accumulators(target) // 2 + 1), key=cost)
    return replace(window, row=-(-outputs // width) * width)


def _rows(window: Window, lanes: int, vnni_factor: int) -> RowWindow:
    """Return a window as one whose pixels are copied with all their taps, one after the other."""
    problem, axes = window.problem, window.axes
    pixels = (prod(axis.outputs for axis in axes),)
    ones, zeros = (
        dict.fromkeys(("kernel", "strides", "dilations"), (1,)),
        dict.fromkeys(("pads_begin", "pads_end"), (0,)),
    )
    channels = problem.in_channels * prod(problem.kernel)
    row = problem.with_(in_spatial=pixels, out_spatial=pixels, in_channels=channels, **ones, **zeros)
    return window.as_kind(
        RowWindow,
        problem=row,
        axes=convolution_axes(row)[0],
        row=pixels[0],
        lanes=lanes,
        vnni_factor=vnni_factor,
        data_axes=axes,
    )


def express_inner(window: Window, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs..., o)."""
    rank, number, lanes = len(window.axes), window.index, window.lanes
    read_data, read_filter = staged_data(window, data), filter_element(window, weights)
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]
    step = te.reduce_axis((0, window.channels // lanes), name="c")
    multiply = multiply_of(window.problem, window.vnni_factor)

    def product(*indices: Expr) -> Expr:
        n, g, o, c = indices[0], indices[1], indices[-2], step * lanes + indices[-1]
        p, y = indices[2 : 2 + rank], indices[2 + rank : -2]
        return te.sum(multiply(read_data(n, g, p, y, taps, c, o), read_filter(g, p, taps, c, o)), axis=[*taps, step])

    phases, outputs = [axis.phases for axis in window.axes], [axis.outputs for axis in window.axes]
    tiled = (window.problem.batch, window.groups, *phases, *outputs[:-1], window.row, window.outputs, lanes)
    acc = te.compute(tiled, product, name=stage_name(ACC, number))
    shape = window.shape
    turned = te.compute(
        (*shape[:-1], lanes, window.outputs),
        lambda *at: acc(*at[:-2], at[-1], at[-2]),
        name=stage_name(LANE_SUMS, number),
    )
    lane = te.reduce_axis((0, lanes), name="lane")
    tile = te.compute(
        shape, lambda *at: te.sum(turned(*at[:-1], lane, at[-1]), axis=lane), name=stage_name(TILE, number)
    )
    return rounded_sums(window, tile, window.outputs, epilogue)


def estimate(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> Counts:
    """Count the events of a problem with a plain filter."""
    flat = flatten(problem)
    windows = inner_windows(problem, target, vnni_factor)
    counted = [_window_estimate(window, target) for window in windows]
    size = 4 // vnni_factor * prod(flat.filter_shape)
    memory = {"lines.memory": lines(size) if size > target.l3_share else 0.0}
    return total(*counted, memory, stored_lines(flat, 1, target))


plain = estimate


def _window_estimate(window: Window, target: CpuTarget) -> Counts:
    sums = float(
        window.problem.batch * prod(axis.outputs * axis.phases for axis in window.axes) * window.problem.out_channels
    )
    products = sums * prod(axis.taps for axis in window.axes) * window.channels / window.lanes
    width = tile_widths(window, target)[0]
    outputs = tile_outputs(window, width, target)
    loads = width + outputs
    step = tile_step(target.costs.tile, loads, 2 * loads, width * outputs) / (width * outputs)  # by half vectors
    arithmetic = products * window.row / window.axes[-1].outputs * step * multiply_add(window.lanes, target)
    if window.vnni_factor == 2:
        arithmetic *= 2 / target.dot_rate
    copy = {}
    if window.stages_data:
        elements = float(
            window.problem.batch * prod(axis.extent for axis in window.axes) * window.pixel * window.vnni_factor
        )
        copy = {"elements.apart" if isinstance(window, RowWindow) else copied_element(window): elements}
    return total({"tile.scale": arithmetic, "elements.add_lanes": sums, "start": sums / (width * outputs)}, copy)


def tile_widths(window: Window, target: CpuTarget) -> list[int]:
    """Return the numbers of pixels that a tile may have, those with the fewest loads per multiply-add first."""
    return sorted(divisors(window.row, accumulators(target) // 2), key=lambda width: _loads(window, width, target))


def _loads(window: Window, width: int, target: CpuTarget) -> float:
    """Return the vectors that a tile of so many pixels loads per multiply-add."""
    outputs = tile_outputs(window, width, target)
    return (width + outputs) / (width * outputs)


def tile_outputs(window: Window, width: int, target: CpuTarget) -> int:
    """Return the output channels of a tile of so many pixels: registers hold the sums, and vectors of the channels or the pixels."""
    most = (accumulators(target) - min(width, MOST_OUTPUTS) + 2) // width
    return divisors(window.outputs, max(1, min(MOST_OUTPUTS, most)))[-1]
