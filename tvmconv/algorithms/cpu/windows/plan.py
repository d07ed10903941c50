"""A plan: how a window is cut into tasks and tiles, and in which order they are taken.

The cost model decides it once (direct_plan.py, grouped_plan.py, planar_plan.py, winograd_plan.py). The estimate counts the events of the first plan of a window; the schedule does
what each says; a tuned record is a plan whose choices are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

Options = tuple[Sequence[int], int]  # what may be chosen, and the default


@dataclass(frozen=True)
class DirectPlan:
    """Tasks and tiles of a window whose lanes run within a group.

    Attributes
    ----------
    vectors, tiles, unrolls
        Vectors of channels of a tile; its pixels, and the channels of a step, that may be chosen.
    chunks, rows
        Parts of the output channels; rows of a task, 1 where there is one axis.
    tap_by_tap
        Whether a task takes all its rows of one tap before the next, and its sums wait in memory.
    rows_first
        Whether threads share rows, of all output channels, before channels.
    by_phase
        Whether a task has one phase: the filter of all of them leaves L2 before the next rows use it.
    by_blocks
        Whether a task takes all its tiles of a block of channels before the next block. Of one axis it has then a part of
        the row, one of `parts`, of `images` images; else a tile.
    pixel_parts
        Into how many parts threads share the only row, of planes, before channels; 1: they share channels.
    groups_together
        Whether tasks take all groups of a few pixels before the next.
    filter_at_once
        Whether a task copies its part of the filter as one, not block by block.
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
        Tasks, each of which sums the products of as many rows, one after the other in memory.
    rows
        Of a part: for each of their products, a tile's sums are in registers.
    vectors
        Of a tile.
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
        As of `DirectPlan`.
    taps_unrolled, taps_together
        Taps along the row in a loop's body, and how many of others lowering takes together: 0 where it takes them one by one.
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
    """A tile of registers of Winograd's products: `vectors` of output channels for `rows` x `columns` tiles."""

    vectors: int
    rows: int
    columns: int

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return self.rows * self.columns


class TaskPart(NamedTuple):
    """Part of a window for a task: `images`, `band` times a tile of registers' rows, and `columns` of tiles."""

    images: int
    band: int
    columns: int


@dataclass(frozen=True)
class WinogradPlan:
    """Order of the products of a window that is cut into Winograd's tiles.

    Attributes
    ----------
    by_rows
        Whether a task is some rows of tiles, and takes all output channels, or some output channels, and takes some rows of all.
    shape
        The tile of registers.
    images, bands, strips, unrolls
        Outputs of the first axis that a task has, how many times a tile of registers' rows, and columns of tiles; channels of a
        step.
    filter_parts
        By channels: into how many parts of input channels a task's filters are cut.
    prefetches
        By channels: whether a block's products prefetch the filter of the next.
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
        Output channels of a tile; its vectors of a row, that may be chosen; its rows, which share loads.
    planes
        Of several axes, how many groups' data a task copies before it multiplies.
    rows, chunks
        Of several axes how many times `tile_rows` a task has; of one, into how many parts tasks cut the channels.
    tiles
        How many tiles of the only row a task has, whose data it copies once; None: one.
    taps_unrolled
        Taps along the row in a loop's body.
    blocks_first
        Whether a task takes all rows of a block of channels before the next block.
    planes_by_rows
        Whether it takes all tiles of a row of a block before the next block, else all blocks of a tile before the next tile.
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
