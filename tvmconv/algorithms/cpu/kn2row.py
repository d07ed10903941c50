"""Tensor expressions of a convolution tap by tap ("kn2row", Vasudevan et al. 2017): for wide padding, and deep filters.

Each tap of the filter is a matrix that multiplies only the pixels of data that it meets, so no product is with padding. These pixels are
numbered consecutively, and tiles span ends of rows. Each output then adds the products of its taps. Stages:

    data_pad     data widened to f32, channel-last, not padded      (absent if data, or its pairs, are read in place)
    filter_pack  as in window.py
    acc          the products of a tap, f32, axes (n, g, taps..., pixel, o)
    part         acc copied out of registers
    sum          sums over all taps
    tile, out    as in window.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

from tvm import te, tirx

from ...checks import within_reach
from ...problem import Problem
from ...targets.cpus import L1_WAY_BYTES, L1_WAYS
from ...targets.target import CpuTarget
from ..annotations import IN_PIECE
from ..axes import axes_of
from ..definition import Definition, assemble
from ..epilogue import Epilogue
from ..flatten import flatten
from ..pairs import multiply_of, reads_pairs
from ..shapes import LEAST_SKIPPED, accumulators, divisors, tile_widths
from ..stage_names import ACC, DATA_PAD, PARTIAL, SUM, stage_name
from ..subconvolution import Axis, Expr, choose_constant
from ..types import widen
from . import direct
from .model.cost import THREADS, Counts, imbalance, lines, multiply_add, tile_step, total, weigh
from .model.counts import copied_element, count_stores, filter_traffic, stored_lines
from .windows.data import copies_groups
from .windows.express import finish
from .windows.filter import staged_filter
from .windows.filter_pieces import is_large
from .windows.make import windows_of
from .windows.tile import LEAST_GAIN, count_spills, pixel_stride, tile_cycles
from .windows.window import Window

CUT_ROWS = "rows"  # of outputs, along which tasks may be cut


def covers(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    problem = flatten(problem)
    if vnni_factor == 2 and not reads_pairs(problem):
        return "the channels of a pixel are not contiguous pairs"
    if problem.op != "convolution" and max(problem.strides) > 1:
        return "transposed convolutions with strides compute hardly any products with padding"
    if reason := direct.covers(problem, target, vnni_factor=vnni_factor):
        return reason
    (axes,) = axes_of(problem)
    if all(max(-axis.lowest, axis.lowest + axis.extent - axis.inputs) < LEAST_SKIPPED for axis in axes):
        return f"no axis has {LEAST_SKIPPED} elements of padding at an end"
    if all(axis.met == 1 for axis in axes):
        return "every tap meets data"
    return None


def define(problem: Problem, target: CpuTarget, vnni_factor: int = 1, prepacked: bool = False) -> Definition:
    """Define a convolution tap by tap; with `prepacked`, in the best way for prepacked filters."""
    windows = tap_windows(problem, target, vnni_factor, prepacked)
    by_element = vnni_factor == 2 and target.isa.dots_by_element
    return assemble(problem, flatten(problem), windows, express_kn2row, vnni_factor, by_element=by_element)


def define_prepacked(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> Definition | None:
    """Return the best definition for prepacked filters; None if it is that of `define`."""
    (window,) = tap_windows(problem, target, vnni_factor, prepacked=False)
    return None if window.stages_filter else define(problem, target, vnni_factor, prepacked=True)


def tap_windows(problem: Problem, target: CpuTarget, vnni_factor: int, prepacked: bool) -> list[Kn2rowWindow]:
    """Return the windows of `define`.

    Large filters are always packed, because each tap multiplies all pixels.
    """
    windows = windows_of(flatten(problem), target)
    tapped = [replace(tap_window(window, target), vnni_factor=vnni_factor, prepacked=prepacked) for window in windows]
    large = [is_large(replace(window, prepacked=False), target) for window in tapped]
    return [replace(w, large=each, prepacked=prepacked or each) for w, each in zip(tapped, large, strict=True)]


def estimate(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> Counts:
    """Count the events of a problem, its filter prepacked."""
    (window,) = tap_windows(problem, target, vnni_factor, prepacked=True)
    count = vector_counts(window, target)[0]
    width = widths(window, count, target)[0]
    tile = multiply_cycles(window, width, count, target) * (2 / target.dot_rate if vnni_factor == 2 else 1)
    vectors = window.problem.batch * window.groups * window.padded_outputs / window.lanes
    visits = vectors * visited_pixels(window, width)
    passing, slots = 4 * window.row * count * window.lanes, visits * multiply_add(window.lanes, target)
    counts = total(
        {"taps.scale": slots * window.channels * tile},
        {"add_tap_far" if passing > target.l1_share // 2 else "add_tap": slots},
        # The sums of all pixels and a tile's channels pass through the cache for each tap.
        {"add_passes": visits * lines(4 * window.lanes) if passing > target.l2_share // 2 else 0.0},
        {copied_element(window): prod(problem.data_shape) if window.stages_data else 0.0},
        count_stores(window, target),
        stored_lines(window.problem, 1, target),
        filter_traffic(window, target),
    )
    # Tasks are blocks of channels: other threads cannot share a single block.
    alone = imbalance(_count_tasks(window, count), THREADS[:1])
    return {event: times * alone for event, times in counts.items()}


def _count_tasks(window: Window, vectors: int) -> int:
    return window.problem.batch * window.groups * window.padded_outputs // window.lanes // vectors


def vector_counts(window: Window, target: CpuTarget) -> list[int]:
    """Return the numbers of vectors of channels that a tile may have, the best first."""
    blocks, products = window.padded_outputs // window.lanes, window.problem.flops / 2 / window.lanes
    counts = divisors(blocks, min(8, accumulators(target)))
    tiles = {v: _tile_cycles(window, widths(window, v, target)[0], v, target) for v in counts}
    least = min(tiles.values())

    def cycles(vectors: int) -> tuple[bool, float]:
        return tiles[vectors] * (1 - LEAST_GAIN) > least, weigh(
            products * tiles[vectors], _count_tasks(window, vectors)
        )

    return sorted(counts, key=cycles)


def widths(window: Window, vectors: int, target: CpuTarget) -> list[int]:
    """Return the numbers of pixels that a tile may have, the best first.

    Pixels that are read in place may share one set of L1, but must leave a way of it to the filter.
    """
    in_a_set = 0.0 if window.stages_data else gcd(pixel_stride(window), L1_WAY_BYTES) / L1_WAY_BYTES
    fitting = [t for t in tile_widths(window.row, target) if t * vectors <= accumulators(target)]
    return sorted(
        (t for t in fitting if t * in_a_set < L1_WAYS), key=lambda t: _tile_cycles(window, t, vectors, target)
    )


def _tile_cycles(window: Window, width: int, vectors: int, target: CpuTarget) -> float:
    """Return `multiply_cycles`, scaled from visited to needed pixels."""
    needed = visited_pixels(window, width) / visited_pixels(window, 1)
    return multiply_cycles(window, width, vectors, target) * needed


def visited_pixels(window: Window, width: int) -> int:
    """Return the number of an image's pixels that all taps together visit, in whole tiles: a tap's last tile repeats a pixel."""
    met = [Counter(len(axis.meets(0, tap)) for tap in range(axis.taps)) for axis in window.axes]
    return sum(
        prod(times for _, times in counts) * -(-prod(pixels for pixels, _ in counts) // width) * width
        for counts in product(*(each.items() for each in met))
    )


def multiply_cycles(window: Window, width: int, vectors: int, target: CpuTarget) -> float:
    """Return the multiply-adds per output vector and channel of a tile, as `tile.tile_cycles`.

    Pixels of a tile are anywhere in data, so each has an address of its own. Addresses without a register are loaded again for each
    channel, beside the pixel.
    """
    step = target.costs.taps
    broadcasts = width + max(0.0, width - step.addresses)
    lost = count_spills(width, vectors, target)
    if step.from_l2:
        return tile_cycles(window, width, vectors, target)
    return tile_step(step, vectors, broadcasts, width * vectors, spilled=lost) / (width * vectors)


@dataclass(frozen=True)
class Kn2rowWindow(Window):
    """A window of one phase whose row has all its pixels, rounded up so that every good tile divides it."""

    @property
    def stages_data(self) -> bool:
        """Return whether data is widened or transposed before it is read."""
        return self.vnni_factor == 1 and (self.problem.dtype != "f32" or self.problem.data_format == "NCX")

    @property
    def summed_taps(self) -> int:
        """Return 1: taps are multiplied one at a time."""
        return 1

    @property
    def skips_rows(self) -> bool:
        """Return False: taps visit no padding."""
        return False

    @property
    def skips_columns(self) -> bool:
        """Return False: taps visit no padding."""
        return False


def tap_window(window: Window, target: CpuTarget) -> Kn2rowWindow:
    """Return a window as one that is computed tap by tap."""
    most = accumulators(target)
    pixels = prod(axis.outputs for axis in window.axes)
    return window.as_kind(Kn2rowWindow, row=-(-pixels // most) * most)


def reach_of(axis: Axis, tap: Expr) -> tuple[Expr, Expr]:
    """Return the first output of an axis for which a tap meets data, and the number of such outputs.

    The number is chosen among constants: TVM 0.27 fails to simplify expressions below a bound that is the difference of two
    quotients ("Divide by zero").
    """
    if isinstance(tap, int):
        return axis.meets(0, tap).start, len(axis.meets(0, tap))
    count = choose_constant([len(axis.meets(0, k)) for k in range(axis.taps)], tap)
    start = axis.offset(0) + tap * axis.dilation  # read for output 0
    return tirx.max(0, -(start // axis.stride)), count


def express_kn2row(window: Window, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs..., o)."""
    axes, rank, number = window.axes, len(window.axes), window.index
    read_data, read_filter = _data(window, data), staged_filter(window, weights)
    c = te.reduce_axis((0, window.channels), name="c")
    phase = [0] * rank
    multiply = multiply_of(window.problem, window.vnni_factor)

    def pixels(k: Sequence[Expr], first: int = 0) -> Expr:
        return prod(reach_of(axis, tap)[1] for axis, tap in zip(axes[first:], k[first:], strict=True))

    def products(n: Expr, g: Expr, *indices: Expr) -> Expr:
        k, pixel, o = indices[:rank], indices[-2], indices[-1]
        # The last tile of a tap repeats its last pixel instead of pixels that do not exist.
        left = tirx.max(0, tirx.min(pixel, pixels(k) - 1))
        x: list[Expr] = []
        for axis, tap in reversed(list(zip(axes, k, strict=True))):
            first, count = reach_of(axis, tap)
            count = tirx.max(1, count)  # tiles without pixels are skipped, but not quotients by their number
            x.insert(0, axis.offset(0) + (first + left % count) * axis.stride + tap * axis.dilation)
            left = left // count
        return te.sum(multiply(read_data(n, g, x, c), read_filter(g, phase, k, c, o)), axis=c)

    taps = [axis.taps for axis in axes]
    shape = (window.problem.batch, window.groups, *taps, window.row, window.padded_outputs)
    acc = te.compute(within_reach(shape, "the products of all taps"), products, name=stage_name(ACC, number))

    def met(*indices: Expr) -> Expr:
        k, pixel = indices[2 : 2 + rank], indices[-2]
        needed = [pixel < pixels(k)]
        if rank > 1:
            row = reach_of(axes[0], k[0])[0] + pixel // tirx.max(1, pixels(k, 1))
            needed.append(tirx.call_pure_extern("bool", IN_PIECE, CUT_ROWS, row, row))
        return tirx.if_then_else(tirx.all(*needed), acc(*indices), tirx.const(0, "float32"))

    part = te.compute(shape, met, name=stage_name(PARTIAL, number))
    k = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(axes)]

    def total(n: Expr, g: Expr, *indices: Expr) -> Expr:
        outputs, o = indices[rank:-1], indices[-1]
        pixel: Expr = 0
        inside = []
        for axis, tap, y in zip(axes, k, outputs, strict=True):
            first, count = reach_of(axis, tap)
            inside += [y >= first, y < first + count]
            pixel = pixel * count + y - first
        value = tirx.if_then_else(
            tirx.all(*inside), part(n, g, *k, tirx.max(0, tirx.min(pixel, window.row - 1)), o), tirx.const(0, "float32")
        )
        return te.sum(value, axis=k)

    outputs = [axis.outputs for axis in axes]
    shape = (window.problem.batch, window.groups, *[1] * rank, *outputs, window.padded_outputs)
    return finish(window, te.compute(shape, total, name=stage_name(SUM, number)), epilogue)


def _data(window: Window, data: te.Tensor) -> Callable[..., Expr]:
    """Return ``read(n, g, x, c)``, which reads channel `c` of group `g` at coordinates `x`."""
    problem = window.problem
    if not window.stages_data:
        return lambda n, g, x, c: data(n, *x, g * window.channels + c)
    by_groups = copies_groups(window)

    def copied(n: Expr, *indices: Expr) -> Expr:
        g, indices = (indices[0], indices[1:]) if by_groups else (0, indices)
        x, channel = indices[:-1], g * window.channels + indices[-1]
        return widen(data(n, *x, channel) if problem.data_format == "NXC" else data(n, channel, *x), problem.dtype)

    images = (problem.batch, window.groups) if by_groups else (problem.batch,)
    channels = problem.in_channels // (problem.groups if by_groups else 1)
    shape = within_reach((*images, *problem.in_spatial, channels), "the copy of data")
    copy = te.compute(shape, copied, name=stage_name(DATA_PAD, window.index))
    return lambda n, g, x, c: copy(n, g, *x, c) if by_groups else copy(n, *x, g * window.channels + c)
