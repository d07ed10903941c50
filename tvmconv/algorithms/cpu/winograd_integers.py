"""Winograd convolution of integers, exact: products of pairs of 16 bits (vpmaddwd). Stages as those of winograd.py.

With `whole_transforms`, sums are 4 times the formula's (tiles of 4 points) or 576 times (6 points), modulo 2^32, so that two or six bits
fewer remain. Larger sums are split into parts of the channels, each transformed back by itself. Data minus its zero point is at most 255
and grows 4 or 100 times by its transform, a filter of 9 taps 9 or 144 times: `covers` checks that 16 bits hold both.

Data is transformed two channels at a time, as ``first + 65536 * second``, which is linear; finally the borrow of a negative first is added
to the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from tvm import te, tirx

from ...problem import Problem
from ...targets.target import CpuTarget
from ..annotations import CHOOSE_ONCE
from ..definition import Definition, assemble, requests_of
from ..epilogue import Epilogue
from ..flatten import flatten
from ..pairs import multiply_of, spread_signed, sum_requests
from ..stage_names import FILTER_ROWS, FILTER_TILES
from ..subconvolution import Expr
from ..types import zero_outside
from .direct import no_dot
from .transforms import winograd_cost
from .transforms.whole_transforms import (
    DATA_SUMS,
    descale,
    filter_rows,
    transform_data,
    transform_filter,
    transform_sums,
)
from .transforms.winograd_cost import estimate, filter_bytes, plain
from .transforms.winograd_plan import planned_windows
from .transforms.winograd_tiles import WinogradWindow, as_3d, tiles_of
from .transforms.winograd_transforms import select
from .windows.data import data_reader
from .windows.filter import filter_element
from .winograd import keep_prepacked, make_stage, multiply_tiles, transformed_back, transformed_data

__all__ = ["covers", "define", "define_prepacked", "estimate", "filter_bytes", "plain"]

PAIR = 2
_MOST = 2**15 - 1  # of 16 bits


def covers(problem: Problem, target: CpuTarget, points: int) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    if not problem.is_quantized:
        return f"it multiplies integers, not {problem.dtype}"
    if reason := no_dot(problem, target, integers=True):
        return reason
    if (problem.op, problem.data_format, problem.filter_format) != ("convolution", "NXC", "XIO"):
        return "it is for the layouts NXC and XIO"
    if problem.in_channels // problem.groups % PAIR:
        return "a group has an odd number of channels"
    if reason := winograd_cost.covers(problem, target, points):
        return reason
    tiled = tiles_of(problem, target, points)
    if any(_largest_transformed(tiles) > _MOST for tiles in tiled):
        return "its transformed numbers may exceed 16 bits"
    if not all(tiles.parts for tiles in tiled):
        return "its sums, scaled by the transforms, may exceed 32 bits"
    return None


def _largest_transformed(tiles: WinogradWindow) -> int:
    """Return the largest possible magnitude of transformed data and filters."""
    rows = (filter_rows(tiling.points, tiling.axis.taps) for tiling in tiles.tilings)
    sums = (max(sum(map(abs, row)) for row in matrix) for matrix in rows)
    data, filter_ = tiles.problem.largest_numbers
    return max(data * prod(DATA_SUMS[tiling.points] for tiling in tiles.tilings), filter_ * prod(sums))


def define(problem: Problem, target: CpuTarget, points: int) -> Definition:
    """Define `problem` by windows cut into tiles of `points` points along an axis."""
    windows = planned_windows(problem, target, points)
    asks = [*requests_of(problem, windows), CHOOSE_ONCE, *sum_requests(problem, PAIR, target)]
    return assemble(problem, as_3d(flatten(problem)), windows, express, PAIR, asks)


def define_prepacked(problem: Problem, target: CpuTarget, points: int) -> Definition | None:
    """Return the definition with a prepacked transformed filter if a cache keeps it, else None: it is transformed in each call."""
    return keep_prepacked(define(problem, target, points), planned_windows(problem, target, points, prepacked=True))


def express(tiles: WinogradWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`."""
    at = data_reader(tiles, data, spread_signed)
    pairs = transformed_data(tiles, lambda *index: at(*index).astype("int32"), transform_data, _as_pairs)
    sums = multiply_tiles(tiles, pairs, _filter(tiles, weights), multiply_of(tiles.problem, PAIR))
    points = [tiling.points for tiling in tiles.tilings]
    return transformed_back(tiles, sums, epilogue, _transform_back, partial(descale, points=points))


def _transform_back(sums: Sequence[Expr], outputs: int) -> list[Expr]:
    """Return `transform_sums` in unsigned numbers, modulo 2^32: LLVM assumes that signed ones do not overflow."""
    return transform_sums([each.astype("uint32") for each in sums], outputs)


def _as_pairs(value: Expr) -> Expr:
    """Return ``first + 65536 * second`` as a pair of 16-bit numbers."""
    negative = value & tirx.const(0x8000, "int32")
    return (value + (negative << tirx.const(1, "int32"))).astype("uint32")


def _filter(tiles: WinogradWindow, weights: te.Tensor) -> te.Tensor:
    """Return `filter_tiles`, of pairs of channels."""
    rows, columns = tiles.tilings
    element, lanes = filter_element(replace(tiles, vnni_factor=1), weights), tiles.lanes
    phases, blocks = tuple(axis.phases for axis in tiles.axes), tiles.padded_outputs // lanes

    def tap(ky: int, kx: Expr, *at: Expr) -> Expr:
        *phase, kz, g, block, c, lane = at
        o = block * lanes + lane
        taps, bounds = tiles.tap_of(kz, ky, kx, o)
        value = element(g, phase, taps, c, tiles.output(o)).astype("int32")
        return zero_outside(bounds, value, "int32")

    def by_row(a: Expr, kx: Expr, *at: Expr) -> Expr:
        return select(transform_filter(rows.points, [tap(ky, kx, *at) for ky in range(rows.axis.taps)]), a)

    shape = (*phases, tiles.depth, tiles.groups, blocks)
    read = make_stage(
        tiles, (rows.points, columns.axis.taps, *shape, PAIR * tiles.channels, lanes), by_row, FILTER_ROWS
    )

    def pair(a: Expr, b: Expr, *at: Expr) -> Expr:
        *outer, c, lane = at
        first, second = (
            select(
                transform_filter(
                    columns.points, [read(a, kx, *outer, PAIR * c + each, lane) for kx in range(columns.axis.taps)]
                ),
                b,
            )
            for each in range(PAIR)
        )
        return ((second << tirx.const(16, "int32")) | (first & tirx.const(0xFFFF, "int32"))).astype("uint32")

    return make_stage(tiles, (rows.points, columns.points, *shape, tiles.channels, lanes), pair, FILTER_TILES)
