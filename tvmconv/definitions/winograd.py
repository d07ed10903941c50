"""The tensor expressions of Winograd convolution F(m x m, 3 x 3), for stride 1.

The output is cut into tiles of m x m. With e the (m + 2)^2 pairs of points of winograd_transforms.py:

    data_pad       data, zero-padded to whole tiles                       (absent when all tiles lie inside)
    data_rows      data_pad transformed along its first axis              (registers)
    data_tiles     data_rows transformed along its second: [e, n, tile, c]
    filter_rows    the filter transformed along its first axis            (registers)
    filter_tiles   filter_rows along its second: [e, o / lanes, c, o % lanes]
    acc            for every e the product of the two matrices, [e, n, tile, o]
    out_rows       acc transformed back along its first axis              (registers)
    out            out_rows along its second, bias added: [n, tile, m, m, o]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ..problem import Problem
from ..target import CpuTarget
from .definition import Definition
from .flatten import flatten
from .shapes import lane_count, row_extent
from .window import placeholders, within_reach
from .winograd_cost import TAPS
from .winograd_transforms import data_transform, filter_transform, output_transform, pick

Expr = Any


@dataclass(frozen=True)
class Tiles:
    """How a (flattened) problem's output is cut.

    Attributes
    ----------
    outputs
        m: outputs of a tile along each axis.
    rows, columns
        Tiles along each axis; `columns` may be rounded up for tiling, the excess is never stored.
    lanes
        Output channels in a vector.
    """

    problem: Problem
    outputs: int
    rows: int
    columns: int
    lanes: int

    @property
    def points(self) -> int:
        """Interpolation points along an axis: m + 2."""
        return self.outputs + TAPS - 1

    @property
    def count(self) -> int:
        """Number of tiles."""
        return self.problem.batch * self.rows * self.columns

    @property
    def extents(self) -> tuple[int, int]:
        """Data coordinates that the tiles read along each axis."""
        return self.rows * self.outputs + TAPS - 1, self.columns * self.outputs + TAPS - 1

    @property
    def stages_data(self) -> bool:
        """Whether tiles reach outside of data."""
        return any(self.problem.pads_begin) or self.extents != self.problem.in_spatial

    def place(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and where it is inside the output (None: always)."""
        n, tile_y, tile_x, i, j, o = indices
        height, width = self.problem.out_spatial
        y, x = tile_y * self.outputs + i, tile_x * self.outputs + j
        offset = ((n * height + y) * width + x) * self.problem.out_channels + o
        bounds = [y < height] if self.rows * self.outputs > height else []
        bounds += [x < width] if self.columns * self.outputs > width else []
        return offset, tirx.all(*bounds) if bounds else None


@dataclass(frozen=True)
class WinogradDefinition(Definition):
    """A Definition with the tiles its space needs to know."""

    tiles: Tiles


def define_winograd(outputs: int, problem: Problem, target: CpuTarget) -> WinogradDefinition:
    """Define `problem` by F(m x m, 3 x 3), m being `outputs`.

    Raises
    ------
    InvalidProblemError
        If a stage has more elements than 32-bit indices reach.
    """
    flat = flatten(problem)
    rows, columns = (-(-extent // outputs) for extent in flat.out_spatial)
    tiles = Tiles(flat, outputs, rows, row_extent(columns, target), lane_count(flat.out_channels, target))
    data, weights, bias = placeholders(flat)
    out = _output(tiles, _product(tiles, _data(tiles, data), _filter(tiles, weights)), bias)
    inputs = [data, weights, bias] if bias is not None else [data, weights]
    return WinogradDefinition(problem, te.create_prim_func([*inputs, out]), [], [tiles.place], tiles)


def _compute(shape: tuple[int, ...], value: Any, name: str) -> te.Tensor:
    return te.compute(within_reach(shape, name), value, name=name)


def _data(tiles: Tiles, data: te.Tensor) -> te.Tensor:
    problem, m, points = tiles.problem, tiles.outputs, tiles.points
    begins, inside = problem.pads_begin, problem.in_spatial

    def padded(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        source = [coordinate - begin for coordinate, begin in zip((y, x), begins, strict=True)]
        bounds = []
        for coordinate, begin, extent, limit in zip(source, begins, tiles.extents, inside, strict=True):
            bounds += [coordinate >= 0] if begin else []
            bounds += [coordinate < limit] if extent - begin > limit else []
        return tirx.if_then_else(tirx.all(*bounds), data(n, *source, c), tirx.const(0, "float32"))

    pad = data
    if tiles.stages_data:
        pad = _compute((problem.batch, *tiles.extents, problem.in_channels), padded, "data_pad")
    shape = (problem.batch, tiles.rows, tiles.columns, problem.in_channels)
    rows = _compute(
        (points, points, *shape),
        lambda p, x, n, ty, tx, c: pick(
            data_transform(m, [pad(n, ty * m + y, tx * m + x, c) for y in range(points)]), p
        ),
        "data_rows",
    )
    return _compute(
        (points, points, *shape),
        lambda p, q, *at: pick(data_transform(m, [rows(p, x, *at) for x in range(points)]), q),
        "data_tiles",
    )


def _filter(tiles: Tiles, weights: te.Tensor) -> te.Tensor:
    problem, m, points, lanes = tiles.problem, tiles.outputs, tiles.points, tiles.lanes
    shape = (problem.out_channels // lanes, problem.in_channels, lanes)

    def tap(y: int, x: Expr, block: Expr, c: Expr, lane: Expr) -> Expr:
        return weights(y, x, c, block * lanes + lane)

    rows = _compute(
        (points, TAPS, *shape),
        lambda p, x, *at: pick(filter_transform(m, [tap(y, x, *at) for y in range(TAPS)]), p),
        "filter_rows",
    )
    return _compute(
        (points, points, *shape),
        lambda p, q, *at: pick(filter_transform(m, [rows(p, x, *at) for x in range(TAPS)]), q),
        "filter_tiles",
    )


def _product(tiles: Tiles, data: te.Tensor, weights: te.Tensor) -> te.Tensor:
    problem, points, lanes = tiles.problem, tiles.points, tiles.lanes
    c = te.reduce_axis((0, problem.in_channels), name="c")
    return _compute(
        (points, points, problem.batch, tiles.rows, tiles.columns, problem.out_channels),
        lambda p, q, n, ty, tx, o: te.sum(data(p, q, n, ty, tx, c) * weights(p, q, o // lanes, c, o % lanes), axis=[c]),
        "acc",
    )


def _output(tiles: Tiles, acc: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    problem, m, points = tiles.problem, tiles.outputs, tiles.points
    shape = (problem.batch, tiles.rows, tiles.columns)
    rows = _compute(
        (m, points, *shape, problem.out_channels),
        lambda i, q, *at: pick(output_transform(m, [acc(p, q, *at) for p in range(points)]), i),
        "out_rows",
    )

    def value(n: Expr, ty: Expr, tx: Expr, i: Expr, j: Expr, o: Expr) -> Expr:
        result = pick(output_transform(m, [rows(i, q, n, ty, tx, o) for q in range(points)]), j)
        return result if bias is None else result + bias[o]

    return _compute((*shape, m, m, problem.out_channels), value, "out")
