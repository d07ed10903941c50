"""Windows of AMX: tiles of 16 pixels by 16 output channels. Their costs are in amx_cost.py.

A tile register holds 16 rows of 64 bytes. The instruction multiplies 16 pixels of 32 channels (rows a stride apart in
memory) with 32 channels of 16 outputs (rows of pairs), and adds to 16x16 f32 sums. Rows of an image are rarely a
multiple of 16 long, so tiles span their ends: in a copy of data with padded rows, a window's pixels are numbered consecutively,
and the 16 pixels of a tap are at a constant distance from those of the others. Pixels beyond a row's end are computed but not stored.

Along an axis with a stride, the copy has a part for each residue of coordinates, in which neighbouring outputs are neighbours;
but if the taps of the last axis meet all residues, it is copied in order, and a tile's rows are a stride of pixels apart.

With few channels, a row's taps are multiplied together (`row_taps`), because their channels are neighbours in the copy.

Integers form quads of 8 bits (quads.py), in the layout of pairs, and have sums of s32.

f32 and f16 are multiplied as sums of bf16 (terms.py): copies have a plane for each term, and a step multiplies several times.
The copies then choose the channels of a pair: two vectors of channels form one of pairs.
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
    """Return the terms of data and filter that a step multiplies, in an order in which those of the block's smaller side change least."""
    products = products_of(order)
    return products if block[0] <= block[1] else tuple((weight, value) for value, weight in products)


@dataclass(frozen=True)
class CopyAxis:
    """Layout of the copy of a task's data along one axis, of which the task computes `outputs`.

    Attributes
    ----------
    residues
        Residues of coordinates, each with a part of the copy.
    advance
        Distance between the elements of neighbouring outputs.
    reach
        Outputs whose elements the copy holds: computed ones, and those whose elements the taps of the last one meet.
    """

    axis: Axis
    outputs: int
    residues: int
    advance: int
    reach: int

    @staticmethod
    def of(axis: Axis, outputs: int, last: bool = False) -> CopyAxis:
        """Return the layout for so many outputs of an axis: by residues, or in order along the `last` axis if taps meet all residues."""
        starts = [axis.offset(phase) - axis.lowest for phase in range(axis.phases)]
        offsets = [start + k * axis.dilation for start in starts for k in range(axis.taps)]
        residues, reach = axis.stride // gcd(axis.stride, *offsets), outputs + max(offsets) // axis.stride
        if last and residues == axis.stride:
            return CopyAxis(axis, outputs, 1, axis.stride, reach)
        return CopyAxis(axis, outputs, residues, 1, reach)

    @property
    def extent(self) -> int:
        """Number of elements of each residue."""
        return self.reach * self.advance

    @property
    def apart(self) -> int:
        """Distance in data between neighbouring elements of a residue."""
        return self.axis.stride // self.advance

    def located(self, phase: Any, k: Any) -> tuple[Any, Any]:
        """Return the residue, and the element in it, that tap `k` of output 0 reads."""
        offset = self.axis.offset(phase) - self.axis.lowest + k * self.axis.dilation
        return offset % self.apart // (self.apart // self.residues), offset // self.apart

    def coordinate(self, start: Any, residue: Any, x: Any) -> Any:
        """Return data's coordinate of element `x` of a residue, if the first output is `start`."""
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
        Tiles of pixels, and of outputs, whose sums are in registers at a time.
    row_taps
        Whether a tile has channels of several taps along the last axis, which are contiguous in the copy of data: an instruction
        multiplies all 21 of 3 channels and 7 taps, not 3.
    product_order
        Order of products of terms: 0 for bf16.
    by_rows
        Whether each tile has pixels of one row, whose length is a multiple of the tile's rows: none is computed beyond a row's end.
    """

    rows: int = 1
    block: tuple[int, int] = (2, 2)
    row_taps: bool = False
    product_order: int = 0
    by_rows: bool = False

    @property
    def terms(self) -> int:
        """Number of bf16 terms that each number is multiplied as."""
        return self.product_order + 1

    @property
    def bands(self) -> int:
        """Number of bands along the first axis."""
        return -(-self.axes[0].outputs // self.rows)

    @property
    def in_place(self) -> bool:
        """Return whether tiles are loaded from data in place: one axis without padding, whose pixels are whole tiles of pairs."""
        return self._could_be_in_place and self.pairs == self.channels

    @property
    def _could_be_in_place(self) -> bool:
        one = len(self.axes) == 1 and not self.axes[0].padded and not self.row_taps
        flips = self.quads is not None and self.quads.flips_data
        return one and self.terms == 1 and reads_pairs(self.problem, self.vnni_factor) and not flips

    @property
    def taps(self) -> list[int]:
        """Taps along each axis that take separate multiplications."""
        taps = [axis.taps for axis in self.axes]
        return [*taps[:-1], 1] if self.row_taps else taps

    @property
    def _summed(self) -> int:
        """Pairs of channels of one of `taps`."""
        return self.channels * (self.axes[-1].taps if self.row_taps else 1)

    @cached_property
    def steps(self) -> int:
        """Multiplications of one of `taps`. With `row_taps` tiles are whole, as a further pair would be of another pixel."""
        least = -(-self._summed // SIDE)
        return next(each for each in divisors(self._summed, self._summed) if each >= least) if self.row_taps else least

    @cached_property
    def depth(self) -> int:
        """Pairs of channels in a tile; in a copy a power of two, so that no row of a tile crosses a cache line."""
        even = -(-self._summed // self.steps)
        if self.row_taps or (self._could_be_in_place and even * self.steps == self._summed):
            return even
        return 1 << (even - 1).bit_length()

    @cached_property
    def pairs(self) -> int:
        """Pairs of channels, including zeros in the last tile."""
        return self.steps * self.depth

    @cached_property
    def copy_axes(self) -> tuple[CopyAxis, ...]:
        """Layout of a band's copy along each axis."""
        outputs = [self.rows, *(axis.outputs for axis in self.axes[1:])]
        *first, last = zip(self.axes, outputs, strict=True)
        return (*(CopyAxis.of(*each) for each in first), CopyAxis.of(*last, last=True))

    @property
    def column_gap(self) -> int:
        """Distance in data between neighbouring columns of its copy."""
        return self.copy_axes[-1].apart

    @property
    def outer(self) -> tuple[CopyAxis, ...]:
        """All axes but the last two: at most one, whose outputs are separate."""
        return self.copy_axes[:-2]

    @property
    def flat(self) -> tuple[CopyAxis, ...]:
        """The last two axes, whose pixels are numbered consecutively."""
        return self.copy_axes[-2:]

    @cached_property
    def length(self) -> int:
        """Pixels of a residue of the copy, along the flat axes."""
        return prod(each.extent for each in self.flat)

    @cached_property
    def pixels(self) -> int:
        """Number of pixels that tiles compute: the stored ones by rows, else all from the first of them to the last."""
        *first, last = self.flat
        if self.by_rows:
            return prod(each.outputs for each in self.flat)
        return sum((each.outputs - 1) * last.reach for each in first) + last.outputs

    @cached_property
    def tile_rows(self) -> int:
        """Number of pixels in a tile."""
        if self.by_rows:
            return divisors(self.flat[-1].outputs, SIDE)[-1]
        return min(SIDE, -(-self.pixels // self.block[0]))

    @cached_property
    def tile_blocks(self) -> int:
        """Number of blocks of pixels. The last tiles are shifted inwards, to end with the pixels."""
        return -(-self.pixels // (self.tile_rows * self.block[0]))

    @cached_property
    def output_blocks(self) -> int:
        """Number of blocks of outputs."""
        return -(-self.outputs // (SIDE * self.block[1]))

    @cached_property
    def padded_outputs(self) -> int:
        """`outputs` rounded up to whole blocks."""
        return self.output_blocks * SIDE * self.block[1]

    @property
    def shifted(self) -> bool:
        """Return whether the last tiles of output channels are shifted inwards, to end with the channels."""
        return SIDE <= self.outputs < self.padded_outputs and self.problem.data_format == "NXC"

    @property
    def lanes_stored(self) -> int:
        """Lanes of a tile that are stored: fewer outputs than lanes are a single tile of a block."""
        return min(SIDE, self.outputs) if self.problem.data_format == "NXC" else SIDE

    @cached_property
    def stores_planes(self) -> bool:
        """Return whether tiles of terms are stored as rows of planes: one axis of channels-first outputs, all of them stored."""
        (*apart, axis) = self.flat
        planes = self.problem.data_format == "NCX" and not apart and axis.axis.always_inside and axis.axis.phases == 1
        together = axis.axis.store_index(0, 1) == axis.axis.store_index(0, 0) + 1
        return self.terms > 1 and planes and together and self.padded_outputs == self.outputs

    @cached_property
    def pixel(self) -> int:
        """Number of elements of a pixel in a group's copy of data."""
        return self.channels if self.row_taps else self.pairs

    @cached_property
    def multiplied(self) -> tuple[tuple[int, int], ...]:
        """The terms of data and filter that a step multiplies."""
        return multiplied_terms(self.product_order, self.block)

    @property
    def distance(self) -> int:
        """Distance between the channels of a pair of terms: two vectors of so many channels form one of pairs."""
        return gcd(self.problem.in_channels // self.problem.groups, self.pixel)

    @property
    def whole_elements(self) -> bool:
        """Return whether all elements of a copy of data have all their channels."""
        if self.terms == 1:
            return super().whole_elements
        return self.problem.in_channels // self.problem.groups == 2 * self.pixel

    @property
    def most_lanes(self) -> int:
        """Power of two of a pixel's neighbouring elements in the copy that consist of neighbouring channels."""
        return super().most_lanes if self.terms == 1 else self.distance & -self.distance

    @property
    def pairs_lie_together(self) -> bool:
        """Return whether a tile's pairs, all of them whole, are neighbours in a filter whose summed channels are neighbours."""
        if self.row_taps:
            return False
        if self.terms == 1:
            return self.steps == 1 or self.channels % self.depth == 0
        return self.whole_elements and self.distance % self.depth == 0

    def channels_of_pair(self, c: Expr) -> list[tuple[Expr, list[Expr]]]:
        """Return both channels of a pair of terms, each with the conditions under which it exists."""
        channels, apart = self.problem.in_channels // self.problem.groups, self.distance
        block, first = c // apart * 2, c // apart * 2 * apart + c % apart
        whole = channels == 2 * self.pixel
        return [(first + which * apart, [] if whole else [block + which < channels // apart]) for which in range(2)]

    @cached_property
    def copied_pairs(self) -> int:
        """Number of pairs in the copy of a band."""
        if self.in_place:
            return 0
        return (
            prod(each.residues for each in self.copy_axes)
            * prod(each.extent for each in self.outer)
            * self.length
            * self.pixel
            * self.terms
        )

    @cached_property
    def crossing_rows(self) -> float:
        """Part of the rows of tiles of data that cross a cache line."""
        row, problem = self.depth * PAIR_BYTES, self.problem
        apart = self.copy_axes[-1].advance * self.pixel * PAIR_BYTES
        if self.in_place:
            apart = self.axes[-1].stride * problem.in_channels * DTYPE_BYTES[problem.types.data]
        starts = [(pixel * apart + step * row) % LINE_BYTES for pixel in range(SIDE) for step in range(self.steps)]
        return sum(start + row > LINE_BYTES for start in starts) / len(starts)

    @cached_property
    def filter_bytes(self) -> int:
        """Bytes of a group's packed filter."""
        phases = prod(axis.phases for axis in self.axes)
        return PAIR_BYTES * self.terms * prod(self.taps) * phases * self.pairs * self.padded_outputs

    @cached_property
    def data_bytes(self) -> int:
        """Bytes of an image's and group's data that outputs read, by one tap each."""
        return (
            prod(axis.outputs for axis in self.axes)
            * self.channels
            * self.vnni_factor
            * DTYPE_BYTES[self.problem.types.data]
        )

    @property
    def chunks_first(self) -> bool:
        """Return whether the tasks of a thread share a part of the output channels, rather than data."""
        return self.filter_bytes > self.data_bytes and self.whole_lines

    @property
    def whole_lines(self) -> bool:
        """Return whether output pixels are whole cache lines, so that threads with different pixels share none."""
        return self.problem.out_channels % self.line_channels == 0

    @property
    def line_channels(self) -> int:
        """Number of output channels in a cache line."""
        return LINE_BYTES // DTYPE_BYTES[self.problem.types.output]

    def start(self, band: Expr) -> Expr:
        """Return the first output of a band."""
        return tirx.min(band * self.rows, self.axes[0].outputs - self.rows)

    def number(self, block: Expr, tile: Expr, row: Expr) -> Expr:
        """Return the number of the pixel of a row of a tile of a block, in the copy."""
        if self.by_rows:
            y, x = self._place(block, tile, row)
            return y * self.flat[-1].reach + x
        tiles, rows = self.block[0], self.tile_rows
        return tirx.min((block * tiles + tile) * rows, self.pixels - rows) + row

    def _place(self, block: Expr, tile: Expr, row: Expr) -> tuple[Expr, Expr]:
        """Return both coordinates of a pixel where tiles are `by_rows`; tiles beyond the last are the last again."""
        tiles, rows, columns = self.pixels // self.tile_rows, self.tile_rows, self.flat[-1].outputs // self.tile_rows
        number = tirx.min(block * self.block[0] + tile, tiles - 1)
        return number // columns, number % columns * rows + row

    def channel(self, block: Expr, vector: Expr, lane: Expr) -> Expr:
        """Return the output channel of a group of a lane of a tile of a block, before the last tiles are shifted."""
        return (block * self.block[1] + vector) * SIDE + lane

    def split(self, indices: Any) -> tuple[Any, Any, Any, Any]:
        """Return the phases, the band, the outer outputs, and the rest of the indices after the group."""
        rank, outer = len(self.axes), len(self.outer)
        return indices[:rank], indices[rank], indices[rank + 1 : rank + 1 + outer], indices[rank + 1 + outer :]

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and the condition under which it is inside (None: always)."""
        (n, g), (p, band, z, (tb, tile, row, *channel)) = indices[:2], self.split(indices[2:])
        o, last = self.channel(*channel), self.flat[-1]
        if self.by_rows:
            ys = [*z, *self._place(tb, tile, row)]
        else:
            q = self.number(tb, tile, row)
            ys = [*z, q // last.reach, q % last.reach] if len(self.flat) == 2 else [q]
        ys[0] = ys[0] + self.start(band)
        offset, bounds = store_index(self.problem, self.axes, self.outputs, [n, g, *p, *ys, self.output(o)])
        conditions = [] if bounds is None else [bounds]
        if len(self.flat) == 2 and last.reach > last.outputs and not self.by_rows:
            conditions.insert(0, ys[-1] < last.outputs)
        if self.padded_outputs != self.outputs and self.problem.data_format == "NCX":
            conditions.append(o < self.outputs)
        return offset, tirx.all(*conditions) if conditions else None
