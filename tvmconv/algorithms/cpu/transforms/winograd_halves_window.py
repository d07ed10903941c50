"""Winograd's tiles as AMX multiplies them: the matrices of each point are cut as those of other windows (amx_window.py).

A band is some rows of Winograd's tiles, numbered through. They fill whole blocks of tile registers: what is behind a band's own is
computed and not stored. Two vectors of channels make one of pairs, as in other copies by halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tvm import tirx

from ....targets.cpus import LINE_BYTES
from ...shapes import divisors
from ...subconvolution import Expr
from ..amx_window import PAIR_BYTES, SIDE, multiplied_terms
from ..windows.window import Window
from .winograd_tiles import WinogradWindow, as_tiled, tilings_of

HALVES = 2


@dataclass(frozen=True)
class WinogradHalvesWindow(WinogradWindow):
    """A window cut into Winograd's tiles, and these into blocks of tile registers.

    Attributes
    ----------
    bands
        Bands of rows of Winograd's tiles.
    band
        Rows of Winograd's tiles in each.
    block
        Tile registers, of Winograd's tiles and of outputs, whose sums are held together.
    """

    bands: int = 1
    band: int = 1
    block: tuple[int, int] = (2, 2)

    @cached_property
    def own(self) -> int:
        """Tiles of a band that it stores."""
        return self.band * self.columns

    @cached_property
    def tiles_in_line(self) -> int:
        """Tiles of a row that are stored together: of a planar output those of a line."""
        if self.problem.data_format == "NXC":
            return 1
        return divisors(self.columns, LINE_BYTES // 4 // self.tilings[1].outputs)[-1]

    @cached_property
    def tile_rows(self) -> int:
        """Winograd's tiles in a tile register."""
        registers = -(-self.own // (SIDE * self.block[0])) * self.block[0]
        together = self.tiles_in_line
        return min(-(-self.own // (registers * together)), SIDE // together) * together

    @cached_property
    def tile_blocks(self) -> int:
        """Blocks of tile registers of a band."""
        return -(-self.own // (self.block[0] * self.tile_rows))

    @property
    def numbered(self) -> tuple[int, int]:
        """Bands, and the tiles that each computes."""
        return self.bands, self.tile_blocks * self.block[0] * self.tile_rows

    def row_and_column(self, tile: Sequence[Expr]) -> tuple[Expr, Expr]:
        """Return the row and the column of a tile, by its band and its number there."""
        band, number = tile
        return band * self.band + number // self.columns, number % self.columns

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and where it is inside the output and the band's own."""
        offset, inside = super().store_index(indices)
        if self.numbered[1] == self.own:
            return offset, inside
        own = indices[-4] // self.columns < self.band
        return offset, own if inside is None else tirx.all(own, inside)

    @property
    def pairs(self) -> int:
        """Pairs of channels of a group."""
        return self.channels // HALVES

    @cached_property
    def depth_of_step(self) -> int:
        """Pairs in a tile register: they divide a group's."""
        return divisors(self.pairs, SIDE)[-1]

    @property
    def steps(self) -> int:
        """Multiplications of one tile of sums."""
        return self.pairs // self.depth_of_step

    @property
    def distance(self) -> int:
        """Channels from a pair's first to its second: vectors of as many make one of pairs."""
        return self.depth_of_step & -self.depth_of_step

    def channels_of_pair(self, c: Expr) -> list[Expr]:
        """Return both channels of a pair."""
        first = c // self.distance * (HALVES * self.distance) + c % self.distance
        return [first, first + self.distance]

    @property
    def multiplied(self) -> tuple[tuple[int, int], ...]:
        """The halves of data and of the filter that a step multiplies."""
        return multiplied_terms(HALVES - 1, self.block)

    @property
    def output_blocks(self) -> int:
        """Blocks of tile registers of outputs."""
        return self.padded_outputs // (SIDE * self.block[1])

    @property
    def point_bytes(self) -> int:
        """Bytes of the filter of a group at one point, both halves: of one tap of the first axis."""
        return PAIR_BYTES * HALVES * self.pairs * self.padded_outputs

    @cached_property
    def filter_bytes(self) -> int:
        """Bytes of the transformed filter."""
        return self.points * self.phases * self.depth * self.groups * self.point_bytes


def halves_window(window: Window, points: int, band: int, block: tuple[int, int]) -> WinogradHalvesWindow:
    """Return a window of three axes cut into tiles of `points` points along the last two, and into bands and blocks."""
    rows, columns = tilings_of(window, points)
    vectors = -(-window.outputs // SIDE)
    cut = {
        "lanes": SIDE,
        "extra_vectors": -vectors % block[1],
        "bands": -(-rows.tiles // band),
        "band": band,
        "block": block,
    }
    made = window.as_kind(WinogradHalvesWindow, **cut, **as_tiled(window, (rows, columns)))
    # Rows behind the last band's own are read, too.
    dilation = rows.axis.dilation
    reached = (made.bands - 1) * band + -(-made.numbered[1] // columns.tiles)
    reached = -(-max(rows.tiles, reached) // dilation) * dilation
    return replace(made, **as_tiled(window, (replace(rows, tiles=reached), columns)))
