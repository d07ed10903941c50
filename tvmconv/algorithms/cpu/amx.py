"""The tensor expressions of windows cut into tiles (amx_window.py). Stages:

data_pad     data of a band by pairs, zero-padded, [n, g, band, outer..., residues..., pixel, pair]  (absent in place)
filter_pack  the filter by pairs, tile after tile, [g, block, phases, taps, step, tile, pair, lane]
acc          the sums, f32, axes (n, g, phases..., band, outer..., block, tile, row, block, tile, lane)
tile         acc copied out of the tile registers
out          bias added, rounded once to bf16
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from tvm import te, tirx

from ...checks import within_reach
from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_data
from ..definition import Definition, assemble
from ..epilogue import Epilogue
from ..flatten import flatten
from ..pairs import multiply_pairs, round_pair
from ..stage_names import ACC, DATA_PAD, FILTER_PACK, OUT, TILE, stage_name
from ..subconvolution import Expr
from ..types import zero_outside
from .amx_cost import best_cut, tile_window
from .amx_window import SIDE, AmxWindow, CopyAxis
from .data import data_element
from .filter import filter_element
from .window import windows_of

FEATURES = ("amx_bf16", "amx_tile", "avx512_bf16")  # the last rounds what is stored


def covers(problem: Problem, target: CpuTarget) -> str | None:
    """Return None if tiles can compute `problem`, else why not."""
    if problem.dtype != "bf16":
        return f"it multiplies bf16, not {problem.dtype}"
    if missing := set(FEATURES) - set(target.features):
        return f"{target.name} has no {', '.join(sorted(missing))}"
    if problem.in_channels // problem.groups < 2:
        return "there are no two channels to pair"
    return covers_data(problem, target)


def define(problem: Problem, target: CpuTarget) -> Definition:
    """Define `problem` by windows cut into tiles of AMX."""
    windows = tile_windows(problem, target)
    return assemble(problem, windows[0].problem, windows, express_tiles, vnni_factor=2)


@lru_cache(maxsize=64)  # asked for by the estimate, then by the definition
def tile_windows(problem: Problem, target: CpuTarget) -> tuple[AmxWindow, ...]:
    """Return the windows of `define`, each cut by least cost.

    Rows of a filter of one row, which flattened are images of their own, may be shorter than a tile. With all axes they are
    not: tiles take no notice of where a row ends.
    """
    ways = dict.fromkeys((flatten(problem), problem))
    return min((tuple(map(tile_window, windows_of(way, target))) for way in ways), key=_cycles)


def cycles(problem: Problem, target: CpuTarget) -> float:
    """Return the cycles of a problem."""
    return _cycles(tile_windows(problem, target))


def _cycles(windows: Sequence[AmxWindow]) -> float:
    return sum(best_cut(window).cycles for window in windows)


def express_tiles(window: AmxWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., band, outer..., block, tile, row, block, tile, lane).

    Raises
    ------
    InvalidProblemError
        If a stage has more elements than 32-bit indices reach.
    """
    number, (tiles, vectors) = window.index, window.block
    read_data, read_filter = _data(window, data), _filter(window, weights)
    taps = [te.reduce_axis((0, count), name=f"k{i}") for i, count in enumerate(window.taps)]
    step, pair = te.reduce_axis((0, window.steps), name="step"), te.reduce_axis((0, window.depth), name="c")
    phases = [axis.phases for axis in window.axes]
    outer = [each.outputs for each in window.outer]
    blocks = (window.tile_blocks, tiles, window.tile_rows, window.output_blocks, vectors, SIDE)
    shape = within_reach((window.problem.batch, window.groups, *phases, window.bands, *outer, *blocks), "the sums")

    def total(n: Expr, g: Expr, *indices: Expr) -> Expr:
        p, band, z, (tb, tile, row, ob, vector, lane) = window.split(indices)
        c, q = step * window.depth + pair, window.number(tb, tile, row)
        weight = read_filter(g, ob, p, taps, step, vector, pair, lane)
        product = multiply_pairs(read_data(n, g, p, band, z, q, taps, c), weight)
        return te.sum(product, axis=[*taps, step, pair])

    acc = te.compute(shape, total, name=stage_name(ACC, number))
    copy = te.compute(shape, lambda *indices: acc(*indices), name=stage_name(TILE, number))

    def rounded(*indices: Expr) -> Expr:
        o = window.output(window.channel(*indices[-3:]))
        channel = indices[1] * window.outputs + tirx.min(o, window.outputs - 1)
        return epilogue(copy(*indices), channel, window.store_index(list(indices))[0], round_pair)

    return te.compute((*shape[:-1], window.lanes_stored), rounded, name=stage_name(OUT, number))


def _data(window: AmxWindow, data: te.Tensor) -> Callable[..., Expr]:
    """Return ``read(n, g, phases, band, outer, pixel, taps, pair)``."""
    problem, copy_axes = window.problem, window.copy_axes

    def in_place(n: Expr, g: Expr, p: Any, band: Expr, z: Any, q: Expr, k: Any, c: Expr) -> Expr:
        (axis,) = window.axes
        x = axis.offset(p[0]) + (window.start(band) + q) * axis.stride + k[0] * axis.dilation
        return data(n, x, g * window.channels + c)

    if window.in_place:
        return in_place
    outer, rank = len(window.outer), len(copy_axes)

    def copied(n: Expr, g: Expr, band: Expr, *indices: Expr) -> Expr:
        z, residues, (pixel, c) = indices[:outer], indices[outer : outer + rank], indices[outer + rank :]
        row = copy_axes[-1].extent
        at = [*z, pixel // row, pixel % row] if len(window.flat) == 2 else [pixel]
        starts = [window.start(band), *[0] * (rank - 1)]
        x = [each.coordinate(*of) for each, *of in zip(copy_axes, starts, residues, at, strict=True)]
        bounds = [
            bound
            for each, coordinate in zip(copy_axes, x, strict=True)
            for bound in each.axis.inside(coordinate, each.axis.lowest, _reach(each))
        ]
        if window.pixel > window.channels:
            bounds.append(c < window.channels)
            c = tirx.min(c, window.channels - 1)
        value = data_element(window, data)(n, x, g * window.channels + c)
        return zero_outside(bounds, value, "uint32")

    shape = (
        problem.batch,
        window.groups,
        window.bands,
        *(each.extent for each in window.outer),
        *(each.residues for each in copy_axes),
        window.length,
        window.pixel,
    )
    copy = te.compute(within_reach(shape, "the copy of data"), copied, name=stage_name(DATA_PAD, window.index))

    def read(n: Expr, g: Expr, p: Any, band: Expr, z: Any, q: Expr, k: Any, c: Expr) -> Expr:
        located = [each.located(pp, kk) for each, pp, kk in zip(copy_axes, p, k, strict=True)]
        residues, firsts = [each[0] for each in located], [each[1] for each in located]
        pixel = q * copy_axes[-1].advance + firsts[-1]
        if window.row_taps:
            pixel, c = pixel + c // window.pixel, c % window.pixel
        if len(window.flat) == 2:
            pixel = pixel + firsts[-2] * copy_axes[-1].extent
        return copy(n, g, band, *(zz + first for zz, first in zip(z, firsts, strict=False)), *residues, pixel, c)

    return read


def _reach(copied: CopyAxis) -> int:
    """Return how far the copy reaches along an axis, from the lowest coordinate that a task reads."""
    axis = copied.axis
    return (axis.outputs - copied.outputs + copied.reach) * axis.stride


def _filter(window: AmxWindow, weights: te.Tensor) -> Callable[..., Expr]:
    """Return ``read(g, block, phases, taps, step, tile, pair, lane)``."""
    axes, element = window.axes, filter_element(window, weights)

    def packed(g: Expr, block: Expr, *indices: Expr) -> Expr:
        p, k, (step, vector, pair, lane) = indices[: len(axes)], list(indices[len(axes) : -4]), indices[-4:]
        o, bounds = window.channel(block, vector, lane), []
        c = step * window.depth + pair
        if window.row_taps:
            k[-1], c = c // window.channels, c % window.channels
        elif window.pairs > window.channels:
            bounds.append(c < window.channels)
            c = tirx.min(c, window.channels - 1)
        if window.padded_outputs > window.outputs and not window.shifted:
            bounds.append(o < window.outputs)
        value = element(g, p, k, c, window.output(o))
        return zero_outside(bounds, value, "uint32")

    order = (*(axis.phases for axis in axes), *window.taps, window.steps, window.block[1], window.depth, SIDE)
    shape = within_reach((window.groups, window.output_blocks, *order), "the copy of the filter")
    pack = te.compute(shape, packed, name=stage_name(FILTER_PACK, window.index))
    return lambda g, block, p, k, *rest: pack(g, block, *p, *k, *rest)
