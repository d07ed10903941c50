"""The tensor expressions of Winograd convolution, for windows of stride 1.

The last two axes are cut into tiles (winograd_tiles.py). With (a, b) the pairs of points of winograd_transforms.py:

    data_pad       data widened to f32, zero-padded to whole tiles, channel-last     (absent where it can be read in place)
    data_rows      data_pad transformed along the second axis      (registers)
    data_tiles     data_rows transformed along the last: [a, b, n, phases..., z, tile, tile, c]
    filter_rows    the filter transformed along its second axis    (registers)
    filter_tiles   filter_rows along its last: [a, b, phases..., taps of the first axis, g, o / lanes, c, o % lanes]
    acc            for every (a, b) the product of the two matrices, [a, b, n, g, phases..., z, tile, tile, o]
    out_rows       acc transformed back along the second axis      (registers)
    tile           out_rows along the last                         (only where the store is not by whole vectors)
    out            bias added, rounded once to the output type: [n, g, phases..., z, tile, tile, m, m, o]

The names end in the window's number.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from ..checks import within_reach
from .filter import filter_element
from .types import narrow, widen
from .window import Expr, data_reader
from .winograd_tiles import Tiles, moves
from .winograd_transforms import data_transform, filter_transform, output_transform, pick


def express_winograd(tiles: Tiles, data: te.Tensor, weights: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    """Return the window's `out`.

    Raises
    ------
    InvalidProblemError
        If a stage has more elements than 32-bit indices reach.
    """
    return _output(tiles, _product(tiles, _data(tiles, data), _filter(tiles, weights)), bias)


def _compute(tiles: Tiles, shape: tuple[int, ...], value: Any, name: str) -> te.Tensor:
    return te.compute(within_reach(shape, name), value, name=f"{name}{tiles.index}")


def _data(tiles: Tiles, data: te.Tensor) -> te.Tensor:
    first, *planes = tiles.axes
    cuts, (rows, columns) = tiles.cuts, (cut.points for cut in tiles.cuts)
    at = data_reader(tiles, data)
    phases = tuple(axis.phases if moves(axis) else 1 for axis in planes)
    shape = (tiles.problem.batch, *phases, first.extent, tiles.rows, tiles.columns, tiles.problem.in_channels)

    def read(a: int, b: Expr, n: Expr, py: Expr, px: Expr, z: Expr, ty: Expr, tx: Expr, c: Expr) -> Expr:
        points = zip(planes, cuts, (py, px), (ty, tx), (a, b), strict=True)
        y, x = (axis.origin(phase) + cut.output(tile, point) for axis, cut, phase, tile, point in points)
        return at(n, z + first.lowest, y, x, c)

    by_rows = _compute(
        tiles,
        (rows, columns, *shape),
        lambda a, b, *at: pick(data_transform([read(y, b, *at) for y in range(rows)]), a),
        "data_rows",
    )
    return _compute(
        tiles,
        (rows, columns, *shape),
        lambda a, b, *at: pick(data_transform([by_rows(a, x, *at) for x in range(columns)]), b),
        "data_tiles",
    )


def _filter(tiles: Tiles, weights: te.Tensor) -> te.Tensor:
    first, *planes = tiles.axes
    rows, columns = (cut.points for cut in tiles.cuts)
    element, lanes = filter_element(tiles, weights), tiles.lanes
    phases = tuple(axis.phases for axis in tiles.axes)
    shape = (*phases, first.taps, tiles.groups, tiles.padded_outputs // lanes, tiles.channels, lanes)

    def tap(ky: int, kx: Expr, *at: Expr) -> Expr:
        *phase, kz, g, block, c, lane = at
        o = block * lanes + lane
        value = element(g, phase, (kz, ky, kx), c, tiles.output(o))
        if tiles.stored == tiles.padded_outputs:
            return value
        return tirx.if_then_else(o < tiles.outputs, value, tirx.const(0, "float32"))

    by_rows = _compute(
        tiles,
        (rows, planes[1].taps, *shape),
        lambda a, kx, *at: pick(filter_transform(rows, [tap(ky, kx, *at) for ky in range(planes[0].taps)]), a),
        "filter_rows",
    )
    return _compute(
        tiles,
        (rows, columns, *shape),
        lambda a, b, *at: pick(filter_transform(columns, [by_rows(a, kx, *at) for kx in range(planes[1].taps)]), b),
        "filter_tiles",
    )


def _product(tiles: Tiles, data: te.Tensor, weights: te.Tensor) -> te.Tensor:
    first, *planes = tiles.axes
    lanes, channels = tiles.lanes, tiles.channels
    kz, c = te.reduce_axis((0, first.taps), name="kz"), te.reduce_axis((0, channels), name="c")

    def total(a: Expr, b: Expr, n: Expr, g: Expr, *at: Expr) -> Expr:
        pz, py, px, z, ty, tx, o = at
        moved = (phase if moves(axis) else 0 for axis, phase in zip(planes, (py, px), strict=True))
        plane = first.origin(pz) - first.lowest + z * first.step + kz * first.spacing
        value = data(a, b, n, *moved, plane, ty, tx, g * channels + c)
        return te.sum(value * weights(a, b, pz, py, px, kz, g, o // lanes, c, o % lanes), axis=[kz, c])

    shape = (*_shape(tiles), tiles.padded_outputs)
    return _compute(tiles, (*(cut.points for cut in tiles.cuts), *shape), total, "acc")


def _output(tiles: Tiles, acc: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    points, (m_y, m_x) = [cut.points for cut in tiles.cuts], (cut.outputs for cut in tiles.cuts)
    shape, dtype = _shape(tiles), tiles.problem.dtype
    rows = _compute(
        tiles,
        (m_y, points[1], *shape, tiles.padded_outputs),
        lambda i, b, *at: pick(output_transform([acc(a, b, *at) for a in range(points[0])], m_y), i),
        "out_rows",
    )

    def total(*indices: Expr) -> Expr:
        *at, i, j, o = indices
        return pick(output_transform([rows(i, b, *at, o) for b in range(points[1])], m_x), j)

    def rounded(*indices: Expr) -> Expr:
        value = total(*indices) if tiles.stores_vectors else tile(*indices)
        if bias is not None:
            value = value + widen(bias[indices[1] * tiles.outputs + tiles.output(indices[-1])], dtype)
        return narrow(value, dtype)

    if not tiles.stores_vectors:
        tile = _compute(tiles, (*shape, m_y, m_x, tiles.padded_outputs), total, "tile")
    return _compute(tiles, (*shape, m_y, m_x, tiles.stored), rounded, "out")


def _shape(tiles: Tiles) -> tuple[int, ...]:
    phases = (axis.phases for axis in tiles.axes)
    return (tiles.problem.batch, tiles.groups, *phases, tiles.axes[0].outputs, tiles.rows, tiles.columns)
