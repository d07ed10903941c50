"""Cut a window into tiles for Winograd's transforms.

Along an axis with P = m + taps - 1 points, a tile computes m outputs from P data (1 from 1 with one tap, without a transform).
Tiles of a dilated axis take every d-th coordinate: neighbours interleave, so that a dilated
convolution only has another order of tiles. More taps are cut into pieces, each of which meets its own, shifted tiles of data;
their products are summed before they are transformed back.
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

MOST_PARTS = 8  # of channels, whose transformed rows are held at a time


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
        Taps of all pieces.
    """

    axis: Axis
    points: int
    tiles: int
    taps: int

    @property
    def pieces(self) -> int:
        """Number of pieces of the taps."""
        return -(-self.taps // self.axis.taps)

    @property
    def outputs(self) -> int:
        """Outputs of a tile: m."""
        return self.points + 1 - self.axis.taps

    def output(self, tile: Expr, i: Expr) -> Expr:
        """Return the axis' output that is output `i` of a tile, or the place of the data of point `i`."""
        dilation = self.axis.dilation
        if dilation == 1:
            return tile * self.outputs + i
        return tile // dilation * (self.outputs * dilation) + tile % dilation + i * dilation


@dataclass(frozen=True)
class WinogradWindow(Window):
    """A window of three axes, the last two cut into tiles; the taps of the first are summed directly.

    The axes have all outputs that tiles compute.
    """

    tilings: tuple[AxisTiling, ...] = ()
    plans: tuple[WinogradPlan, ...] = ()

    @property
    def reads_planes(self) -> bool:
        """Return whether planes of data are read in place: only one, as transforms of neighbouring tiles read data again."""
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
        """Points, and so products, of a tile along both axes."""
        return prod(tiling.points for tiling in self.tilings)

    @cached_property
    def filter_bytes(self) -> int:
        """Bytes of the transformed filter."""
        phases = prod(axis.phases for axis in self.axes)
        return 4 * self.points * phases * self.depth * self.groups * self.channels * self.padded_outputs

    @cached_property
    def pieces(self) -> int:
        """Number of pieces of the filter, each transformed by itself."""
        return prod(tiling.pieces for tiling in self.tilings)

    @cached_property
    def depth(self) -> int:
        """Taps that are summed directly: those of the first axis in all pieces."""
        return self.axes[0].taps * self.pieces

    def pieced(self, index: Expr) -> tuple[Expr, Expr, Expr]:
        """Return the image, or tap of the first axis, of the `index`-th of all pieces, and the piece's first taps.

        All pieces of an image are adjacent, because tasks take some images.
        """
        if self.pieces == 1:
            return index, 0, 0
        (y, x), piece = self.tilings, index % self.pieces
        return index // self.pieces, piece // x.pieces * y.axis.taps, piece % x.pieces * x.axis.taps

    def tap_of(self, index: Expr, ky: Expr, kx: Expr, o: Expr) -> tuple[list[Expr], list[Expr]]:
        """Return the filter's taps for tap (ky, kx) of the `index`-th of all pieces, and the conditions under which they exist for `o`."""
        kz, y, x = self.pieced(index)
        taps = [y + ky, x + kx]
        bounds = [] if self.stored == self.padded_outputs else [o < self.outputs]
        # The last piece may have fewer taps.
        short = zip(taps, self.tilings, strict=True)
        bounds += [tap < tiling.taps for tap, tiling in short if tiling.taps % tiling.axis.taps]
        return [kz, *taps], bounds

    @cached_property
    def parts(self) -> int:
        """Least number of parts of the channels whose scaled sums fit 32 bits; 0 if no number up to MOST_PARTS does."""
        if not self.problem.is_quantized:
            return 1
        bits = 31 - sum(shift_of(tiling.points) for tiling in self.tilings)
        counts = divisors(self.channels, MOST_PARTS)
        return next((count for count in counts if self.problem.largest_sum // count < 2**bits), 0)

    @property
    def channels_together(self) -> int:
        """Channels of a part."""
        return self.channels // self.parts

    @cached_property
    def phases(self) -> int:
        """Number of phases: filters for the same tiles."""
        return prod(axis.phases for axis in self.axes)

    @cached_property
    def phases_of_data(self) -> int:
        """Number of phases with different data, which is transformed for each."""
        return prod(axis.phases for axis in self.axes[1:] if phases_shift(axis))

    @cached_property
    def count(self) -> int:
        """Number of tiles of a phase."""
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
        """Return the flat output offset of `out` at `indices`, and the condition under which it is inside (None: always)."""
        *before, first, second, i, j, o = indices
        tile_y, tile_x = self.row_and_column((first, second))
        y, x = self.tilings[0].output(tile_y, i), self.tilings[1].output(tile_x, j)
        return super().store_index([*before, y, x, o])


def as_3d(problem: Problem) -> Problem:
    """Return `problem` with three spatial axes: each array has the same elements in the same order.

    Leading axes are added, and to a single axis a last one as well: its tiles are then along the second axis, which tasks
    cut.
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
    # Register tiles are along the last axis, or the other if the last has one tile. Numbers of tiles such as 683 have no divisors.
    along = 0 if tilings[-1].tiles == 1 else -1
    if tiled[along].dilation == 1:
        tilings[along] = replace(tilings[along], tiles=row_extent(tilings[along].tiles, target))
    return window.as_kind(WinogradWindow, **as_tiled(window, tilings))


def tilings_of(window: Window, points: int) -> list[AxisTiling]:
    """Return the tilings of the last two axes of a window of three, with `points` points along each."""
    return [_tiling(axis, points if axis.taps > 1 else 1) for axis in window.axes[1:]]


def as_tiled(window: Window, tilings: Sequence[AxisTiling]) -> dict[str, Any]:
    """Return the changes of a window of three axes with these tilings: each axis has all outputs of its tiles."""
    axes = (window.axes[0], *map(_round_up, tilings))
    return {"axes": axes, "row": axes[-1].outputs, "tilings": tuple(tilings)}


def _tiling(axis: Axis, points: int) -> AxisTiling:
    piece = _piece(axis.taps, points)
    tiles = -(-axis.outputs // ((points + 1 - piece) * axis.dilation)) * axis.dilation
    return AxisTiling(replace(axis, taps=piece), points, tiles, axis.taps)


def _piece(taps: int, points: int) -> int:
    """Return the taps of a piece for the fewest products of an output; among equals, one piece of all taps, then few pieces."""
    if taps == 1:
        return 1
    return min(range(points - 1, 1, -1), key=lambda piece: (-(-taps // piece) / (points + 1 - piece), piece != taps))


def _round_up(tiling: AxisTiling) -> Axis:
    outputs = tiling.tiles * tiling.outputs
    same = outputs == tiling.axis.outputs
    taps = tiling.axis.taps * tiling.pieces
    return replace(tiling.axis, taps=taps, outputs=outputs, always_inside=tiling.axis.always_inside and same)


def phases_shift(axis: Axis) -> bool:
    """Return whether the phases of an axis read data at different offsets, not only with different filters."""
    return len({axis.offset(phase) for phase in range(axis.phases)}) > 1
