"""Tensor expressions of windows whose lanes run along a row of the output: for planar layouts, or few output channels.

A vector holds neighbouring outputs of a row, and filter elements are broadcast (row_window.py). Stages:

    data_pad     data widened to f32, zero-padded, channel by channel  (absent if data is read in place)
    data_phases  every s-th column of the copy, gathered    (only with a stride s along the row)
    filter_pack  filter widened to f32, in the order of the sum    (absent for f32 unless prepacked)
    acc          the sum, f32, axes (n, g, phases..., outputs but the last..., o, x)
    tile         acc copied out of registers              (only where the store is not by whole vectors)
    out          bias added, rounded once to the output type; a row's phases are the last axis if they interleave
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import te, tirx

from ...checks import within_reach
from ...dtypes import DTYPE_BYTES
from ...problem import Problem
from ...targets.target import CpuTarget
from ..axes import convolution_axes
from ..backprop import interleaved_axes
from ..data_dependence import covers_data
from ..definition import Definition, assemble
from ..epilogue import Epilogue
from ..flatten import flatten
from ..pairs import filter_channels
from ..shapes import FEW_OUTPUTS
from ..stage_names import ACC, DATA_PAD, DATA_PHASES, FILTER_PACK, OUT, TILE, stage_name
from ..subconvolution import Expr
from ..types import load_data, load_filter, sum_type, zero_outside
from .model.cost import Counts, lines, multiply_add, total
from .model.counts import copied_again, copy_extent, far, lines_evict, outputs, stored_lines
from .planar_plan import plan_windows
from .windows.row_tile import packed_together, short_cycles, short_sums, tile_cycles, tiled_by_channels, tiled_by_rows
from .windows.row_window import PlanarWindow


def covers(problem: Problem, target: CpuTarget) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    problem = flatten(problem)
    if problem.data_format == "NXC" and problem.out_channels > FEW_OUTPUTS:
        return (
            f"channels are contiguous in {problem.data_format}, and there are more than {FEW_OUTPUTS} output channels"
        )
    if sum_type(problem) != "float32":
        return "its sums may exceed the integers that f32 represents exactly"
    return covers_data(problem, target)


def define(problem: Problem, target: CpuTarget, prepacked: bool = False) -> Definition:
    """Define `problem` by windows whose lanes run along a row; with `prepacked`, in the best way for prepacked filters."""
    windows = planar_windows(problem, target, prepacked or _filter_evicts(problem, target))
    return assemble(problem, flatten(problem), windows, express_planar)


def define_prepacked(problem: Problem, target: CpuTarget) -> Definition | None:
    """Return the definition with a filter packed in the order of the sum, if plain filters are read in place, in another order."""
    in_place = _reads_in_place(problem) and not _filter_evicts(problem, target)
    return define(problem, target, prepacked=True) if in_place else None


def _reads_in_place(problem: Problem) -> bool:
    """Return whether a plain filter could be read in place, though not in the sum's order: groups have several channels."""
    return problem.dtype == "f32" and min(problem.in_channels, problem.out_channels) > problem.groups


def _filter_evicts(problem: Problem, target: CpuTarget) -> bool:
    """Return whether each tile would read a plain filter from L3: it exceeds L2, and a sum's elements crowd sets of L1."""
    shape, size = problem.filter_shape, DTYPE_BYTES[problem.types.filter]
    of_l3 = _reads_in_place(problem) and size * prod(shape) > target.l2_share
    apart = size * prod(shape[filter_channels(problem) % len(shape) + 1 :])
    return of_l3 and lines_evict(apart, problem.in_channels // problem.groups)


def planar_windows(problem: Problem, target: CpuTarget, prepacked: bool) -> list[PlanarWindow]:
    """Return the windows of `define`."""
    flat = flatten(problem)
    made = convolution_axes(flat) if flat.op == "convolution" else interleaved_axes(flat)
    windows = [PlanarWindow(flat, number, axes, 1, axes[-1].outputs, prepacked) for number, axes in enumerate(made)]
    rounded = [tiled_by_rows(window, target) for window in tiled_by_channels(windows, target)]
    return plan_windows([packed_together(window, target) for window in rounded], target)


def estimate(problem: Problem, target: CpuTarget) -> Counts:
    """Count the events of a problem, its filter prepacked."""
    return windows_estimate(planar_windows(problem, target, True), target)


def windows_estimate(windows: Sequence[PlanarWindow], target: CpuTarget) -> Counts:
    """Count the events of windows by their first plans."""
    counted = [_window_estimate(window, target) for window in windows]
    if windows:
        apart = max(1 if window.contiguous else window.axes[-1].phases for window in windows)
        counted.append(stored_lines(windows[0].problem, apart, target))
    return total(*counted)


def _window_estimate(window: PlanarWindow, target: CpuTarget) -> Counts:
    axes, batch = window.axes, window.problem.batch
    rows = batch * window.groups * window.computed_outputs * prod(axis.phases for axis in axes)
    vectors = rows * prod(window.computed) * window.row / window.lanes
    plan = window.plans[0]
    channels, together, width = plan.channels, plan.tile_rows, plan.vectors[1]
    products = vectors * window.channels * prod(axis.taps for axis in axes)
    slots = products * multiply_add(window.lanes, target)
    scale = "rows_depthwise_scale" if window.outputs == 1 else "rows.scale"
    if short_sums(window, together):
        bands = prod(window.computed) / (plan.rows[1] * together)
        sums = slots * short_cycles(window, width, together, target)
        counted: list[Counts] = [{"shared_rows.scale": sums, "plane": batch * window.groups * bands}]
    else:
        sums = slots * tile_cycles(window, channels, width, target, alone=True)
        counted = [{"start": vectors / (channels * width * window.tile_phases), scale: sums}]
    size = 4 * prod(window.problem.filter_shape)
    if size > target.l2_share:
        counted.append({"lines.beside": lines(4 * products / width)})
        counted.append({"lines.memory": lines(size) if size > target.l3_share else 0.0})
    if len(axes) == 1:
        # Each tile reads a part of all planes.
        counted.append(far(window.problem, float(batch) * window.problem.in_channels * axes[-1].extent, target))
    if window.panels:
        pieces = batch * window.problem.in_channels * window.row * plan.chunks[1]
        counted.append({"elements.panel": pieces})
    elif window.stages_data:
        elements = (
            float(batch) * prod(copy_extent(axis) for axis in axes[:-1]) * axes[-1].extent * window.problem.in_channels
        )
        elements *= copied_again(window, plan.rows[1] * plan.tile_rows)
        counted.append({"elements.to_planes" if window.problem.data_format == "NXC" else "elements.copy": elements})
        # Columns a stride apart are then gathered one by one, unless the copy separates them.
        counted.append({"elements.store": elements * (axes[-1].stride > 1 and not window.separates)})
    if not window.contiguous:
        elements = outputs(window) * window.problem.out_channels
        if window.problem.data_format == "NXC":
            counted.append({"elements.store": elements})
        else:
            counted += [
                {"elements.apart": elements},
                far(window.problem, elements, target, scattered=True),
            ]
    return total(*counted)


def express_planar(window: PlanarWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs but the last..., o, x)."""
    rank, number = len(window.axes), window.index
    read_data, read_filter = _data(window, data), _filter(window, weights)
    c = te.reduce_axis((0, window.channels), name="c")
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]

    def total(*indices: Expr) -> Expr:
        n, g, o, x = indices[0], indices[1], indices[-2], indices[-1]
        p, y = indices[2 : 2 + rank], [*indices[2 + rank : -2], x if window.panels else window.column(x)]
        y[-2:-1] = map(window.line, y[-2:-1])
        product = read_data(n, g * window.channels + c, p, y, taps) * read_filter(g, p, taps, c, o)
        # A row's phases are unrolled, and its taps unless there are many, which resolves the condition.
        return te.sum(_where_tapped(window, p, taps, product), axis=[c, *taps])

    last = window.axes[-1]
    phases = tuple(axis.phases for axis in window.axes)
    shape = (window.problem.batch, window.groups, *phases, *window.computed, window.computed_outputs, window.row)
    acc = te.compute(shape, total, name=stage_name(ACC, number))
    if not window.stores_rows:
        acc = te.compute(shape, lambda *indices: acc(*indices), name=stage_name(TILE, number))

    before = 1 + rank

    def rounded(*indices: Expr) -> Expr:
        offset = window.store_index(list(indices))[0]
        if window.interleaves:
            indices = (*indices[:before], indices[-1], *indices[before:-1])
        return epilogue(acc(*indices), indices[1] * window.outputs + window.output(indices[-2]), offset)

    shape = (*shape[:-1], window.row - window.excess)
    if window.interleaves:
        shape = (*shape[:before], *shape[before + 1 :], last.phases)
    return te.compute(shape, rounded, name=stage_name(OUT, number))


def _data(window: PlanarWindow, data: te.Tensor) -> Callable[..., Expr]:
    problem, axes = window.problem, window.axes

    if not window.stages_data:
        return lambda n, c, p, y, k: data(n, c, *window.coordinates(p, y, k))

    if window.panels:
        # The last vectors of rows overlap already in the copy, so that TVM can bound a tile's part of it.
        shape = within_reach((problem.batch, problem.in_channels, window.row), "the copy of data")
        panel = te.compute(shape, lambda n, c, x: data(n, c, window.column(x)), name=stage_name(DATA_PAD, window.index))
        return lambda n, c, p, y, k: panel(n, c, y[-1])

    last, lowest = axes[-1], [axis.lowest for axis in axes]
    # Outputs of a row read columns `stride` apart, so column x is at (x % stride, x // stride) of the phases.
    columns = -(-(last.extent + window.excess * last.stride) // last.stride)
    extents = [*(axis.extent for axis in axes[:-1]), columns * last.stride]

    def padded(n: Expr, c: Expr, *indices: Expr) -> Expr:
        x = [index + low for index, low in zip(indices, lowest, strict=True)]
        bounds = []
        for axis, extent, low, xx in zip(axes, extents, lowest, x, strict=True):
            bounds += axis.inside(xx, low, extent)
        value = load_data(data(n, c, *x) if problem.data_format == "NCX" else data(n, *x, c), problem)
        return zero_outside(bounds, value)

    shape = (problem.batch, problem.in_channels, *extents[:-1], columns * last.stride)
    taken: Callable[..., Expr] = padded
    # Lowering separates columns of f32 and integer planes by shuffles (tvmconv/lowering/cpu/rewrites/striding.py); for others LLVM does,
    # which needs a copy without conditions.
    if not window.separates:
        taken = pad = te.compute(
            within_reach(shape, "the copy of data"), padded, name=stage_name(DATA_PAD, window.index)
        )
    if last.stride > 1:
        phases = min(last.stride, last.span)
        shape = within_reach((*shape[:-1], phases, columns), "the copy of data")
        pad = te.compute(
            shape,
            lambda *at: taken(*at[:-2], at[-1] * last.stride + at[-2]),
            name=stage_name(DATA_PHASES, window.index),
        )

    def read(n: Expr, c: Expr, p: Any, y: Any, k: Any) -> Expr:
        spatial = [x - low for x, low in zip(window.coordinates(p, y, k), lowest, strict=True)]
        offset = last.offset(p[-1]) - lowest[-1] + k[-1] * last.dilation
        if last.stride == 1:
            return pad(n, c, *spatial)
        return pad(n, c, *spatial[:-1], offset % last.stride, y[-1] + offset // last.stride)

    return read


def _where_tapped(window: PlanarWindow, p: Any, k: Any, value: Expr) -> Expr:
    """Return `value`, or 0 beyond the filter's end, the place of the last tap of interleaved phases with one tap less."""
    axis, taps = window.axes[-1], window.problem.kernel[-1]
    if not window.interleaves or axis.taps * axis.phases == taps:
        return value
    return tirx.if_then_else(axis.filter_tap(p[-1], k[-1]) < taps, value, tirx.const(0, "float32"))


def _filter(window: PlanarWindow, weights: te.Tensor) -> Callable[..., Expr]:
    """Return the function ``(g, p, k, c, o)`` that reads the filter for a product: in place, or from a copy in the sum's order."""
    problem, axes, rank = window.problem, window.axes, len(window.axes)

    def element(g: Expr, p: Any, k: Any, c: Expr, o: Expr) -> Expr:
        return load_filter(weights(*window.filter_indices(g, p, k, c, window.output(o))), problem)

    if problem.dtype == "f32" and not window.prepacked:
        return element
    block = window.together

    def packed(g: Expr, b: Expr, *indices: Expr) -> Expr:
        *p, c = indices[:rank]
        k, (row_phase, o) = indices[rank : 2 * rank], indices[2 * rank :]
        p.append(row_phase)
        return _where_tapped(window, p, k, element(g, p, k, c, b * block + o))

    phases, taps = [axis.phases for axis in axes], [axis.taps for axis in axes]
    shape = (window.groups, window.computed_outputs // block, *phases[:-1], window.channels, *taps, phases[-1], block)
    pack = te.compute(within_reach(shape, "the copy of the filter"), packed, name=stage_name(FILTER_PACK, window.index))
    return lambda g, p, k, c, o: pack(g, o // block, *p[:-1], c, *k, p[-1], o % block)
