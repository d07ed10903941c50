"""Depthwise convolution of integers by pairs of taps: an instruction multiplies two taps' data of a channel, 16 bits each, by both weights.

Lanes run along channels. Data minus its zero point is copied in 16 bits, padded; unpacking two pixels' vectors gives pairs for all
channels, which an instruction (vpmaddwd) multiplies by pairs of the filter and adds. Pairs are taps of two rows, which neighbouring outputs
share, and taps of two columns in an odd last row. Stages:

    data_pad     data minus the zero point in 16 bits, zero-padded
    filter_pack  pairs of weights, [group, block, phases, outer taps, pair, 1, 1, lane]
    acc          the sums, s32
    tile, out    as of other windows (windows/express.py)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import te, tirx

from ...checks import within_reach
from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_data
from ..definition import Definition, assemble, requests_of
from ..epilogue import Epilogue
from ..flatten import flatten
from ..pairs import filter_bits, multiply_taps, no_integer_pairs, pair
from ..shapes import divisors
from ..stage_names import ACC, DATA_PAD, FILTER_PACK, stage_name
from ..subconvolution import Axis, Expr
from ..types import zero_outside
from .grouped_plan import MAX_UNROLLED, MAX_UNROLLED_ROW
from .model.cost import Counts, lines, multiply_add, total
from .model.counts import copied_again, copy_extent, outputs, stored_lines
from .model.tasks import rows_first, task_cycles
from .windows.express import finish
from .windows.make import windows_of
from .windows.plan import GroupedPlan
from .windows.window import Window

COPY = "int16"
# Lanes of 16 bits in 128 bits, of whose halves unpacking takes the first or the last of each vector.
UNPACKED = 8
# Least multiply-adds of a pair: in tiles of two pixels.
LEAST_UNROLLED = 4


@dataclass(frozen=True)
class TapPairsWindow(Window):
    """A window whose products are dot products of pairs of taps."""

    @property
    def stages_data(self) -> bool:
        """Return True: data is copied in 16 bits."""
        return True

    @property
    def rows(self) -> int:
        """Taps along the axis before the last; 1 if there is none."""
        return self.axes[-2].taps if len(self.axes) > 1 else 1

    @property
    def mixed(self) -> bool:
        """Return whether the taps of an odd last row form pairs of columns, which requires that all pairs are unrolled."""
        columns = self.axes[-1].taps
        return self.rows % 2 > 0 and (self.rows // 2 * columns + -(-columns // 2)) * LEAST_UNROLLED <= MAX_UNROLLED

    @property
    def pairs(self) -> int:
        """Number of pairs of taps of the last two axes."""
        columns = self.axes[-1].taps
        return self.rows // 2 * columns + -(-columns // 2) if self.mixed else -(-self.rows // 2) * columns

    @property
    def unrolled(self) -> int:
        """Number of pairs in a loop's body: all, or a divisor of the columns."""
        return self.pairs if self.mixed else divisors(self.axes[-1].taps, MAX_UNROLLED // LEAST_UNROLLED)[-1]

    @property
    def loops(self) -> bool:
        """Return whether there is a loop around the pairs of a body."""
        return prod(axis.taps for axis in self.axes[:-2]) * self.pairs > self.unrolled

    def taps_of(self, number: Expr) -> tuple[list[list[Expr]], list[Expr]]:
        """Return both taps of a pair along the last two axes, or the last one, and for each whether this pair counts it.

        Pairs of two rows come first. An odd last row has pairs of columns, the last of which may begin with a tap of the one before; or
        pairs of the same tap twice.
        """
        columns, rows = self.axes[-1].taps, self.rows
        row, at = number // columns * 2, number % columns
        of_rows = number < rows // 2 * columns
        first = tirx.min(at * 2, max(columns - 2, 0))
        found = []
        for which in (0, 1):
            column = tirx.Select(of_rows, at, tirx.min(first + which, columns - 1)) if self.mixed else at
            found.append([tirx.min(row + which, rows - 1), column][-len(self.axes) :])
        if self.mixed:
            return found, [tirx.any(of_rows, at * 2 + 1 < columns), tirx.const(True, "bool")]
        return found, [tirx.const(True, "bool"), row + 1 < rows]


def covers(problem: Problem, target: CpuTarget) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    problem = flatten(problem)
    if not problem.is_quantized:
        return f"it multiplies integers, not {problem.dtype}"
    if problem.groups == 1 or not problem.in_channels == problem.out_channels == problem.groups:
        return "it is for depthwise convolutions"
    if problem.data_format != "NXC":
        return f"channels are not contiguous in {problem.data_format}"
    if reason := no_integer_pairs(target):
        return reason
    if problem.out_channels < (lanes := _lanes(target)):
        return f"{problem.out_channels} channels do not fill a vector of {lanes}"
    return covers_data(problem, target)


def define(problem: Problem, target: CpuTarget) -> Definition:
    """Define `problem` by windows whose taps are multiplied by pairs."""
    windows = _windows(problem, target)
    return assemble(problem, flatten(problem), windows, express_pairs, asks=requests_of(problem, windows))


def _lanes(target: CpuTarget) -> int:
    return target.vector_bits // 16


def _windows(problem: Problem, target: CpuTarget) -> list[TapPairsWindow]:
    flat, lanes = flatten(problem), _lanes(target)
    made = [each.as_kind(TapPairsWindow, lanes=lanes, spread=True) for each in windows_of(flat, target, across=True)]
    return [_plan_tasks(each, target) for each in made]


def _plan_tasks(window: TapPairsWindow, target: CpuTarget) -> TapPairsWindow:
    """Return the window with its plan of least cost; the last tile of a row is shifted to end with it."""
    outputs = window.row
    # A pixel's sums are two registers. Sums of a loop get half of all registers, as in `grouped`.
    held = target.vector_registers // (4 if window.loops else 2)
    most = min(outputs, held, MAX_UNROLLED_ROW // (2 * window.unrolled))
    widths = range(1, max(1, most) + 1)
    tile = min(widths, key=lambda width: _tile_cycles(window, width, target) * -(-outputs // width))
    window = window.as_kind(TapPairsWindow, row=-(-outputs // tile) * tile, tile=tile)
    blocks = window.padded_outputs // window.lanes
    height = window.axes[-2].outputs if len(window.axes) > 1 else 1
    chunks, rows = [1] if window.shifted else divisors(blocks, blocks), divisors(height, 64)
    best = min(((c, r) for c in chunks for r in rows), key=lambda cr: task_cycles(window, cr[0], cr[1], tile, target))
    plan = GroupedPlan(
        vectors=1,
        tiles=([tile], tile),
        chunks=(chunks, best[0]),
        rows=(rows, best[1]),
        rows_first=rows_first(window, target),
        taps_unrolled=window.unrolled,
        taps_together=0,
        channels_first=False,
    )
    return window.as_kind(TapPairsWindow, plans=(plan,))


def _tile_cycles(window: TapPairsWindow, width: int, target: CpuTarget) -> float:
    """Return the multiply-adds of whole vectors that a tile of so many pixels costs: products, loads, and unpacking of pairs."""
    *outer, row = window.axes
    above, load = prod(axis.taps for axis in outer[:-1]), target.costs.lanes.load
    columns = (width - 1) * row.stride + row.span
    products = 2 * above * window.pairs
    unpacked = 2 * above * columns * -(-window.rows // 2)
    loads = products + above * window.rows * columns + unpacked
    return width * products * 2 / target.product_rate(integers=True) + loads * load


def express_pairs(window: TapPairsWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs..., o)."""
    rank, number, axes = len(window.axes), window.index, window.axes
    at, weight = _data(window, data), _filter(window, weights)
    outer = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(axes[:-2])]
    t = te.reduce_axis((0, window.pairs), name="t")

    def sum_pairs(*indices: Expr) -> Expr:
        n, g, o = indices[0], indices[1], indices[-1]
        p, y = indices[2 : 2 + rank], [*indices[2 + rank : -2], window.column(indices[-2])]
        both, _ = window.taps_of(t)
        first, second = (at(n, *window.coordinates(p, y, [*outer, *taps]), o) for taps in both)
        return te.sum(multiply_taps(first, second, weight(g, p, [*outer, t], o)), axis=[*outer, t])

    phases = [axis.phases for axis in axes]
    shape = (window.problem.batch, 1, *phases, *(axis.outputs for axis in axes[:-1]), window.row, window.padded_outputs)
    return finish(window, te.compute(shape, sum_pairs, name=stage_name(ACC, number)), epilogue)


def _data(window: TapPairsWindow, data: te.Tensor) -> Any:
    """Return ``at(n, *x, o)``: data of the channel of lane `o`, from a copy in an order that unpacking reverts."""
    axes, problem, lanes = window.axes, window.problem, window.lanes
    lowest, extents = [axis.lowest for axis in axes], [axis.extent for axis in axes]
    gaps = [axis.gap for axis in axes]

    def padded(n: Expr, *indices: Expr) -> Expr:
        x = [index * gap + low for index, gap, low in zip(indices[:-1], gaps, lowest, strict=True)]
        place = indices[-1]
        channel = window.output(place // lanes * lanes + unpack_lane(place % lanes, lanes))
        value = data(n, *x, channel).astype(COPY) - tirx.const(problem.zero_point, COPY)
        bounds = [bound for each in map(Axis.inside, axes, x, lowest, extents) for bound in each]
        return zero_outside(bounds, value, COPY)

    held = [-(-extent // gap) for extent, gap in zip(extents, gaps, strict=True)]
    shape = within_reach((problem.batch, *held, window.padded_outputs), "the copy of data")
    pad = te.compute(shape, padded, name=stage_name(DATA_PAD, window.index))

    def at(n: Expr, *indices: Expr) -> Expr:
        return pad(n, *((x - low) // gap for x, low, gap in zip(indices[:-1], lowest, gaps, strict=True)), indices[-1])

    return at


def unpack_lane(lane: Expr, lanes: int) -> Expr:
    """Return the channel of a lane of the copy, for which unpacked first halves of 128 bits, then second ones, are in order."""
    half, parts = UNPACKED // 2, lanes // UNPACKED
    return lane % UNPACKED // half * (lanes // 2) + lane // UNPACKED * half + lane % half if parts > 1 else lane


def _filter(window: TapPairsWindow, weights: te.Tensor) -> Any:
    """Return ``weight(g, phases, taps, o)``: the weights of lane `o` for a pair; `taps` end with the pair's number."""
    axes, problem, lanes = window.axes, window.problem, window.lanes
    rank = len(axes)

    def packed(g: Expr, block: Expr, *indices: Expr) -> Expr:
        p, outer, t, lane = indices[:rank], indices[rank:-4], indices[-4], indices[-1]
        both, own = window.taps_of(t)
        o = window.output(block * lanes + lane)

        def bits(which: int) -> Expr:
            value = weights(*window.filter_indices(g, p, [*outer, *both[which]], 0, o))
            value = filter_bits(value, problem, 2)
            return tirx.if_then_else(own[which], value, tirx.const(0, "uint16"))

        return pair(bits, 0, 2)

    taps = [*(axis.taps for axis in axes[:-2]), window.pairs]
    shape = (1, window.padded_outputs // lanes, *(axis.phases for axis in axes), *taps, 1, 1, lanes)
    pack = te.compute(within_reach(shape, "the copy of the filter"), packed, name=stage_name(FILTER_PACK, window.index))
    return lambda g, p, taps, o: pack(g, o // lanes, *p, *taps, 0, 0, o % lanes)


def estimate(problem: Problem, target: CpuTarget) -> Counts:
    """Count the events of a problem, its filter prepacked."""
    flat, windows = flatten(problem), _windows(problem, target)
    return total(*(_window_estimate(window, target) for window in windows), stored_lines(flat, 1, target))


def _window_estimate(window: TapPairsWindow, target: CpuTarget) -> Counts:
    plan = window.plans[0]
    assert isinstance(plan, GroupedPlan)
    blocks = window.padded_outputs // window.lanes
    tiles = outputs(window) / window.axes[-1].outputs * (window.row // window.tile) * blocks
    pixels = window.problem.batch * prod(map(copy_extent, window.axes)) * copied_again(window, plan.rows[1], whole=True)
    return {
        "lanes.scale": tiles * _tile_cycles(window, window.tile, target) * multiply_add(window.lanes // 2, target),
        "start": tiles,
        # 16 bits are written for 8 that are read and converted.
        "lines.copy": lines(3 * pixels * window.padded_outputs),
    }
