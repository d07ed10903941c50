"""Tensor expressions of Winograd convolution, for windows of stride 1.

The last two axes are cut into tiles (winograd_tiles.py). With (a, b) the pairs of points of winograd_transforms.py:

    data_pad       data widened to f32, zero-padded to whole tiles, channel-last     (absent if it is read in place)
    data_rows      data_pad transformed along the second axis      (registers)
    data_tiles     data_rows transformed along the last: [a, b, n, phases..., z, tile, tile, c]
    filter_pack    the filter widened to f32, with contiguous lanes                  (absent unless `_lanes_apart`)
    filter_rows    the filter transformed along its second axis    (registers)
    filter_tiles   filter_rows along its last: [a, b, phases..., taps of the first axis, g, o / lanes, c, o % lanes]
    acc            for every (a, b) the product of the two matrices, [a, b, n, g, phases..., z, tile, tile, o]
    out_rows       acc transformed back along the second axis      (registers)
    tile           out_rows along the last                         (only where the store is not by whole vectors)
    out            bias added, rounded once to the output type: [n, g, phases..., z, tile, tile, m, m, o]

The names end in the window's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add, mul
from typing import Any

from tvm import te

from ...checks import within_reach
from ...problem import Problem
from ...targets.target import CpuTarget
from ..annotations import CHOOSE_ONCE
from ..definition import Definition, assemble, requests_of
from ..epilogue import Epilogue
from ..flatten import flatten
from ..stage_names import (
    ACC,
    DATA_ROWS,
    DATA_TILES,
    FILTER_PACK,
    FILTER_ROWS,
    FILTER_TILES,
    OUT,
    OUT_ROWS,
    TILE,
    stage_name,
)
from ..subconvolution import Expr
from ..types import zero_outside
from .transforms.winograd_cost import covers, estimate, filter_bytes, plain
from .transforms.winograd_plan import planned_windows
from .transforms.winograd_tiles import WinogradWindow, as_3d, phases_shift
from .transforms.winograd_transforms import data_transform, filter_transform, output_transform, select
from .windows.data import data_reader
from .windows.filter import filter_element

__all__ = ["covers", "define", "define_prepacked", "estimate", "filter_bytes", "plain"]


def define(problem: Problem, target: CpuTarget, points: int) -> Definition:
    """Define `problem` by windows cut into tiles of `points` points along an axis."""
    windows = planned_windows(problem, target, points)
    asks = [*requests_of(problem, windows), CHOOSE_ONCE]
    return assemble(problem, as_3d(flatten(problem)), windows, express_winograd, asks=asks)


def define_prepacked(problem: Problem, target: CpuTarget, points: int) -> Definition | None:
    """Return the definition with a prepacked transformed filter if a cache keeps it, else None: it is transformed in each call."""
    return keep_prepacked(define(problem, target, points), planned_windows(problem, target, points, prepacked=True))


def keep_prepacked(definition: Definition, kept: Sequence[WinogradWindow]) -> Definition | None:
    """Return a definition with the windows `kept`, whose transformed filter may be prepacked; None if its own are alike."""
    if [window.prepacked for window in kept] == [window.prepacked for window in definition.windows]:
        return None
    return replace(definition, windows=list(kept))


def _lanes_apart(tiles: WinogradWindow) -> bool:
    """Return whether summed channels or taps, not lanes, are contiguous in the filter, so that parts are transposed first.

    Pieces are not transposed, as TVM finds no bounds of their taps.
    """
    transposed = tiles.problem.op != "convolution" and tiles.problem.filter_format == "XIO"
    whole = tiles.stored == tiles.padded_outputs
    return tiles.pieces == 1 and ((transposed and whole) or tiles.taps_are_columns)


def express_winograd(tiles: WinogradWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`."""
    transformed = transformed_data(tiles, data_reader(tiles, data))
    products = multiply_tiles(tiles, transformed, transformed_filter(tiles, weights))
    return transformed_back(tiles, products, epilogue)


def make_stage(tiles: WinogradWindow, shape: tuple[int, ...], value: Any, name: str) -> te.Tensor:
    """Return the stage called `name` with elements ``value(*indices)``."""
    return te.compute(within_reach(shape, name), value, name=stage_name(name, tiles.index))


def transformed_data(
    tiles: WinogradWindow,
    at: Callable[..., Expr],
    transform: Callable[[Sequence[Expr]], list[Expr]] = data_transform,
    last: Callable[[Expr], Expr] | None = None,
) -> te.Tensor:
    """Return `data_tiles` of data read by ``at(n, *x, channel)``: `transform` along both axes, then `last` on each element."""
    along_z, *tiled = tiles.axes
    tilings, (rows, columns) = tiles.tilings, (tiling.points for tiling in tiles.tilings)
    phases = tuple(axis.phases if phases_shift(axis) else 1 for axis in tiled)
    images = tiles.pieces * along_z.extent
    channels = tiles.problem.groups * tiles.channels
    shape = (tiles.problem.batch, *phases, images, *tiles.numbered, channels)

    def read(a: int, b: Expr, n: Expr, py: Expr, px: Expr, z: Expr, first: Expr, second: Expr, c: Expr) -> Expr:
        z, *taps = tiles.pieced(z)
        ty, tx = tiles.row_and_column((first, second))
        points = zip(tiled, tilings, (py, px), (ty, tx), taps, (a, b), strict=True)
        y, x = (
            axis.offset(phase) + tiling.output(tile, point) + tap * axis.dilation
            for axis, tiling, phase, tile, tap, point in points
        )
        return at(n, z + along_z.lowest, y, x, c)

    by_rows = make_stage(
        tiles,
        (rows, columns, *shape),
        lambda a, b, *at: select(transform([read(y, b, *at) for y in range(rows)]), a),
        DATA_ROWS,
    )

    def by_columns(a: Expr, b: Expr, *at: Expr) -> Expr:
        value = select(transform([by_rows(a, x, *at) for x in range(columns)]), b)
        return value if last is None else last(value)

    return make_stage(tiles, (rows, columns, *shape), by_columns, DATA_TILES)


def transformed_filter(tiles: WinogradWindow, weights: te.Tensor) -> te.Tensor:
    """Return `filter_tiles`."""
    rows, columns = (tiling.points for tiling in tiles.tilings)
    taps_y, taps_x = (tiling.axis.taps for tiling in tiles.tilings)
    element, lanes = filter_element(tiles, weights), tiles.lanes
    phases = tuple(axis.phases for axis in tiles.axes)
    shape = (*phases, tiles.depth, tiles.groups, tiles.padded_outputs // lanes, tiles.channels, lanes)

    def tap(ky: int, kx: Expr, *at: Expr) -> Expr:
        *phase, kz, g, block, c, lane = at
        taps, bounds = tiles.tap_of(kz, ky, kx, block * lanes + lane)
        return zero_outside(bounds, read(*phase, *taps, g, block, c, lane))

    def stored(*at: Expr) -> Expr:
        g, block, c, lane = at[6:]
        return element(g, at[:3], at[3:6], c, tiles.output(block * lanes + lane))

    read: Callable[..., Expr] = stored
    if _lanes_apart(tiles):
        read = make_stage(tiles, (*phases, tiles.depth, taps_y, taps_x, *shape[-4:]), stored, FILTER_PACK)

    by_rows = make_stage(
        tiles,
        (rows, taps_x, *shape),
        lambda a, kx, *at: select(filter_transform(rows, [tap(ky, kx, *at) for ky in range(taps_y)]), a),
        FILTER_ROWS,
    )
    return make_stage(
        tiles,
        (rows, columns, *shape),
        lambda a, b, *at: select(filter_transform(columns, [by_rows(a, kx, *at) for kx in range(taps_x)]), b),
        FILTER_TILES,
    )


def multiply_tiles(
    tiles: WinogradWindow, data: te.Tensor, weights: te.Tensor, multiply: Callable[[Expr, Expr], Expr] = mul
) -> te.Tensor:
    """Return `acc`, the sums of products by `multiply`; its first axis has the points of each part of the channels."""
    lanes, channels, each = tiles.lanes, tiles.channels, tiles.channels_together
    rows, columns = (tiling.points for tiling in tiles.tilings)
    kz, c = te.reduce_axis((0, tiles.depth), name="kz"), te.reduce_axis((0, each), name="c")

    def total(a: Expr, b: Expr, n: Expr, g: Expr, *at: Expr) -> Expr:
        *phases, z, ty, tx, o = at
        channel, a = (c, a) if tiles.parts == 1 else (a // rows * each + c, a % rows)
        value = data(a, b, n, *data_read(tiles, phases, z, kz), ty, tx, g * channels + channel)
        return te.sum(multiply(value, weights(a, b, *phases, kz, g, o // lanes, channel, o % lanes)), axis=[kz, c])

    shape = (*output_shape(tiles), tiles.padded_outputs)
    return make_stage(tiles, (tiles.parts * rows, columns, *shape), total, ACC)


def data_read(tiles: WinogradWindow, phases: Sequence[Expr], z: Expr, kz: Expr) -> list[Expr]:
    """Return the phases and the image of `data_tiles` that tap `kz` of output `z` along the first axis reads."""
    first, *tiled = tiles.axes
    read = [phase if phases_shift(axis) else 0 for axis, phase in zip(tiled, phases[1:], strict=True)]
    tap = tiles.pieced(kz)[0]
    image = (first.offset(phases[0]) - first.lowest + z * first.stride + tap * first.dilation) * tiles.pieces
    if tiles.pieces > 1:
        image += kz % tiles.pieces
    return [*read, image]


def transformed_back(
    tiles: WinogradWindow,
    acc: te.Tensor,
    epilogue: Epilogue,
    transform: Callable[[Sequence[Expr], int], list[Expr]] = output_transform,
    last: Callable[[Expr], Expr] | None = None,
) -> te.Tensor:
    """Return `out` of the sums of products, with their axes.

    `transform` and then `last` are applied to the sums of each part of the channels before these are added.
    """
    points, (m_y, m_x) = [tiling.points for tiling in tiles.tilings], (tiling.outputs for tiling in tiles.tilings)
    shape, parts = output_shape(tiles), range(tiles.parts)

    def by_rows(i: Expr, b: Expr, *at: Expr) -> Expr:
        firsts = [part * points[0] for part in parts]
        sums = ([acc(first + a, b, *at) for a in range(points[0])] for first in firsts)
        return select([each for of_part in sums for each in transform(of_part, m_y)], i)

    rows = make_stage(tiles, (tiles.parts * m_y, points[1], *shape, tiles.padded_outputs), by_rows, OUT_ROWS)

    def total(*indices: Expr) -> Expr:
        *at, i, j, o = indices
        found = (
            select(transform([rows(part * m_y + i if part else i, b, *at, o) for b in range(points[1])], m_x), j)
            for part in parts
        )
        return reduce(add, found if last is None else map(last, found))

    def rounded(*indices: Expr) -> Expr:
        value = total(*indices) if tiles.stores_vectors else tile(*indices)
        channel = indices[1] * tiles.outputs + tiles.output(indices[-1])
        return epilogue(value, channel, tiles.store_index(list(indices))[0])

    if not tiles.stores_vectors:
        tile = make_stage(tiles, (*shape, m_y, m_x, tiles.padded_outputs), total, TILE)
    return make_stage(tiles, (*shape, m_y, m_x, tiles.stored), rounded, OUT)


def output_shape(tiles: WinogradWindow) -> tuple[int, ...]:
    """Return the extents of (n, g, phases..., z, tile, tile)."""
    phases = (axis.phases for axis in tiles.axes)
    return (tiles.problem.batch, tiles.groups, *phases, tiles.axes[0].outputs, *tiles.numbered)
