"""Windows, the units of all direct algorithms: dense convolutions with regular distances between taps.

A convolution is one window; a transposed one has a window for each class of phases with equally many taps (backprop.py).
`express` (express.py) gives each the same five stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any, TypeVar

from ...annotations import PART
from ...pairs import element_type, lies_ready, reads_pairs
from ...quads import QuadTypes
from ...shapes import LEAST_SKIPPED, rotate
from ...subconvolution import Expr, SubConvolution, shift_last, store_index
from .plan import DirectPlan, GroupedPlan, WholeRows, WinogradPlan

TOGETHER = 4  # vectors of the filter that are packed together: more than most tiles have
# Most pixels for which reading the filter dominates: a core multiplies 12 numbers in the time of reading 4 bytes from L3 at 30 GB/s.
FEW_PIXELS = 256
# Most planes that a step of the sum reads in place: the channels that it unrolls (measured in benchmarks/results/coefficients.md).
FEW_PLANES = 4
# Least pixels for prefetching: fewer are multiplied by a line of 16 elements, at 16 products a cycle, in less time than its 64 bytes are
# read, at 8 a cycle, so that prefetches only compete with loads.
STREAMED_PIXELS = 8

Kind = TypeVar("Kind", bound="Window")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Window(SubConvolution):
    """A dense window of a (flattened) problem, and the layout of its channels in vector lanes.

    Attributes
    ----------
    lanes
        Lanes of a vector of output channels.
    across
        Whether lanes run across groups (depthwise and small groups) instead of within one.
    row
        Outputs computed along the last axis: `axes[-1].outputs`, or that rounded up for tiling.
    vnni_factor
        Channels in one element of the copies: 1 (f32), 2 (a pair of bf16, in VNNI layout, or of integers) or 4 (a quad).
    prepacked
        Whether the filter is prepacked, widened or transformed as a whole, so that packing takes no time.
    tile
        Outputs of a tile if the last tile of the row is shifted inwards, to end with the row. Where tiles overlap, outputs are computed and
        stored twice; nothing outside of the row is read or written. 0: outputs beyond the row are computed but not stored.
    shuffles
        Whether lanes across groups get their group's channels by shuffles of a pixel in registers.
    whole_image
        Whether a tile is the whole image by one vector of channels, so that the filter is read once.
    most_together
        Most vectors of output channels that are adjacent in the copy of the filter.
    large
        Whether the filter takes long to read in place: it is on many pages, or a tile's part of it in pieces.
    copied_whole
        Whether a filter with left-over lanes is copied as a whole, for many pixels: tasks with own copies would share work worse.
    packs_parts
        Whether each task copies the part of the filter for its next tiles, instead of reading the filter in place or from one copy.
    by_parts
        Whether tasks take the filter in parts, in the order of memory, and add the sums of each part to those before.
    rows_in_place
        Tasks whose parts are whole rows of the filter in place, with one tile of all pixels; pairs of bf16 are formed in registers.
        None: there are no such tasks.
    by_blocks
        Whether a task computes all its pixels of one block of output channels before the next block, and so reads the filter once.
    extra_vectors
        Vectors of output channels that are computed and stored twice, so that all vectors divide into good tiles.
    rounds_groups
        Whether lanes run across groups of bf16, whose sums are short, and the CPU has an instruction that rounds them.
    order
        The problem's axis of each of the window's axes, if the row is not the last axis. Empty: axes are in order.
    spread
        Whether each task copies its data, and the filter is packed, because neighbouring pixels share few sets of L1 in place.
    ordered
        Whether each sum adds its products one by one, by taps and then channels, on every CPU.
    quads
        Types that quads of integers are multiplied as; None: elements are no quads of integers.
    plans
        Plans of tasks and tiles, the best first (direct_plan.py); empty: not planned yet.
    """

    lanes: int
    across: bool
    row: int
    vnni_factor: int = 1
    prepacked: bool = False
    tile: int = 0
    shuffles: bool = False
    whole_image: bool = False
    most_together: int = TOGETHER
    large: bool = False
    copied_whole: bool = False
    packs_parts: bool = False
    by_blocks: bool = False
    extra_vectors: int = 0
    rounds_groups: bool = False
    order: tuple[int, ...] = ()
    by_parts: bool = False
    rows_in_place: WholeRows | None = None
    spread: bool = False
    ordered: bool = False
    quads: QuadTypes | None = None
    plans: tuple[DirectPlan | GroupedPlan | WinogradPlan, ...] = ()

    def as_kind(self, kind: type[Kind], **changes: Any) -> Kind:
        """Return the window as one of another kind, with changes and the fields of that kind."""
        values = {field.name: getattr(self, field.name) for field in fields(Window)}
        return kind(**{**values, **changes})

    @property
    def rounds(self) -> bool:
        """Return whether an instruction rounds sums to bf16, which flushes denormals to zero."""
        return (self.vnni_factor > 1 and not self.problem.is_quantized) or self.rounds_groups

    @property
    def groups(self) -> int:
        """Extent of the explicit group axis."""
        return 1 if self.across else self.problem.groups

    @property
    def channels(self) -> int:
        """Elements summed for one output and tap: channels, pairs or quads."""
        return -(-self.problem.in_channels // self.problem.groups // self.vnni_factor)

    @property
    def pixel(self) -> int:
        """Number of elements of a pixel of data, or of its copy."""
        return self.channels * (self.padded_outputs if self.expands else self.problem.groups)

    @property
    def whole_elements(self) -> bool:
        """Return whether all elements of a copy of data have all their channels."""
        return self.problem.in_channels // self.problem.groups % self.vnni_factor == 0

    @property
    def most_lanes(self) -> int:
        """Power of two of a pixel's neighbouring elements in the copy that consist of neighbouring channels: unlimited."""
        return 1 << 30

    def in_order(self, values: Sequence[Value]) -> list[Value]:
        """Return values of the window's axes in the order of the problem's axes."""
        return [values[self.order.index(axis)] for axis in range(len(values))] if self.order else list(values)

    @property
    def apart(self) -> int:
        """Number of pixels of an image between neighbours of a row."""
        return prod(self.problem.in_spatial[self.order[-1] + 1 :]) if self.order else 1

    @property
    def column_gap(self) -> int:
        """Distance in data between neighbouring columns of its copy."""
        return self.axes[-1].gap * self.apart

    @property
    def outputs(self) -> int:
        """Output channels of one step of the group axis."""
        return self.problem.out_channels // self.groups

    @property
    def padded_outputs(self) -> int:
        """`outputs` rounded up to whole vectors, including `extra_vectors`."""
        return (-(-self.outputs // self.lanes) + self.extra_vectors) * self.lanes

    @property
    def shifted(self) -> bool:
        """Return whether the last vectors are shifted to end with the output channels, as `tile` shifts those of a row."""
        return self.lanes < self.outputs < self.padded_outputs

    @property
    def excess(self) -> int:
        """Number of a row's elements that are computed but not stored."""
        return 0 if self.tile else self.row - self.axes[-1].outputs

    @property
    def row_extent(self) -> int:
        """Number of data coordinates along a row of its copy."""
        return self.axes[-1].extent + self.excess * self.axes[-1].stride

    def column(self, y: Expr) -> Expr:
        """Return the output of a row that element `y` computes."""
        return shift_last(y, self.tile, self.axes[-1].outputs) if self.tile else y

    def output(self, o: Expr) -> Expr:
        """Return the output channel of a group that lane `o`, counted over all vectors, computes."""
        return shift_last(o, self.lanes, self.outputs) if self.shifted else o

    def stored_channel(self, g: Expr, o: Expr) -> Expr:
        """Return the output channel that lane `o` of group `g` computes."""
        return g * self.outputs + self.output(o)

    @property
    def data_in_pairs(self) -> bool:
        """Return whether data itself consists of elements of `vnni_factor` channels."""
        return reads_pairs(self.problem, self.vnni_factor)

    @property
    def channels_in_filter(self) -> bool:
        """Return whether the summed channels are an axis of the filter."""
        return True

    def in_data(self, x: list[Expr], c: Expr) -> tuple[list[Expr], Expr]:
        """Return data's coordinates and channel, or pair if data consists of pairs, of the window's element `c` at `x`."""
        return self.in_order(x), c

    def filter_taps(self, phases: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
        """Return the filter's spatial indices of taps of phases."""
        return self.in_order(super().filter_taps(phases, taps))

    def data_bounds(self, x: list[Expr]) -> list[Expr]:
        """Return further conditions, beside the copy's, under which coordinates of `in_data` are not in the padding: none."""
        return []

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return the filter's indices of the weight of a tap, channel `c` and output `o` of group `g`."""
        if self.across and self.problem.op != "convolution":
            per_group = self.problem.out_channels // self.problem.groups
            g, o = o // per_group, o % per_group
        return super().filter_indices(g, phases, taps, c, o)

    @property
    def expands(self) -> bool:
        """Return whether data is copied with a channel for each lane: its own group's, or zeros for left-over lanes."""
        depthwise = self.problem.out_channels == self.problem.groups and self.channels == 1
        whole = self.shifted or self.padded_outputs == self.outputs
        return self.across and not self.shuffles and not (depthwise and whole)

    @property
    def element_type(self) -> str:
        """Type of the copies' elements."""
        return element_type(self.problem, self.vnni_factor)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the copies."""
        return 8 if self.element_type == "uint64" else 4

    @property
    def stages_data(self) -> bool:
        """Return whether data is padded, widened or transposed before it is read."""
        return (
            any(axis.padded for axis in self.axes)
            or self.excess > 0
            or not lies_ready(self.problem, self.vnni_factor, self.data_in_pairs)
            or (self.problem.data_format == "NCX" and not self.reads_planes)
            or self.expands
            or self.spread
            or (self.quads is not None and self.quads.flips_data)
        )

    @property
    def reads_planes(self) -> bool:
        """Return whether planes of data are read in place: there are no more than the sum unrolls."""
        return self.problem.in_channels <= (1 if self.across else FEW_PLANES)

    @property
    def copied_once(self) -> bool:
        """Return whether data is copied before all tasks, not by each: planes are transposed, and several tasks read each."""
        several = any(axis.span > axis.stride for axis in self.axes[:-2])
        return self.problem.data_format == "NCX" and not self.across and several

    @property
    def skips_rows(self) -> bool:
        """Return whether sums, and the copy of data, skip rows of padding along any axis but the last."""
        return self._may_skip and self.stages_data and any(axis.padded for axis in self.axes[:-1])

    @property
    def skips_columns(self) -> bool:
        """Return whether sums skip products with columns of padding that whole tiles read."""
        axis = self.axes[-1]
        behind = axis.lowest + self.row_extent - axis.inputs
        return self._may_skip and self.stages_data and max(-axis.lowest, behind) >= LEAST_SKIPPED

    @property
    def _may_skip(self) -> bool:
        """Return whether sums over a copy may have conditions on padding; across groups only if most products are with padding."""
        mostly = 2 * prod(axis.met for axis in self.axes) <= 1 and not (self.shuffles or self.expands)
        return (not self.across or self.spread or mostly) and not self.sums_filter

    @property
    def sums_filter(self) -> bool:
        """Return whether data is multiplied with its zero point, whose product with the filter's sum is subtracted from sums."""
        return self.quads is not None and self.quads.zero_point != 0

    @property
    def stores_apart(self) -> bool:
        """Return whether neighbouring outputs of a row are not neighbours in a plane of the output."""
        axis = self.axes[-1]
        return axis.phases > 1 or axis.store_index(0, 1) > axis.store_index(0, 0) + 1

    @property
    def stores_rows(self) -> bool:
        """Return whether all neighbouring outputs of a row are stored as neighbours of a planar output."""
        last = not self.order or prod(self.problem.out_spatial[self.order[-1] + 1 :]) == 1
        return self.stores_planes and last and not self.stores_apart

    @property
    def stores_planes(self) -> bool:
        """Return whether all computed outputs of a row are stored, so that vectors of channels can be transposed to rows."""
        return self.axes[-1].always_inside and not self.excess and self.stored == self.padded_outputs

    @property
    def stages_filter(self) -> bool:
        """Return whether the filter is packed: lanes are not its fastest index, are left over, or need widening across groups.

        Across groups, vectors of the filter are used only by the pixels of one tile, so each tile would widen them again.
        """
        backwards = self.problem.filter_format == "XIO" and self.across and not self.expands
        fastest_is_lane = self.reads_rows or backwards
        left_over = self.padded_outputs != self.outputs and (self.copied_whole or not self.shifted)
        widened = self.across and self.problem.dtype != "f32"
        pairs = self.vnni_factor > 1 and self.rows_in_place is None
        copied = self.prepacked or self.packs_parts or widened or self.spread
        return not fastest_is_lane or left_over or self.shuffles or pairs or copied

    @property
    def sums_lie_together(self) -> bool:
        """Return whether the channels that an output sums are contiguous in the filter, and lanes are not."""
        forward, one_tap = self.problem.op == "convolution", all(axis.taps * axis.phases == 1 for axis in self.axes)
        if self.problem.filter_format == "OIX":
            return forward and one_tap and not self.shuffles and self.channels_in_filter
        return not forward and not self.across

    @property
    def taps_are_columns(self) -> bool:
        """Return whether several taps of neighbouring channels are contiguous in the filter, as a row for each lane."""
        problem, taps = self.problem, prod(self.problem.kernel)
        in_order = problem.op == "convolution" and problem.filter_format == "OIX" and not self.order
        whole = self.stored == self.padded_outputs and [axis.taps for axis in self.axes] == list(problem.kernel)
        others = problem.is_quantized or self.across or self.shuffles
        by_channel = self.vnni_factor == 1 and self.channels_in_filter and not others
        return in_order and whole and by_channel and taps > 1 and self.channels * taps >= PART

    @property
    def taps_lie_together(self) -> bool:
        """Return whether several taps of an output channel, but not channels, are contiguous: in a transposed OIX filter."""
        transposed = self.problem.op != "convolution" and self.problem.filter_format == "OIX"
        apart = self.across or self.shuffles or self.problem.is_quantized
        return transposed and prod(self.problem.kernel) > 1 and not apart

    @property
    def reads_rows(self) -> bool:
        """Return whether the filter consists of rows of all output channels, so that vectors are contiguous."""
        return self.problem.filter_format == "XIO" and self.problem.op == "convolution"

    @property
    def summed_taps(self) -> int:
        """Number of taps of a phase whose products are added in registers before a sum is stored."""
        return prod(axis.taps for axis in self.axes)

    @property
    def pixels(self) -> int:
        """Number of outputs of one channel and one phase of each axis."""
        return self.problem.batch * prod(axis.outputs for axis in self.axes)

    @property
    def few_pixels(self) -> bool:
        """Return whether reading the filter costs much beside multiplying it."""
        return self.pixels <= FEW_PIXELS

    @property
    def streams_filter(self) -> bool:
        """Return whether tiles prefetch the filter of the next block of channels."""
        return self.by_blocks and not self.packs_parts and self.pixels >= STREAMED_PIXELS

    @property
    def stores_vectors(self) -> bool:
        """Return whether whole vectors of output channels are contiguous in the output."""
        return self.problem.data_format == "NXC" and (self.shifted or self.padded_outputs == self.outputs)

    @property
    def stored_together(self) -> int:
        """Number of a group's output channels that are contiguous in a pixel of the output."""
        return self.outputs

    @property
    def stored(self) -> int:
        """Number of output channels of `out`."""
        return self.padded_outputs if self.shifted else self.outputs

    def summed(self, c: Expr, o: Expr) -> Expr:
        """Return the `c`-th element (channel, pair or quad) that output channel `o` sums."""
        return rotate(c, o, self.channels, self.problem.out_channels // self.problem.groups) if self.shuffles else c

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and the condition under which it is inside (None: always)."""
        rank = len(self.axes)
        phases, outputs = indices[2 : 2 + rank], [*indices[2 + rank : -2], self.column(indices[-2])]
        at = [*indices[:2], *self.in_order(phases), *self.in_order(outputs), self.output(indices[-1])]
        return store_index(self.problem, tuple(self.in_order(self.axes)), self.outputs, at)
