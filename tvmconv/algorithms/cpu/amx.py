"""Tensor expressions of windows cut into AMX's tiles (amx_window.py). Stages:

data_pad     data of a band in pairs, zero-padded, [n, g, band, outer..., residues..., pixel, pair]  (absent in place)
filter_pack  the filter in pairs, tile after tile, [g, block, phases, taps, step, tile, pair, lane]
acc          the sums, f32 or s32, axes (n, g, phases..., band, outer..., block, tile, row, block, tile, lane)
tile         acc copied out of the tile registers
out          bias added, rounded once to the output type

Integers form quads instead of pairs. f32 and f16 are sums of terms (terms.py), an axis of data_pad and filter_pack before pixel and tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from math import prod
from operator import add
from typing import Any

from tvm import te, tirx

from ...checks import within_reach
from ...problem import Problem
from ...targets.target import CpuTarget
from ..annotations import CHOOSE_ONCE
from ..data_dependence import covers_data
from ..definition import Definition, assemble, requests_of
from ..epilogue import Epilogue
from ..first_values import begin_with
from ..flatten import flatten
from ..pairs import multiply_of, round_pair
from ..stage_names import ACC, DATA_PAD, FILTER_PACK, OUT, TILE, stage_name
from ..subconvolution import Expr
from ..terms import terms_of_pair
from ..types import zero_outside
from .amx_cost import best_cut, tile_quads, tile_window
from .amx_window import PAIR_BYTES, SIDE, AmxWindow, CopyAxis
from .model.cost import Counts
from .windows.data import data_element
from .windows.filter import filter_element, sums_of_filter
from .windows.make import windows_of

# Types by the order of products of terms.
TYPES = (("bf16",), ("f32", "f16"), ("f32",))
FEWEST_OUTPUTS = 16  # for products of the first order: a single output of 2 channels has a relative error of 1.7e-5


def covers(problem: Problem, target: CpuTarget, product_order: int = 0) -> str | None:
    """Return None if tiles compute `problem` by products of terms up to an order, else the reason why not."""
    if not problem.is_quantized and problem.dtype not in (dtypes := TYPES[product_order]):
        return f"it multiplies {' and '.join(dtypes)}, not {problem.dtype}"
    if target.isa.tiles is None:
        return f"{target.name} has no tiles of bf16 or integers"
    needed = target.isa.tiles.of_integers if problem.is_quantized else target.isa.tiles.features
    if missing := set(needed) - set(target.features):
        return f"{target.name} has no {', '.join(sorted(missing))}"
    if problem.is_quantized and tile_quads(problem, target) is None:
        return f"it multiplies 8-bit integers by filters whose zero point is 0, not {problem.filter_zero_point}"
    if problem.in_channels // problem.groups < 2:
        return "it multiplies pairs of channels, and there is one"
    if product_order == 1 and (few := too_few_outputs(problem, FEWEST_OUTPUTS)):
        return few
    return covers_data(problem, target)


def too_few_outputs(problem: Problem, fewest: int) -> str | None:
    """Return why a transform does not compute a problem with less than `fewest` outputs; None if it has more."""
    if prod(problem.output_shape) >= fewest:
        return None
    return f"fewer than {fewest} outputs may all be sums that cancel, with large relative errors"


def define(problem: Problem, target: CpuTarget, product_order: int = 0) -> Definition:
    """Define `problem` by windows cut into tiles of AMX."""
    windows = tile_windows(problem, target, product_order)
    flat = windows[0].problem
    if product_order == 0:
        return assemble(problem, flat, windows, express_tiles, vnni_factor=4 if problem.is_quantized else 2)
    return assemble(problem, flat, windows, express_tiles, asks=[*requests_of(problem, windows), CHOOSE_ONCE])


@lru_cache(maxsize=64)  # for the estimate, then for the definition
def tile_windows(problem: Problem, target: CpuTarget, product_order: int = 0) -> tuple[AmxWindow, ...]:
    """Return the windows of `define`, each cut by least cost.

    Flattening makes images of the rows under a filter of one row, which may be shorter than a tile. The problem with all its axes is tried
    too, as tiles there span ends of rows.
    """
    ways = dict.fromkeys((flatten(problem), problem))
    cut = (tuple(tile_window(window, target, product_order) for window in windows_of(way, target)) for way in ways)
    return min(cut, key=lambda windows: _cycles(windows, target))


def estimate(problem: Problem, target: CpuTarget, product_order: int = 0) -> Counts:
    """Count the cycles of a problem, the only event: the bound of tiles is not linear."""
    return {"amx.scale": _cycles(tile_windows(problem, target, product_order), target)}


def filter_bytes(problem: Problem, target: CpuTarget, product_order: int = 0) -> int:
    """Return the bytes of the terms of a filter; other algorithms' do not count what fills register tiles either."""
    if product_order == 0:
        return problem.filter_bytes
    return prod(problem.filter_shape) * (product_order + 1) * PAIR_BYTES // 2


def _cycles(windows: Sequence[AmxWindow], target: CpuTarget) -> float:
    return sum(best_cut(window, target).cycles for window in windows)


def express_tiles(window: AmxWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., band, outer..., block, tile, row, block, tile, lane)."""
    number, (tiles, vectors) = window.index, window.block
    read_data, read_filter = _data(window, data), _filter(window, weights)
    taps = [te.reduce_axis((0, count), name=f"k{i}") for i, count in enumerate(window.taps)]
    step, pair = te.reduce_axis((0, window.steps), name="step"), te.reduce_axis((0, window.depth), name="c")
    phases = [axis.phases for axis in window.axes]
    outer = [each.outputs for each in window.outer]
    blocks = (window.tile_blocks, tiles, window.tile_rows, window.output_blocks, vectors, SIDE)
    shape = within_reach((window.problem.batch, window.groups, *phases, window.bands, *outer, *blocks), "the sums")
    multiply = multiply_of(window.problem, window.vnni_factor, window.quads.types if window.quads else None)
    first = sums_of_filter(window, weights) if window.sums_filter else None

    def total(n: Expr, g: Expr, *indices: Expr) -> Expr:
        p, band, z, (tb, tile, row, ob, vector, lane) = window.split(indices)
        c, q = step * window.depth + pair, window.number(tb, tile, row)

        def product(of_data: int, of_filter: int) -> Expr:
            weight = read_filter(g, ob, p, taps, step, of_filter, vector, pair, lane)
            return multiply(read_data(n, g, p, band, z, q, taps, c, of_data), weight)

        products = reduce(add, (product(*each) for each in window.multiplied))
        begun = begin_with(first(g, p, window.channel(ob, vector, lane)), products) if first else products
        return te.sum(begun, axis=[*taps, step, pair])

    acc = te.compute(shape, total, name=stage_name(ACC, number))
    copy = te.compute(shape, lambda *indices: acc(*indices), name=stage_name(TILE, number))

    def rounded(*indices: Expr) -> Expr:
        o = window.output(window.channel(*indices[-3:]))
        channel = indices[1] * window.outputs + tirx.min(o, window.outputs - 1)
        rounding = round_pair if window.problem.dtype == "bf16" else None
        return epilogue(copy(*indices), channel, window.store_index(list(indices))[0], rounding)

    return te.compute((*shape[:-1], window.lanes_stored), rounded, name=stage_name(OUT, number))


def _data(window: AmxWindow, data: te.Tensor) -> Callable[..., Expr]:
    """Return ``read(n, g, phases, band, outer, pixel, taps, pair, term)``."""
    problem, copy_axes = window.problem, window.copy_axes

    def in_place(n: Expr, g: Expr, p: Any, band: Expr, z: Any, q: Expr, k: Any, c: Expr, _: int) -> Expr:
        (axis,) = window.axes
        x = axis.offset(p[0]) + (window.start(band) + q) * axis.stride + k[0] * axis.dilation
        return data(n, x, g * window.channels + c)

    if window.in_place:
        return in_place
    outer, rank, split = len(window.outer), len(copy_axes), window.terms > 1

    def copied(n: Expr, g: Expr, band: Expr, *indices: Expr) -> Expr:
        z, residues, (*term, pixel, c) = indices[:outer], indices[outer : outer + rank], indices[outer + rank :]
        row = copy_axes[-1].extent
        at = [*z, pixel // row, pixel % row] if len(window.flat) == 2 else [pixel]
        starts = [window.start(band), *[0] * (rank - 1)]
        x = [each.coordinate(*of) for each, *of in zip(copy_axes, starts, residues, at, strict=True)]
        bounds = [
            bound
            for each, coordinate in zip(copy_axes, x, strict=True)
            for bound in each.axis.inside(coordinate, each.axis.lowest, _reach(each))
        ]
        if split:
            channels = [(g * (problem.in_channels // problem.groups) + of, at) for of, at in window.channels_of_pair(c)]
            read = [zero_outside(at, _number(window, data, n, x, of), data.dtype) for of, at in channels]
            return zero_outside(bounds, terms_of_pair(read[0], read[1], term[0], window.terms, problem.dtype), "uint32")
        if window.pixel > window.channels:
            bounds.append(c < window.channels)
            c = tirx.min(c, window.channels - 1)
        value = data_element(window, data)(n, x, g * window.channels + c)
        if window.quads is not None and bounds:
            return tirx.if_then_else(tirx.all(*bounds), value, window.quads.padding)
        return zero_outside(bounds, value, "uint32")

    shape = (
        problem.batch,
        window.groups,
        window.bands,
        *(each.extent for each in window.outer),
        *(each.residues for each in copy_axes),
        *[window.terms] * split,
        window.length,
        window.pixel,
    )
    copy = te.compute(within_reach(shape, "the copy of data"), copied, name=stage_name(DATA_PAD, window.index))

    def read(n: Expr, g: Expr, p: Any, band: Expr, z: Any, q: Expr, k: Any, c: Expr, term: int) -> Expr:
        located = [each.located(pp, kk) for each, pp, kk in zip(copy_axes, p, k, strict=True)]
        residues, firsts = [each[0] for each in located], [each[1] for each in located]
        pixel = q * copy_axes[-1].advance + firsts[-1]
        if window.row_taps:
            pixel, c = pixel + c // window.pixel, c % window.pixel
        if len(window.flat) == 2:
            pixel = pixel + firsts[-2] * copy_axes[-1].extent
        z = [zz + first for zz, first in zip(z, firsts, strict=False)]
        return copy(n, g, band, *z, *residues, *[term] * split, pixel, c)

    return read


def _number(window: AmxWindow, data: te.Tensor, n: Expr, x: Sequence[Expr], channel: Expr) -> Expr:
    return data(n, *x, channel) if window.problem.data_format == "NXC" else data(n, channel, *x)


def _reach(copied: CopyAxis) -> int:
    """Return the extent of the copy along an axis, from the lowest coordinate that a task reads."""
    axis = copied.axis
    return (axis.outputs - copied.outputs + copied.reach) * axis.stride


def _filter(window: AmxWindow, weights: te.Tensor) -> Callable[..., Expr]:
    """Return ``read(g, block, phases, taps, step, term, tile, pair, lane)``."""
    axes, rank, split = window.axes, len(window.axes), window.terms > 1

    def element(g: Expr, p: Any, k: Any, c: Expr, o: Expr, *term: Expr) -> Expr:
        if not split:
            return filter_element(window, weights)(g, p, k, c, o)
        channels = window.channels_of_pair(c)
        read = [zero_outside(at, weights(*window.filter_indices(g, p, k, of, o)), weights.dtype) for of, at in channels]
        return terms_of_pair(read[0], read[1], term[0], window.terms, window.problem.dtype)

    def packed(g: Expr, block: Expr, *indices: Expr) -> Expr:
        p, k, (step, *term, vector, pair, lane) = indices[:rank], list(indices[rank : 2 * rank]), indices[2 * rank :]
        o, bounds = window.channel(block, vector, lane), []
        c = step * window.depth + pair
        if window.row_taps:
            k[-1], c = c // window.channels, c % window.channels
        elif window.pairs > window.channels and not split:
            bounds.append(c < window.channels)
            c = tirx.min(c, window.channels - 1)
        if window.padded_outputs > window.outputs and not window.shifted:
            bounds.append(o < window.outputs)
        value = element(g, p, k, c, window.output(o), *term)
        return zero_outside(bounds, value, "uint32")

    terms = [window.terms] * split
    order = (*(axis.phases for axis in axes), *window.taps, window.steps, *terms, window.block[1], window.depth, SIDE)
    shape = within_reach((window.groups, window.output_blocks, *order), "the copy of the filter")
    pack = te.compute(shape, packed, name=stage_name(FILTER_PACK, window.index))
    return lambda g, block, p, k, step, term, *rest: pack(g, block, *p, *k, step, *[term] * split, *rest)
