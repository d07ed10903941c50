"""Plans: the cuts of a window into tasks and tiles, and the order of both.

The cost model makes them (direct_plan.py, grouped_plan.py, planar_plan.py, winograd_plan.py). The estimate counts the events of a window's
first plan; each plan is a sketch of the schedule; a tuned record selects a plan and its choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

Options = tuple[Sequence[int], int]  # the choices, and the default


@dataclass(frozen=True)
class DirectPlan:
    """Tasks and tiles of a window whose lanes run within a group.

    Attributes
    ----------
    vectors, tiles, unrolls
        Vectors of channels of a tile; choices of its pixels, and of the channels of a step.
    chunks, rows
        Choices of the parts of the output channels, and of a task's rows (1 with one axis).
    tap_by_tap
        Whether a task computes all its rows for one tap before the next, with sums in memory.
    rows_first
        Whether threads share rows with all output channels, rather than channels.
    by_phase
        Whether a task has one phase, as the filter of all phases leaves L2 before the next rows use it.
    by_blocks
        Whether a task computes all its tiles of a block of channels before the next block. With one axis a task then has a part of
        the row, one of `parts`, of `images` images; else a tile.
    pixel_parts
        Parts of the only row of planes that threads share before channels; 1: they share channels.
    groups_together
        Whether tasks compute all groups of a few pixels before the next pixels.
    filter_at_once
        Whether a task copies its part of the filter at once, not block by block.
    data_at_once
        Whether data is copied before all tasks.
    """

    vectors: int
    tiles: Options
    unrolls: Options
    chunks: Options
    rows: Options
    tap_by_tap: bool
    rows_first: bool
    by_phase: bool
    by_blocks: bool
    parts: Options
    images: int
    pixel_parts: int
    groups_together: bool
    filter_at_once: bool
    data_at_once: bool


@dataclass(frozen=True)
class WholeRows:
    """Tasks that read whole rows of a filter in place.

    Attributes
    ----------
    shares
        Number of tasks, each of which sums the products of equally many consecutive rows.
    rows
        Rows of a part, whose products are added to a tile's sums in registers.
    vectors
        Vectors of a tile.
    """

    shares: int
    rows: int
    vectors: int


@dataclass(frozen=True)
class GroupedPlan:
    """Tasks and tiles of a window whose lanes run across groups.

    Attributes
    ----------
    vectors, tiles, chunks, rows, rows_first
        As in `DirectPlan`.
    taps_unrolled, taps_together
        Taps along the row in a loop's body, and number of further taps that lowering takes together; 0: it takes them one by one.
    channels_first
        Whether shuffled sums take channels before taps.
    """

    vectors: int
    tiles: Options
    chunks: Options
    rows: Options
    rows_first: bool
    taps_unrolled: int
    taps_together: int
    channels_first: bool


class Shape(NamedTuple):
    """A register tile of Winograd's products: `vectors` of output channels for `rows` x `columns` tiles."""

    vectors: int
    rows: int
    columns: int

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return self.rows * self.columns


class TaskPart(NamedTuple):
    """Part of a window for a task: `images`, `band` times a register tile's rows, and `columns` of tiles."""

    images: int
    band: int
    columns: int


@dataclass(frozen=True)
class WinogradPlan:
    """Order of the products of a window that is cut into Winograd's tiles.

    Attributes
    ----------
    by_rows
        Whether a task has some rows of tiles and all output channels; else it has some output channels, and all or some rows.
    shape
        The register tile.
    images, bands, strips, unrolls
        Choices of a task's outputs of the first axis, multiples of a register tile's rows, and columns of tiles; channels of a step.
    filter_parts
        With tasks by channels: choices of the parts of input channels that a task's filters are cut into.
    prefetches
        With tasks by channels: whether a block's products prefetch the next block's filter.
    """

    by_rows: bool
    shape: Shape
    images: Options
    bands: Options
    strips: Options
    unrolls: Options
    filter_parts: Options
    prefetches: bool


@dataclass(frozen=True)
class PlanarPlan:
    """Tasks and tiles of a window whose lanes run along a row.

    Attributes
    ----------
    channels, vectors, tile_rows
        Output channels of a tile; choices of its vectors of a row; its rows, which share loads.
    planes
        With several axes, number of groups whose data a task copies before it multiplies.
    rows, chunks
        Choices of a task's multiples of `tile_rows` with several axes, and of parts of the channels with one axis.
    tiles
        Choices of a task's tiles of the only row, whose data it copies once; None: one tile.
    taps_unrolled
        Taps along the row in a loop's body.
    blocks_first
        Whether a task computes all rows of a block of channels before the next block.
    planes_by_rows
        Whether a task computes all tiles of a row of a block before the next block, else all blocks of a tile before the next tile.
    data_at_once
        Whether data is copied before all tasks.
    """

    channels: int
    vectors: Options
    tile_rows: int
    planes: int
    rows: Options
    chunks: Options
    tiles: Options | None
    taps_unrolled: int
    blocks_first: bool
    planes_by_rows: bool
    data_at_once: bool
