"""Transposed convolutions of few pixels with a plain OIX filter: a product of matrices, then col2im.

A row of the filter has an input channel's outputs for all taps. The products of all pixels with whole rows are therefore a convolution of
one tap whose filter is read once, in place, whatever the strides; each output then adds the products of its taps. Windows of phases
would each read whole lines for their own taps, and transpose them. Stages:

    data_pad, filter_pack    as in window.py
    acc          the products, f32, axes (n, g, 1, pixel, outputs of all taps)
    sum          sums of the products that meet an output
    out          bias added, rounded once to the output type
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from tvm import te, tirx

from ...checks import within_reach
from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_data
from ..definition import Definition, assemble
from ..epilogue import Epilogue
from ..flatten import flatten
from ..pairs import multiply_of
from ..shapes import divisors, row_extent
from ..stage_names import ACC, SUM, stage_name
from ..subconvolution import Expr, choose_constant, output_offset
from .direct import LEAST_CHANNELS_OF_PARTS, MOST_TASK_PIXELS, no_dot
from .model.cost import Counts, lines, most_even, multiply_add, total
from .model.counts import count_copies, stored_lines
from .model.tasks import vector_counts
from .windows.data import staged_data
from .windows.express import rounded_sums
from .windows.filter import staged_filter
from .windows.filter_parts import channels_of_part
from .windows.im2col import unravel
from .windows.make import windows_of
from .windows.plan import Options
from .windows.tile import best_tile, tile_cycles, widths
from .windows.window import Window

MOST_CHUNKS = 32  # of output channels


def covers(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    flat = flatten(problem)
    if flat.op == "convolution" or prod(flat.kernel) == 1:
        return "it is for transposed convolutions of several taps"
    if flat.filter_format != "OIX":
        return f"the outputs of a channel are not contiguous in a filter of {flat.filter_format}"
    if vnni_factor == 2 and (reason := no_dot(flat, target)):
        return reason
    if reason := covers_data(problem, target):
        return reason
    window = _window(flat, target, vnni_factor)
    if window.pixels > MOST_TASK_PIXELS:
        return f"it is for {MOST_TASK_PIXELS} pixels or fewer, not {window.pixels}"
    if window.channels < LEAST_CHANNELS_OF_PARTS:
        return f"it sums {LEAST_CHANNELS_OF_PARTS} channels or more, not {window.channels}"
    if window.padded_outputs != window.outputs:
        return f"{window.outputs} outputs of all taps do not fill whole vectors"
    return None


def define(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> Definition:
    """Define `problem` by the products of all pixels with the filter's rows."""
    flat = flatten(problem)
    window = _window(flat, target, vnni_factor)
    by_element = vnni_factor == 2 and target.isa.dots_by_element
    return assemble(problem, flat, [window], express_col2im, vnni_factor, by_element=by_element, filter_rows=True)


@dataclass(frozen=True, kw_only=True)
class ColumnsWindow(Window):
    """A window of all pixels of data along one axis, with one tap, whose output channels are those of all taps of `transposed`."""

    transposed: Problem

    @property
    def stores_vectors(self) -> bool:
        """Return False: outputs are sums of several products."""
        return False

    @property
    def taps(self) -> int:
        """Taps of the problem's filter."""
        return prod(self.transposed.kernel)

    @property
    def outputs_of_group(self) -> int:
        """Output channels of a group of the problem."""
        return self.outputs // self.taps

    def in_data(self, x: list[Expr], c: Expr) -> tuple[list[Expr], Expr]:
        """Return data's coordinates of pixel `x`, and channel `c`."""
        return unravel(x[0], self.transposed.in_spatial), c

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return the indices in the filter's rows of the weight of channel `c` and output `o` of group `g`."""
        return [g * (self.problem.in_channels // self.problem.groups) + c, o]

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at (n, g, residues..., strides..., o), and the condition under which it is inside."""
        (n, g, *between, o), flat = indices, self.transposed
        counts = [min(s, extent) for s, extent in zip(flat.strides, flat.out_spatial, strict=True)]
        axes = zip(between[flat.rank :], counts, between[: flat.rank], strict=True)
        places = [q * count + r for q, count, r in axes]
        bounds = zip(places, flat.out_spatial, counts, strict=True)
        inside = [at < extent for at, extent, count in bounds if extent % count]
        offset = output_offset(flat, n, g * self.outputs_of_group + o, places, flat.out_spatial)
        return offset, tirx.all(*inside) if inside else None


def _window(flat: Problem, target: CpuTarget, vnni_factor: int) -> ColumnsWindow:
    """Return the window of `define`: all pixels by the outputs of all taps, with the filter taken in parts, in the order of memory."""
    pixels, taps = (prod(flat.in_spatial),), prod(flat.kernel)
    ones = dict.fromkeys(("kernel", "strides", "dilations"), (1,))
    zeros = dict.fromkeys(("pads_begin", "pads_end"), (0,))
    changes = {"in_spatial": pixels, "out_spatial": pixels, "out_channels": flat.out_channels * taps, **ones, **zeros}
    row = flat.with_(op="convolution", filter_format="XIO", bias=False, epilogue=(), **changes)
    (base,) = windows_of(row, target)
    window = base.as_kind(
        ColumnsWindow, row=row_extent(pixels[0], target), vnni_factor=vnni_factor, by_parts=True, transposed=flat
    )
    return replace(window, packs_parts=window.stages_filter or not _one_tile(window, target))


def whole_tiles(window: Window, target: CpuTarget) -> list[int]:
    """Return the numbers of vectors of tiles with all pixels, the best first; none if registers hold no such tile."""
    counts = divisors(window.padded_outputs // window.lanes, 8)
    fitting = [count for count in counts if window.row in widths(window, count, target)]
    return sorted(fitting, key=lambda count: tile_cycles(window, window.row, count, target))


def tile_vectors(window: ColumnsWindow, target: CpuTarget) -> list[int]:
    """Return the numbers of vectors of outputs that a tile may have, the best first; tiles of filters in place have all pixels."""
    return vector_counts(window, target) if window.stages_filter else whole_tiles(window, target)


def choices_of(window: ColumnsWindow, vectors: int, target: CpuTarget) -> tuple[Options, Options, Options]:
    """Return the chunks, widths and unrolls of tiles of so many `vectors`, as in DirectPlan."""
    tiles = widths(window, vectors, target)[:4] if window.stages_filter else [window.row]
    chunks = divisors(window.padded_outputs // window.lanes // vectors, MOST_CHUNKS)
    unrolls = divisors(window.channels, 4)
    return (chunks, most_even(chunks, window.groups)), (tiles, tiles[0]), (unrolls, unrolls[-1])


def _one_tile(window: Window, target: CpuTarget) -> bool:
    """Return whether one tile of all pixels, which reads each vector of the filter once, in place, is fastest."""
    whole = whole_tiles(window, target)
    if not whole or window.problem.batch > 1:
        return False
    # Costs in multiply-adds for a vector of the filter and a channel.
    copy = target.costs.elements.copy * window.lanes / multiply_add(window.lanes, target)
    tiled = window.row * tile_cycles(window, *best_tile(window, target), target)
    return window.row * tile_cycles(window, window.row, whole[0], target) < tiled + copy


@dataclass(frozen=True)
class _Residue:
    """Taps and data of the outputs of an axis with the same remainder by the stride.

    Attributes
    ----------
    tap
        Index of the last tap; taps are a step apart.
    taps
        Number of taps.
    data
        Coordinate that the last tap reads for the first output.
    """

    tap: int
    taps: int
    data: int


def _residues(flat: Problem, axis: int) -> list[_Residue]:
    """Return the residues of an axis, as backprop.py derives them."""
    s, d, begin, taps = flat.strides[axis], flat.dilations[axis], flat.pads_begin[axis], flat.kernel[axis]
    common = gcd(s, d)
    step, found = s // common, []
    for residue in range(min(s, flat.out_spatial[axis])):
        t = residue + begin
        firsts = [k for k in range(min(step, taps)) if (t - k * d) % s == 0]
        if not firsts:
            found.append(_Residue(0, 0, 0))
            continue
        count = -(-(taps - firsts[0]) // step)
        last = firsts[0] + (count - 1) * step
        found.append(_Residue(last, count, (t - last * d) // s))
    return found


def express_col2im(window: ColumnsWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, residues..., strides..., o), whose residues and strides number the outputs of each axis."""
    flat, rank, number = window.transposed, window.transposed.rank, window.index
    read_data, read_filter = staged_data(window, data), staged_filter(window, weights)
    multiply = multiply_of(window.problem, window.vnni_factor)
    k, c = te.reduce_axis((0, 1), name="k0"), te.reduce_axis((0, window.channels), name="c")

    def products(n: Expr, g: Expr, p: Expr, y: Expr, o: Expr) -> Expr:
        return te.sum(multiply(read_data(n, g, [p], [y], [k], c, o), read_filter(g, [p], [k], c, o)), axis=[k, c])

    shape = (window.problem.batch, window.groups, 1, window.row, window.padded_outputs)
    acc = te.compute(within_reach(shape, "the products of all taps"), products, name=stage_name(ACC, number))

    residues = [_residues(flat, axis) for axis in range(rank)]
    steps = [s // gcd(s, d) for s, d in zip(flat.strides, flat.dilations, strict=True)]
    # Distances in data of taps a step apart.
    between = [step * d // s for step, d, s in zip(steps, flat.dilations, flat.strides, strict=True)]
    most = [max(each.taps for each in of_axis) for of_axis in residues]
    j = [te.reduce_axis((0, count), name=f"j{axis}") for axis, count in enumerate(most)]

    def total(n: Expr, g: Expr, *indices: Expr) -> Expr:
        at, strides, o = indices[:rank], indices[rank:-1], indices[-1]
        pixel: Expr = 0
        tap: Expr = 0
        inside = []
        for axis, (of_axis, r, q) in enumerate(zip(residues, at, strides, strict=True)):
            x = q + j[axis] * between[axis] + choose_constant([each.data for each in of_axis], r)
            inside += [x >= 0, x < flat.in_spatial[axis], j[axis] < choose_constant([each.taps for each in of_axis], r)]
            pixel = pixel * flat.in_spatial[axis] + x
            tap = tap * flat.kernel[axis] + choose_constant([each.tap for each in of_axis], r) - j[axis] * steps[axis]
        product = acc(n, g, 0, pixel, o * window.taps + tap)
        return te.sum(tirx.if_then_else(tirx.all(*inside), product, tirx.const(0, "float32")), axis=j)

    counts = [len(of_axis) for of_axis in residues]
    strides = [-(-extent // count) for extent, count in zip(flat.out_spatial, counts, strict=True)]
    stored = (flat.batch, flat.groups, *counts, *strides, window.outputs_of_group)
    sums = te.compute(stored, total, name=stage_name(SUM, number))
    return rounded_sums(window, sums, window.outputs_of_group, epilogue)


def estimate(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> Counts:
    """Count the events of a problem with a plain filter."""
    flat = flatten(problem)
    window = _window(flat, target, vnni_factor)
    vectors = tile_vectors(window, target)[0]
    (_, chunks), (_, width), (unrolls, _) = choices_of(window, vectors, target)
    vector_sums = window.problem.batch * window.groups * window.row * window.padded_outputs / window.lanes
    arithmetic = vector_sums * window.channels * tile_cycles(window, width, vectors, target, alone=True)
    arithmetic *= multiply_add(window.lanes, target) * (2 / target.dot_rate if vnni_factor == 2 else 1)
    size = 4 // vnni_factor * prod(flat.filter_shape)
    read = "lines.memory" if size > target.l3_share else "lines.streamed"
    # The sums of each part are added to those before, which pass through the cache.
    visits = window.channels // channels_of_part(window, vectors, unrolls, chunks, target) * vector_sums
    passed = {
        "add_tap_far": visits * multiply_add(window.lanes, target),
        "lines.l2": 2 * visits * lines(4 * window.lanes),
    }
    added = flat.batch * flat.out_channels * prod(flat.in_spatial) * window.taps
    return total(
        {"tile.scale": arithmetic, "start": vector_sums / (width * vectors), "elements.apart": float(added)},
        count_copies(window, target, once=True) if window.stages_data else {},
        {read: lines(size), **passed},
        {"elements.copy": float(size // 4 * vnni_factor)} if window.packs_parts else {},
        stored_lines(flat, 1, target),
    )


plain = estimate
