"""Winograd's tiles for AMX: the matrices of each point are cut into tile registers, as those of other windows (amx_window.py).

A band is some rows of Winograd's tiles, numbered consecutively. Bands are computed in whole blocks of tile registers; tiles beyond a band's
own are not stored. Two vectors of channels form one of pairs, as in other copies by terms.
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
        Number of bands.
    band
        Rows of Winograd's tiles in a band.
    block
        Tile registers along Winograd's tiles, and along outputs, whose sums are held at a time.
    """

    bands: int = 1
    band: int = 1
    block: tuple[int, int] = (2, 2)

    @cached_property
    def own(self) -> int:
        """Number of a band's own tiles, which are stored."""
        return self.band * self.columns

    @cached_property
    def tiles_in_line(self) -> int:
        """Number of tiles of a row that are stored at a time: for planar outputs those of a cache line."""
        if self.problem.data_format == "NXC":
            return 1
        return divisors(self.columns, LINE_BYTES // 4 // self.tilings[1].outputs)[-1]

    @cached_property
    def tile_rows(self) -> int:
        """Number of Winograd's tiles in a tile register."""
        registers = -(-self.own // (SIDE * self.block[0])) * self.block[0]
        together = self.tiles_in_line
        return min(-(-self.own // (registers * together)), SIDE // together) * together

    @cached_property
    def tile_blocks(self) -> int:
        """Number of blocks of tile registers of a band."""
        return -(-self.own // (self.block[0] * self.tile_rows))

    @property
    def numbered(self) -> tuple[int, int]:
        """Number of bands, and of the tiles that each computes."""
        return self.bands, self.tile_blocks * self.block[0] * self.tile_rows

    def row_and_column(self, tile: Sequence[Expr]) -> tuple[Expr, Expr]:
        """Return the row and the column of a tile, by its band and its number there."""
        band, number = tile
        return band * self.band + number // self.columns, number % self.columns

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and the condition under which it is inside and the band's own."""
        offset, inside = super().store_index(indices)
        if self.numbered[1] == self.own:
            return offset, inside
        own = indices[-4] // self.columns < self.band
        return offset, own if inside is None else tirx.all(own, inside)

    @property
    def pairs(self) -> int:
        """Number of pairs of channels of a group."""
        return self.channels // HALVES

    @cached_property
    def depth_of_step(self) -> int:
        """Number of pairs in a tile register, a divisor of a group's."""
        return divisors(self.pairs, SIDE)[-1]

    @property
    def steps(self) -> int:
        """Number of multiplications of a tile of sums."""
        return self.pairs // self.depth_of_step

    @property
    def distance(self) -> int:
        """Distance between the channels of a pair: two vectors of so many channels form one of pairs."""
        return self.depth_of_step & -self.depth_of_step

    def channels_of_pair(self, c: Expr) -> list[Expr]:
        """Return both channels of a pair."""
        first = c // self.distance * (HALVES * self.distance) + c % self.distance
        return [first, first + self.distance]

    @property
    def multiplied(self) -> tuple[tuple[int, int], ...]:
        """The halves of data and filter that a step multiplies."""
        return multiplied_terms(HALVES - 1, self.block)

    @property
    def output_blocks(self) -> int:
        """Number of blocks of outputs."""
        return self.padded_outputs // (SIDE * self.block[1])

    @property
    def point_bytes(self) -> int:
        """Bytes of a group's filter at one point and tap of the first axis, of both halves."""
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
    # Rows beyond the last band's own are read, too.
    dilation = rows.axis.dilation
    reached = (made.bands - 1) * band + -(-made.numbered[1] // columns.tiles)
    reached = -(-max(rows.tiles, reached) // dilation) * dilation
    return replace(made, **as_tiled(window, (replace(rows, tiles=reached), columns)))
