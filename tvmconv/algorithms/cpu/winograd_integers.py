"""Winograd convolution of integers, exact: tiles of 4 points, products of pairs of 16 bits (vpmaddwd). Stages as those of winograd.py.

Filters are transformed by twice the matrix along each axis, which then has whole numbers, so that sums are two or four times the
formula's: their last bits are 0, and a shift takes them off. Data less its zero point has at most 255, four of which 16 bits keep; of a
filter of 9 taps nine do. Data is transformed two channels at a time, as ``first + 65536 * second``, which sums and differences go
through; at last the sign of the first is taken from the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import Any

from tvm import te, tirx

from ...problem import Problem
from ...targets.target import CpuTarget
from ..annotations import CHOOSE_ONCE
from ..definition import Definition, assemble, requests_of
from ..epilogue import Epilogue
from ..flatten import flatten
from ..pairs import multiply_of, spread_signed
from ..stage_names import FILTER_ROWS, FILTER_TILES
from ..subconvolution import Expr
from ..types import zero_outside
from .direct import no_dot
from .model.cost import Counts
from .transforms import winograd_cost
from .transforms.winograd_plan import planned_windows
from .transforms.winograd_tiles import WinogradWindow, as_3d
from .transforms.winograd_transforms import select
from .windows.data import data_reader
from .windows.filter import filter_element
from .winograd import keep_prepacked, make_stage, multiply_tiles, transformed_back, transformed_data

POINTS, PAIR = 4, 2
# Sums are at most four times the formula's.
_MOST_SUM = 2**31 // POINTS


def covers(problem: Problem, target: CpuTarget) -> str | None:
    """Return None if the algorithm computes the problem on the target, else why not."""
    if not problem.is_quantized:
        return f"it multiplies integers, not {problem.dtype}"
    if reason := no_dot(problem, target, integers=True):
        return reason
    if (problem.op, problem.data_format, problem.filter_format) != ("convolution", "NXC", "XIO"):
        return "it takes convolutions of NXC and XIO"
    if problem.in_channels // problem.groups % PAIR:
        return "a group's channels are no whole pairs"
    if problem.largest_sum >= _MOST_SUM:
        return "four times its sums may pass 32 bits"
    return winograd_cost.covers(problem, target, POINTS)


def define(problem: Problem, target: CpuTarget) -> Definition:
    """Define `problem` by windows cut into tiles."""
    windows = planned_windows(problem, target, POINTS)
    asks = [*requests_of(problem, windows), CHOOSE_ONCE]
    return assemble(problem, as_3d(flatten(problem)), windows, express, PAIR, asks)


def define_prepacked(problem: Problem, target: CpuTarget) -> Definition | None:
    """Return the definition that keeps the transformed filter, if a cache does; None: it is made as it is used."""
    return keep_prepacked(define(problem, target), planned_windows(problem, target, POINTS, prepacked=True))


def estimate(problem: Problem, target: CpuTarget) -> Counts:
    """Count the events of a problem, its filter transformed before if a cache keeps it."""
    return winograd_cost.estimate(problem, target, POINTS)


def plain(problem: Problem, target: CpuTarget) -> Counts:
    """Count the events of a problem whose filter is transformed in each call."""
    return winograd_cost.plain(problem, target, POINTS)


def filter_bytes(problem: Problem, target: CpuTarget) -> int:
    """Return the bytes of the transformed filter; where no cache keeps it, of the plain one, which calls transform."""
    return winograd_cost.filter_bytes(problem, target, POINTS)


def express(tiles: WinogradWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`.

    Raises
    ------
    InvalidProblemError
        If a stage has more elements than 32-bit indices reach.
    """
    at = data_reader(tiles, data, spread_signed)
    pairs = transformed_data(tiles, lambda *index: at(*index).astype("int32"), _as_pairs)
    sums = multiply_tiles(tiles, pairs, _filter(tiles, weights), multiply_of(tiles.problem, PAIR))
    doubled = sum(tiling.points > 1 for tiling in tiles.tilings)
    return transformed_back(tiles, sums, epilogue, lambda total: total >> tirx.const(doubled, "int32"))


def _as_pairs(value: Expr) -> Expr:
    """Return ``first + 65536 * second`` as both in 16 bits."""
    negative = value & tirx.const(0x8000, "int32")
    return (value + (negative << tirx.const(1, "int32"))).astype("uint32")


def _filter(tiles: WinogradWindow, weights: te.Tensor) -> te.Tensor:
    """Return `filter_tiles`, of pairs of channels."""
    rows, columns = tiles.tilings
    element, lanes = filter_element(replace(tiles, vnni_factor=1), weights), tiles.lanes
    phases, blocks = tuple(axis.phases for axis in tiles.axes), tiles.padded_outputs // lanes

    def tap(ky: int, kx: Expr, *at: Expr) -> Expr:
        *phase, kz, g, block, c, lane = at
        kz, y, x = tiles.pieced(kz)
        taps, o = (y + ky, x + kx), block * lanes + lane
        bounds = [] if tiles.stored == tiles.padded_outputs else [o < tiles.outputs]
        # The last piece may have fewer taps.
        short = zip(taps, tiles.tilings, strict=True)
        bounds += [tap < tiling.taps for tap, tiling in short if tiling.taps % tiling.axis.taps]
        value = element(g, phase, (kz, *taps), c, tiles.output(o)).astype("int32")
        return zero_outside(bounds, value, "int32")

    def by_row(a: Expr, kx: Expr, *at: Expr) -> Expr:
        return select(_transform(rows.points, [tap(ky, kx, *at) for ky in range(rows.axis.taps)]), a)

    shape = (*phases, tiles.depth, tiles.groups, blocks)
    read = make_stage(
        tiles, (rows.points, columns.axis.taps, *shape, PAIR * tiles.channels, lanes), by_row, FILTER_ROWS
    )

    def pair(a: Expr, b: Expr, *at: Expr) -> Expr:
        *outer, c, lane = at
        first, second = (
            select(
                _transform(
                    columns.points, [read(a, kx, *outer, PAIR * c + each, lane) for kx in range(columns.axis.taps)]
                ),
                b,
            )
            for each in range(PAIR)
        )
        return ((second << tirx.const(16, "int32")) | (first & tirx.const(0xFFFF, "int32"))).astype("uint32")

    return make_stage(tiles, (rows.points, columns.points, *shape, tiles.channels, lanes), pair, FILTER_TILES)


def _transform(points: int, taps: Sequence[Expr]) -> list[Any]:
    """Return twice the transformed values of `winograd_transforms.filter_transform`, one for each point."""
    if points == 1:
        return [taps[0]]
    total = partial(reduce, add)
    even, odd = total(taps[0::2]), total(taps[1::2])
    two = tirx.const(2, "int32")
    return [taps[0] * two, even + odd, even - odd, taps[-1] * two]
