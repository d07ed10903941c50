"""Cut a window into tiles for Winograd's transforms.

An axis with as many points as P = m + taps - 1 computes m outputs of a tile from P data (1 and 1 where there is one tap:
nothing to transform). Tiles of a dilated axis take every d-th coordinate: neighbours interleave, so that a dilated
convolution is nothing but another order of tiles. More taps are cut into pieces, each of which meets its own tiles of data,
further on; their products are summed before these are transformed back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from ....problem import Problem
from ....targets.target import CpuTarget
from ...flatten import flatten
from ...shapes import divisors, row_extent
from ...subconvolution import Axis, Expr
from ..windows.make import windows_of
from ..windows.plan import WinogradPlan
from ..windows.window import Window
from .whole_transforms import shift_of

MOST_PARTS = 8  # whose transformed rows are kept together


@dataclass(frozen=True)
class AxisTiling:
    """One axis cut into tiles.

    Attributes
    ----------
    axis
        The axis, with the taps of one piece.
    points
        Data, and products, of a tile.
    tiles
        Number of tiles.
    taps
        Those of all pieces.
    """

    axis: Axis
    points: int
    tiles: int
    taps: int

    @property
    def pieces(self) -> int:
        """Number of pieces that the taps are cut into."""
        return -(-self.taps // self.axis.taps)

    @property
    def outputs(self) -> int:
        """Outputs of a tile: m."""
        return self.points + 1 - self.axis.taps

    def output(self, tile: Expr, i: Expr) -> Expr:
        """Return which output of the axis is output `i` of a tile; its data, as far on, are those of points `i`."""
        dilation = self.axis.dilation
        if dilation == 1:
            return tile * self.outputs + i
        return tile // dilation * (self.outputs * dilation) + tile % dilation + i * dilation


@dataclass(frozen=True)
class WinogradWindow(Window):
    """A window of three axes, the last two cut into tiles; the taps of the first are summed directly.

    Its axes have as many outputs as the tiles compute.
    """

    tilings: tuple[AxisTiling, ...] = ()
    plans: tuple[WinogradPlan, ...] = ()

    @property
    def reads_planes(self) -> bool:
        """One alone: tiles share their data, which transforms read again."""
        return self.problem.in_channels == 1

    @property
    def rows(self) -> int:
        """Tiles along the second axis."""
        return self.tilings[0].tiles

    @property
    def columns(self) -> int:
        """Tiles along the last axis."""
        return self.tilings[1].tiles

    @cached_property  # asked for each part that is compared
    def points(self) -> int:
        """Products for each tile, channel, output channel and tap of the first axis."""
        return prod(tiling.points for tiling in self.tilings)

    @cached_property
    def filter_bytes(self) -> int:
        """Size of the transformed filter."""
        phases = prod(axis.phases for axis in self.axes)
        return 4 * self.points * phases * self.depth * self.groups * self.channels * self.padded_outputs

    @cached_property
    def pieces(self) -> int:
        """Pieces of the filter that are transformed each by itself."""
        return prod(tiling.pieces for tiling in self.tilings)

    @cached_property
    def depth(self) -> int:
        """Taps of the first axis of all pieces: what is summed directly."""
        return self.axes[0].taps * self.pieces

    def pieced(self, index: Expr) -> tuple[Expr, Expr, Expr]:
        """Return which image, or tap of the first axis, the `index`-th of all pieces' is, and its piece's first taps.

        All pieces of one lie together: a task takes some images.
        """
        if self.pieces == 1:
            return index, 0, 0
        (y, x), piece = self.tilings, index % self.pieces
        return index // self.pieces, piece // x.pieces * y.axis.taps, piece % x.pieces * x.axis.taps

    def tap_of(self, index: Expr, ky: Expr, kx: Expr, o: Expr) -> tuple[list[Expr], list[Expr]]:
        """Return the taps that a piece's tap (ky, kx) is, of the `index`-th of all pieces', and where output `o` has a weight there."""
        kz, y, x = self.pieced(index)
        taps = [y + ky, x + kx]
        bounds = [] if self.stored == self.padded_outputs else [o < self.outputs]
        # The last piece may have fewer taps.
        short = zip(taps, self.tilings, strict=True)
        bounds += [tap < tiling.taps for tap, tiling in short if tiling.taps % tiling.axis.taps]
        return [kz, *taps], bounds

    @cached_property
    def parts(self) -> int:
        """Parts of the channels whose sums are transformed back each by itself, as few as 32 bits allow; 0: even one channel's may pass them."""
        if not self.problem.is_quantized:
            return 1
        bits = 31 - sum(shift_of(tiling.points) for tiling in self.tilings)
        counts = divisors(self.channels, MOST_PARTS)
        return next((count for count in counts if self.problem.largest_sum // count < 2**bits), 0)

    @property
    def channels_together(self) -> int:
        """Channels of such a part."""
        return self.channels // self.parts

    @cached_property
    def phases(self) -> int:
        """Filters that meet the same tiles."""
        return prod(axis.phases for axis in self.axes)

    @cached_property
    def phases_of_data(self) -> int:
        """Phases that read other data, which is transformed for each."""
        return prod(axis.phases for axis in self.axes[1:] if phases_shift(axis))

    @cached_property
    def count(self) -> int:
        """Number of tiles that one filter meets."""
        return self.problem.batch * self.axes[0].outputs * self.rows * self.columns

    @property
    def numbered(self) -> tuple[int, int]:
        """Extents of the two indices of a tile."""
        return self.rows, self.columns

    def row_and_column(self, tile: Sequence[Expr]) -> tuple[Expr, Expr]:
        """Return the row and the column of the tile of two indices."""
        row, column = tile
        return row, column

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and where it is inside the output (None: always)."""
        *before, first, second, i, j, o = indices
        tile_y, tile_x = self.row_and_column((first, second))
        y, x = self.tilings[0].output(tile_y, i), self.tilings[1].output(tile_x, j)
        return super().store_index([*before, y, x, o])


def as_3d(problem: Problem) -> Problem:
    """Return `problem` with three spatial axes: each array has the same elements in the same order.

    Leading axes are added, but to a single one a last one too: its tiles then lie along the second axis, where tasks
    are cut.
    """
    before, after = {1: (1, 1), 2: (1, 0), 3: (0, 0)}[problem.rank]

    def longer(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
        return (fill,) * before + values + (fill,) * after

    ones = {
        name: longer(getattr(problem, name), 1)
        for name in ("in_spatial", "out_spatial", "kernel", "strides", "dilations")
    }
    zeros = {name: longer(getattr(problem, name), 0) for name in ("pads_begin", "pads_end")}
    return problem.with_(**ones, **zeros)


def tiles_of(problem: Problem, target: CpuTarget, points: int) -> list[WinogradWindow]:
    """Return a problem's windows cut into tiles of `points` points along an axis."""
    return [tiled_window(window, points, target) for window in windows_3d(problem, target)]


def windows_3d(problem: Problem, target: CpuTarget) -> list[Window]:
    """Return the windows that are cut into tiles, of three axes each; of integers by pairs of channels."""
    windows = windows_of(as_3d(flatten(problem)), target)
    return [replace(window, vnni_factor=2) for window in windows] if problem.is_quantized else windows


def tiled_window(window: Window, points: int, target: CpuTarget) -> WinogradWindow:
    """Return a window of a problem of three axes cut into tiles of `points` points along its last two axes."""
    tiled, tilings = window.axes[1:], tilings_of(window, points)
    # Tiles of registers lie along the last axis, or along the other where that has one tile: 683 tiles divide into none.
    along = 0 if tilings[-1].tiles == 1 else -1
    if tiled[along].dilation == 1:
        tilings[along] = replace(tilings[along], tiles=row_extent(tilings[along].tiles, target))
    return window.as_kind(WinogradWindow, **as_tiled(window, tilings))


def tilings_of(window: Window, points: int) -> list[AxisTiling]:
    """Return how the last two axes of a window of three are cut into tiles of `points` points along each."""
    return [_tiling(axis, points if axis.taps > 1 else 1) for axis in window.axes[1:]]


def as_tiled(window: Window, tilings: Sequence[AxisTiling]) -> dict[str, Any]:
    """Return what changes in a window of three axes whose last two are cut so: each has as many outputs as its tiles."""
    axes = (window.axes[0], *map(_round_up, tilings))
    return {"axes": axes, "row": axes[-1].outputs, "tilings": tuple(tilings)}


def _tiling(axis: Axis, points: int) -> AxisTiling:
    piece = _piece(axis.taps, points)
    tiles = -(-axis.outputs // ((points + 1 - piece) * axis.dilation)) * axis.dilation
    return AxisTiling(replace(axis, taps=piece), points, tiles, axis.taps)


def _piece(taps: int, points: int) -> int:
    """Return how many taps a piece has for the fewest products of an output; one of all taps and few pieces are preferred."""
    if taps == 1:
        return 1
    return min(range(points - 1, 1, -1), key=lambda piece: (-(-taps // piece) / (points + 1 - piece), piece != taps))


def _round_up(tiling: AxisTiling) -> Axis:
    outputs = tiling.tiles * tiling.outputs
    same = outputs == tiling.axis.outputs
    taps = tiling.axis.taps * tiling.pieces
    return replace(tiling.axis, taps=taps, outputs=outputs, always_inside=tiling.axis.always_inside and same)


def phases_shift(axis: Axis) -> bool:
    """Return whether the phases of an axis read data at other offsets, not the same with other filters."""
    return len({axis.offset(phase) for phase in range(axis.phases)}) > 1
