"""Winograd convolution of f32 and f16 whose products AMX computes, by bf16 halves. Stages beside those of winograd.py:

    data_halves     data_tiles as pairs of halves:   [a, b, n, phases..., z, band, g, half, tile, pair]
    filter_halves   filter_tiles as pairs of halves: [g, block, phases..., a, b, taps of the first axis, step, half, vector, pair, lane]
    acc             the sums, in tile registers:     [a, b, n, g, phases..., z, band, tile, o]
    products        acc copied out of them

The tiles of a band are numbered consecutively. data_tiles and filter_tiles are in registers.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from itertools import product
from operator import add
from typing import Any

from tvm import te

from ...problem import Problem
from ...targets.target import CpuTarget
from ..annotations import CHOOSE_ONCE
from ..definition import Definition, assemble, requests_of
from ..epilogue import Epilogue
from ..flatten import flatten
from ..pairs import multiply_pairs
from ..stage_names import ACC, DATA_HALVES, FILTER_HALVES, PRODUCTS
from ..subconvolution import Expr
from ..terms import terms_of_pair
from . import amx
from .amx_cost import BLOCKS
from .amx_window import SIDE
from .model.cost import Counts
from .transforms import winograd_cost
from .transforms.winograd_halves_cost import best_chunks, counts, cycles
from .transforms.winograd_halves_window import HALVES, WinogradHalvesWindow, halves_window
from .transforms.winograd_tiles import as_3d, tilings_of, windows_3d
from .windows.data import data_reader
from .winograd import data_read, make_stage, output_shape, transformed_back, transformed_data, transformed_filter

# Least outputs, over which errors average: the worst of 3000 draws of two channels has a relative error of 1.9e-5 with 64, 1.2e-5 with 256.
FEWEST_OUTPUTS = 256


def covers(problem: Problem, target: CpuTarget, points: int) -> str | None:
    """Return None if tiles of so many points compute `problem` by halves, else the reason why not."""
    if reason := amx.covers(problem, target, product_order=1) or winograd_cost.covers(problem, target, points):
        return reason
    if problem.in_channels // problem.groups % HALVES:
        return "a group has an odd number of channels"
    return amx.too_few_outputs(problem, FEWEST_OUTPUTS)


def define(problem: Problem, target: CpuTarget, points: int) -> Definition:
    """Define `problem` by windows cut into tiles of `points` points along an axis."""
    windows = cut_windows(problem, target, points)
    asks = [*requests_of(problem, windows), CHOOSE_ONCE]
    return assemble(problem, as_3d(flatten(problem)), windows, express, asks=asks)


def estimate(problem: Problem, target: CpuTarget, points: int) -> Counts:
    """Count the events of a problem, its filter transformed and prepacked."""
    return counts(problem, cut_windows(problem, target, points), target)


def filter_bytes(problem: Problem, target: CpuTarget, points: int) -> int:
    """Return the bytes of the transformed filter."""
    return sum(window.filter_bytes for window in cut_windows(problem, target, points))


@lru_cache(maxsize=64)  # for the estimate, then for the definition
def cut_windows(problem: Problem, target: CpuTarget, points: int) -> tuple[WinogradHalvesWindow, ...]:
    """Return the windows of `define`, each cut by least cost."""

    def best(window: Any) -> WinogradHalvesWindow:
        rows = tilings_of(window, points)[0].tiles
        bands = sorted({-(-rows // count) for count in range(1, min(rows, 64) + 1)})
        blocks = [block for block in BLOCKS if block[1] <= -(-window.outputs // SIDE)]
        ways = (halves_window(window, points, *way) for way in product(bands, blocks))
        return min(ways, key=lambda way: cycles(way, best_chunks(way, target), target))

    return tuple(map(best, windows_3d(problem, target)))


def express(tiles: WinogradHalvesWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`."""
    return transformed_back(tiles, _products(tiles, _data(tiles, data), _filter(tiles, weights)), epilogue)


def _data(tiles: WinogradHalvesWindow, data: te.Tensor) -> te.Tensor:
    transformed = transformed_data(tiles, data_reader(tiles, data))
    *outer, bands, count, _ = transformed.shape

    def halves(*indices: Expr) -> Expr:
        *at, g, half, tile, c = indices
        first, second = (transformed(*at, tile, g * tiles.channels + each) for each in tiles.channels_of_pair(c))
        return terms_of_pair(first, second, half, HALVES, "f32")

    return make_stage(tiles, (*outer, bands, tiles.groups, HALVES, count, tiles.pairs), halves, DATA_HALVES)


def _filter(tiles: WinogradHalvesWindow, weights: te.Tensor) -> te.Tensor:
    """Return `filter_halves`, in the order in which a task reads it."""
    transformed = transformed_filter(tiles, weights)
    a, b, *phases, depth, groups, _, _, _ = transformed.shape

    def halves(*indices: Expr) -> Expr:
        g, block, pz, py, px, a, b, kz, step, half, vector, pair, lane = indices
        channels = tiles.channels_of_pair(step * tiles.depth_of_step + pair)
        at = [a, b, pz, py, px, kz, g, block * tiles.block[1] + vector]
        first, second = (transformed(*at, channel, lane) for channel in channels)
        return terms_of_pair(first, second, half, HALVES, "f32")

    inner = (a, b, depth, tiles.steps, HALVES, tiles.block[1], tiles.depth_of_step, SIDE)
    return make_stage(tiles, (groups, tiles.output_blocks, *phases, *inner), halves, FILTER_HALVES)


def _products(tiles: WinogradHalvesWindow, data: te.Tensor, weights: te.Tensor) -> te.Tensor:
    kz, step = te.reduce_axis((0, tiles.depth), name="kz"), te.reduce_axis((0, tiles.steps), name="step")
    pair = te.reduce_axis((0, tiles.depth_of_step), name="pair")
    together = tiles.block[1] * SIDE

    def total(a: Expr, b: Expr, n: Expr, g: Expr, *at: Expr) -> Expr:
        *phases, z, band, tile, o = at
        read = [a, b, n, *data_read(tiles, phases, z, kz), band, g]
        c, vector = step * tiles.depth_of_step + pair, o % together // SIDE

        def multiplied(of_data: int, of_filter: int) -> Expr:
            weight = weights(g, o // together, *phases, a, b, kz, step, of_filter, vector, pair, o % SIDE)
            return multiply_pairs(data(*read, of_data, tile, c), weight)

        return te.sum(reduce(add, (multiplied(*each) for each in tiles.multiplied)), axis=[kz, step, pair])

    points = [tiling.points for tiling in tiles.tilings]
    shape = (*points, *output_shape(tiles), tiles.padded_outputs)
    acc = make_stage(tiles, shape, total, ACC)
    return make_stage(tiles, shape, lambda *indices: acc(*indices), PRODUCTS)
