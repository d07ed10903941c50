"""Windows of AMX: tiles of 16 pixels by 16 output channels. Their costs are in amx_cost.py.

A tile register holds 16 rows of 64 bytes. The instruction multiplies 16 pixels of 32 channels (rows a stride apart in
memory) with 32 channels of 16 outputs (rows of pairs), and adds to 16x16 f32 sums. Rows of an image are rarely a
multiple of 16 long, so tiles take no notice of where they end: in a copy of data whose rows are as long as padding makes
them, a window's pixels are numbered through, and each tap finds 16 neighbouring ones at a constant distance. Those at a
row's end, which reach into the next, are computed and not stored.

Along an axis with a stride, the copy has a part for each residue of coordinates, in which neighbouring outputs are neighbours;
but the last axis, if its taps meet all residues, is copied in order, and a tile's rows are a stride of pixels apart.

Where channels are few, a row's taps are multiplied together (`row_taps`): in such a copy their channels are neighbours.

Integers are quads of 8 bits (quads.py), which lie as pairs do, and have sums of s32.

f32 and f16 are multiplied as sums of bf16 (terms.py): copies have a plane of each term, and a step multiplies several times.
Which channels are a pair is then for the copies to say: two vectors of channels make one of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any

from tvm import tirx

from ...dtypes import DTYPE_BYTES
from ...isa.x86.amx import TILES as AMX
from ...targets.cpus import LINE_BYTES
from ..pairs import reads_pairs
from ..shapes import divisors
from ..subconvolution import Axis, Expr, store_index
from ..terms import products_of
from .windows.window import Window

PAIR_BYTES = 4
SIDE = AMX.side


def multiplied_terms(order: int, block: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return the terms of data and of the filter that a step of a block multiplies: those that stay in registers first change last."""
    products = products_of(order)
    return products if block[0] <= block[1] else tuple((weight, value) for value, weight in products)


@dataclass(frozen=True)
class CopyAxis:
    """Layout of the copy of a task's data along one axis, of which the task computes `outputs`.

    Attributes
    ----------
    residues
        Residues of coordinates that it is split by.
    advance
        Elements from an output's to the next one's.
    reach
        Outputs that it holds the elements of: those that are computed, and those whose elements the last one's taps meet.
    """

    axis: Axis
    outputs: int
    residues: int
    advance: int
    reach: int

    @staticmethod
    def of(axis: Axis, outputs: int, last: bool = False) -> CopyAxis:
        """Return how the data of so many outputs of an axis lies: by residues, or in order along the `last` if it has them all."""
        starts = [axis.offset(phase) - axis.lowest for phase in range(axis.phases)]
        offsets = [start + k * axis.dilation for start in starts for k in range(axis.taps)]
        residues, reach = axis.stride // gcd(axis.stride, *offsets), outputs + max(offsets) // axis.stride
        if last and residues == axis.stride:
            return CopyAxis(axis, outputs, 1, axis.stride, reach)
        return CopyAxis(axis, outputs, residues, 1, reach)

    @property
    def extent(self) -> int:
        """Elements of each residue."""
        return self.reach * self.advance

    @property
    def apart(self) -> int:
        """Coordinates from an element of a residue to the next."""
        return self.axis.stride // self.advance

    def located(self, phase: Any, k: Any) -> tuple[Any, Any]:
        """Return the residue, and the element in it, of what the tap `k` of output 0 reads."""
        offset = self.axis.offset(phase) - self.axis.lowest + k * self.axis.dilation
        return offset % self.apart // (self.apart // self.residues), offset // self.apart

    def coordinate(self, start: Any, residue: Any, x: Any) -> Any:
        """Return data's coordinate of element `x` of a residue, where the first output is `start`."""
        first = self.axis.lowest + start * self.axis.stride + residue * (self.apart // self.residues)
        return first + x * self.apart


@dataclass(frozen=True)
class AmxWindow(Window):
    """A window cut into blocks of tiles.

    Attributes
    ----------
    rows
        Outputs of a band along the first axis. The last band is shifted inwards, to end with the axis.
    block
        Tiles of pixels and of outputs whose sums are in registers together.
    row_taps
        Whether a tile has channels of several taps along the last axis, which lie together in the copy of data: of 3 channels
        and 7 taps an instruction multiplies all, not 3.
    product_order
        Up to which order products of terms are added: 0 of bf16.
    """

    rows: int = 1
    block: tuple[int, int] = (2, 2)
    row_taps: bool = False
    product_order: int = 0

    @property
    def terms(self) -> int:
        """Number of bf16 terms that each number is multiplied as."""
        return self.product_order + 1

    @property
    def bands(self) -> int:
        """Bands along the first axis."""
        return -(-self.axes[0].outputs // self.rows)

    @property
    def in_place(self) -> bool:
        """Return whether tiles can be loaded from data: one axis, and pixels of whole pairs from first to last."""
        return self._could_be_in_place and self.pairs == self.channels

    @property
    def _could_be_in_place(self) -> bool:
        one = len(self.axes) == 1 and not self.axes[0].padded and not self.row_taps
        flips = self.quads is not None and self.quads.flips_data
        return one and self.terms == 1 and reads_pairs(self.problem, self.vnni_factor) and not flips

    @property
    def taps(self) -> list[int]:
        """Taps along each axis whose channels are multiplied one after the other."""
        taps = [axis.taps for axis in self.axes]
        return [*taps[:-1], 1] if self.row_taps else taps

    @property
    def _summed(self) -> int:
        """Pairs that are multiplied one after the other for one of `taps`."""
        return self.channels * (self.axes[-1].taps if self.row_taps else 1)

    @property
    def steps(self) -> int:
        """Multiplications of one of `taps`. Those of a row's taps fill whole tiles: a pair more would be of another pixel."""
        least = -(-self._summed // SIDE)
        return next(each for each in divisors(self._summed, self._summed) if each >= least) if self.row_taps else least

    @property
    def depth(self) -> int:
        """Pairs of channels in a tile: in a copy as many as let no row of a tile reach into another cache line."""
        even = -(-self._summed // self.steps)
        if self.row_taps or (self._could_be_in_place and even * self.steps == self._summed):
            return even
        return 1 << (even - 1).bit_length()

    @property
    def pairs(self) -> int:
        """Pairs of channels with those of zeros that fill the last tile."""
        return self.steps * self.depth

    @cached_property
    def copy_axes(self) -> tuple[CopyAxis, ...]:
        """Layout of a band's copy along each axis."""
        outputs = [self.rows, *(axis.outputs for axis in self.axes[1:])]
        *first, last = zip(self.axes, outputs, strict=True)
        return (*(CopyAxis.of(*each) for each in first), CopyAxis.of(*last, last=True))

    @property
    def column_gap(self) -> int:
        """Distance in data between columns that lie together in its copy."""
        return self.copy_axes[-1].apart

    @property
    def outer(self) -> tuple[CopyAxis, ...]:
        """The axis whose outputs are apart, of three."""
        return self.copy_axes[:-2]

    @property
    def flat(self) -> tuple[CopyAxis, ...]:
        """The axes whose pixels are numbered through: the last two."""
        return self.copy_axes[-2:]

    @property
    def length(self) -> int:
        """Elements of a residue of the copy, along the flat axes."""
        return prod(each.extent for each in self.flat)

    @property
    def pixels(self) -> int:
        """Pixels that tiles compute: from the first that is stored to the last."""
        *first, last = self.flat
        return sum((each.outputs - 1) * last.reach for each in first) + last.outputs

    @property
    def tile_rows(self) -> int:
        """Pixels in a tile."""
        return min(SIDE, -(-self.pixels // self.block[0]))

    @property
    def tile_blocks(self) -> int:
        """Blocks of tiles of pixels. The last tiles are shifted inwards, to end with the pixels."""
        return -(-self.pixels // (self.tile_rows * self.block[0]))

    @property
    def output_blocks(self) -> int:
        """Blocks of tiles of outputs."""
        return -(-self.outputs // (SIDE * self.block[1]))

    @property
    def padded_outputs(self) -> int:
        """`outputs` rounded up to whole blocks."""
        return self.output_blocks * SIDE * self.block[1]

    @property
    def shifted(self) -> bool:
        """Return whether the last tiles of output channels are shifted inwards, to end with the channels."""
        return SIDE <= self.outputs < self.padded_outputs and self.problem.data_format == "NXC"

    @property
    def lanes_stored(self) -> int:
        """Lanes of a tile that are stored as they lie: where there are fewer outputs, for which a block has one such tile, these."""
        return min(SIDE, self.outputs) if self.problem.data_format == "NXC" else SIDE

    @property
    def stores_planes(self) -> bool:
        """Return whether a tile's pixels, all stored, are neighbours in the planes of a planar output of one axis."""
        (*apart, axis) = self.flat
        planes = self.problem.data_format == "NCX" and not apart and axis.axis.always_inside and axis.axis.phases == 1
        together = axis.axis.store_index(0, 1) == axis.axis.store_index(0, 0) + 1
        return self.terms > 1 and planes and together and self.padded_outputs == self.outputs

    @property
    def pixel(self) -> int:
        """Elements of a pixel of a group's copy of data."""
        return self.channels if self.row_taps else self.pairs

    @property
    def multiplied(self) -> tuple[tuple[int, int], ...]:
        """The terms of data and of the filter that a step multiplies."""
        return multiplied_terms(self.product_order, self.block)

    @property
    def distance(self) -> int:
        """Channels from a pair's first to its second, of terms: vectors of as many channels make one of pairs."""
        return gcd(self.problem.in_channels // self.problem.groups, self.pixel)

    @property
    def whole_elements(self) -> bool:
        """Return whether each element of a copy of data has all its channels."""
        if self.terms == 1:
            return super().whole_elements
        return self.problem.in_channels // self.problem.groups == 2 * self.pixel

    @property
    def most_lanes(self) -> int:
        """Neighbouring elements of a pixel's copy that are made of neighbouring channels, as a power of two."""
        return super().most_lanes if self.terms == 1 else self.distance & -self.distance

    @property
    def pairs_lie_together(self) -> bool:
        """Return whether a tile's pairs are neighbours in a filter whose summed channels are, in whole tiles."""
        if self.row_taps:
            return False
        if self.terms == 1:
            return self.steps == 1 or self.channels % self.depth == 0
        return self.whole_elements and self.distance % self.depth == 0

    def channels_of_pair(self, c: Expr) -> list[tuple[Expr, list[Expr]]]:
        """Return both channels of a pair of terms, each with the conditions under which there is such a channel."""
        channels, apart = self.problem.in_channels // self.problem.groups, self.distance
        block, first = c // apart * 2, c // apart * 2 * apart + c % apart
        whole = channels == 2 * self.pixel
        return [(first + which * apart, [] if whole else [block + which < channels // apart]) for which in range(2)]

    @property
    def copied_pairs(self) -> int:
        """Pairs in the copy of a band."""
        if self.in_place:
            return 0
        return (
            prod(each.residues for each in self.copy_axes)
            * prod(each.extent for each in self.outer)
            * self.length
            * self.pixel
            * self.terms
        )

    @property
    def filter_bytes(self) -> int:
        """Bytes of the filter of a group, as it is packed."""
        phases = prod(axis.phases for axis in self.axes)
        return PAIR_BYTES * self.terms * prod(self.taps) * phases * self.pairs * self.padded_outputs

    @property
    def data_bytes(self) -> int:
        """Bytes of the data of an image and group that outputs read, each counted once."""
        return (
            prod(axis.outputs for axis in self.axes)
            * self.channels
            * self.vnni_factor
            * DTYPE_BYTES[self.problem.types.data]
        )

    @property
    def chunks_first(self) -> bool:
        """Return whether a thread's tasks share a part of the output channels, rather than data."""
        return self.filter_bytes > self.data_bytes and self.whole_lines

    @property
    def whole_lines(self) -> bool:
        """Return whether an output pixel ends with a cache line, so that threads with other pixels write others."""
        return self.problem.out_channels % self.line_channels == 0

    @property
    def line_channels(self) -> int:
        """Output channels in a cache line."""
        return LINE_BYTES // DTYPE_BYTES[self.problem.types.output]

    def start(self, band: Expr) -> Expr:
        """Return the first output of a band."""
        return tirx.min(band * self.rows, self.axes[0].outputs - self.rows)

    def number(self, block: Expr, tile: Expr, row: Expr) -> Expr:
        """Return the number of the pixel that a row of a tile of a block computes."""
        tiles, rows = self.block[0], self.tile_rows
        return tirx.min((block * tiles + tile) * rows, self.pixels - rows) + row

    def channel(self, block: Expr, vector: Expr, lane: Expr) -> Expr:
        """Return the output channel of a group that a lane of a tile of a block computes, before the last are shifted."""
        return (block * self.block[1] + vector) * SIDE + lane

    def split(self, indices: Any) -> tuple[Any, Any, Any, Any]:
        """Return the phases, the band, the outer outputs, and the rest of indices behind the group."""
        rank, outer = len(self.axes), len(self.outer)
        return indices[:rank], indices[rank], indices[rank + 1 : rank + 1 + outer], indices[rank + 1 + outer :]

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and where it is inside the output (None: always)."""
        (n, g), (p, band, z, (tb, tile, row, *channel)) = indices[:2], self.split(indices[2:])
        q, o = self.number(tb, tile, row), self.channel(*channel)
        last = self.flat[-1]
        ys = [*z, q // last.reach, q % last.reach] if len(self.flat) == 2 else [q]
        ys[0] = ys[0] + self.start(band)
        offset, bounds = store_index(self.problem, self.axes, self.outputs, [n, g, *p, *ys, self.output(o)])
        conditions = [] if bounds is None else [bounds]
        if len(self.flat) == 2 and last.reach > last.outputs:
            conditions.insert(0, ys[-1] < last.outputs)
        if self.padded_outputs != self.outputs and self.problem.data_format == "NCX":
            conditions.append(o < self.outputs)
        return offset, tirx.all(*conditions) if conditions else None
