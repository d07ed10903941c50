"""The windows of every direct algorithm: dense stride windows over channel-last tiles.

A convolution is one window; a transposed one is a few, one for each class of phases with equally many taps (backprop.py).
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

TOGETHER = 4  # vectors of the filter: more than most tiles have
# An element of a filter of fewer pixels takes long to read: a core multiplies 12 in the time of 4 bytes from L3 at 30 GB/s.
FEW_PIXELS = 256
# A step of the sum unrolls so many channels, which it reads in place (measured in benchmarks/results/coefficients.md).
FEW_PLANES = 4
# Fewer pixels are multiplied with a line of 16 elements, 16 products a cycle, in less time than reading its 64 bytes takes, at 8
# a cycle: prefetches only compete then.
STREAMED_PIXELS = 8

Kind = TypeVar("Kind", bound="Window")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Window(SubConvolution):
    """One dense window of a (flattened) problem and how its channels lie in vector lanes.

    Attributes
    ----------
    lanes
        Vector lanes per group of output channels.
    across
        Whether lanes run across groups (depthwise and small groups) instead of within one.
    row
        Outputs computed along the last axis: `axes[-1].outputs`, or that rounded up for tiling.
    vnni_factor
        Channels in one element of the copies: 1 (an f32), 2 (a pair of bf16, in VNNI layout) or 4 (a quad of bf16).
    prepacked
        Whether the filter is prepacked, so that packing takes no time: it is then widened, or transformed whole.
    tile
        Outputs of a tile where the last tile of the row is shifted inwards, to end with the row. It computes and stores again
        what it shares with the one before, and nothing outside of the row is read or written. 0: what `row` exceeds
        the outputs by is never stored.
    shuffles
        Whether lanes across groups find their own group's channels by shuffles of a pixel's, in registers.
    whole_image
        Whether a tile has the whole image, of one vector of channels, so that the filter is read once.
    most_together
        At most so many vectors of output channels lie together in the copy of the filter.
    large
        Whether the filter in place is one that takes long to read: it lies on many pages, or a tile's part of it in pieces.
    copied_whole
        Whether all of a filter with lanes left over is copied, for many pixels: tasks that copy their parts share them worse.
    packs_parts
        Whether each task copies the part of the filter that its next tiles use, instead of reading it in place, or all of it from
        one copy.
    by_parts
        Whether tasks take the filter part after part, in the order of memory, and add the sums of each part to those before.
    rows_in_place
        How parts are whole rows of the filter, as it is, all pixels being one tile's: pairs of bf16 are made in registers. None: they are
        not.
    by_blocks
        Whether a task takes all its pixels of one block of output channels before the next block, so that it reads the filter
        once.
    extra_vectors
        Vectors of output channels that are computed and stored once more, so that all divide into good tiles.
    rounds_groups
        Whether lanes run across groups of bf16, whose sums are short, and the CPU has an instruction that rounds them.
    order
        Which of the problem's axes each of the window's is, where the row is another than the last. Empty: they are in order.
    spread
        Whether each task copies its data and the filter is packed, for neighbouring pixels share few sets of L1 in place.
    ordered
        Whether each sum takes its products one by one, taps and then channels, whatever the CPU.
    quads
        As which types quads of integers are multiplied; None: it has none.
    plans
        How it may be cut into tasks and tiles, the best first; empty: that is not decided (direct_plan.py).
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
        """Return the window as one of a kind that computes it in another way, with changes and what that kind adds."""
        values = {field.name: getattr(self, field.name) for field in fields(Window)}
        return kind(**{**values, **changes})

    @property
    def rounds(self) -> bool:
        """Return whether an instruction rounds sums to bf16, and stores denormal ones as zeros."""
        return (self.vnni_factor > 1 and not self.problem.is_quantized) or self.rounds_groups

    @property
    def groups(self) -> int:
        """Extent of the explicit group axis."""
        return 1 if self.across else self.problem.groups

    @property
    def channels(self) -> int:
        """Elements summed for one output and tap: its channels, or pairs of them."""
        return -(-self.problem.in_channels // self.problem.groups // self.vnni_factor)

    @property
    def pixel(self) -> int:
        """Elements of a pixel of data, or of its copy."""
        return self.channels * (self.padded_outputs if self.expands else self.problem.groups)

    @property
    def whole_elements(self) -> bool:
        """Return whether each element of a copy of data has all its channels."""
        return self.problem.in_channels // self.problem.groups % self.vnni_factor == 0

    @property
    def most_lanes(self) -> int:
        """Neighbouring elements of a pixel's copy that are made of neighbouring channels, as a power of two: any number."""
        return 1 << 30

    def in_order(self, values: Sequence[Value]) -> list[Value]:
        """Return what each axis of the window has in the order of the problem's axes."""
        return [values[self.order.index(axis)] for axis in range(len(values))] if self.order else list(values)

    @property
    def apart(self) -> int:
        """Number of pixels of an image between neighbours of a row."""
        return prod(self.problem.in_spatial[self.order[-1] + 1 :]) if self.order else 1

    @property
    def column_gap(self) -> int:
        """Distance in data between columns that lie together in its copy."""
        return self.axes[-1].gap * self.apart

    @property
    def outputs(self) -> int:
        """Output channels of one step of the group axis."""
        return self.problem.out_channels // self.groups

    @property
    def padded_outputs(self) -> int:
        """`outputs` rounded up to whole vectors, and those that are computed once more."""
        return (-(-self.outputs // self.lanes) + self.extra_vectors) * self.lanes

    @property
    def shifted(self) -> bool:
        """Return whether the last vectors of output channels are shifted to end with them, as `tile` shifts a row's."""
        return self.lanes < self.outputs < self.padded_outputs

    @property
    def excess(self) -> int:
        """Elements of a row that are computed but not stored."""
        return 0 if self.tile else self.row - self.axes[-1].outputs

    @property
    def row_extent(self) -> int:
        """Data coordinates along a row of its copy."""
        return self.axes[-1].extent + self.excess * self.axes[-1].stride

    def column(self, y: Expr) -> Expr:
        """Return the output of a row that its element `y` computes."""
        return shift_last(y, self.tile, self.axes[-1].outputs) if self.tile else y

    def output(self, o: Expr) -> Expr:
        """Return the output channel of a group that lane `o` of all its vectors computes."""
        return shift_last(o, self.lanes, self.outputs) if self.shifted else o

    def stored_channel(self, g: Expr, o: Expr) -> Expr:
        """Return the output channel that lane `o` of group `g` computes."""
        return g * self.outputs + self.output(o)

    @property
    def data_in_pairs(self) -> bool:
        """Return whether data, not its copy, consists of pairs of channels."""
        return reads_pairs(self.problem, self.vnni_factor)

    @property
    def channels_in_filter(self) -> bool:
        """Return whether the channels that are summed are an axis of the filter."""
        return True

    def in_data(self, x: list[Expr], c: Expr) -> tuple[list[Expr], Expr]:
        """Return where in data what the window finds at `x` lies, and the channel of it, or the pair of data in pairs."""
        return self.in_order(x), c

    def filter_taps(self, phases: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
        """Return the filter's spatial indices of taps of phases."""
        return self.in_order(super().filter_taps(phases, taps))

    def data_bounds(self, x: list[Expr]) -> list[Expr]:
        """Return the conditions beside those of the copy under which coordinates of `in_data` are not padding: none."""
        return []

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return where in the filter the weight of tap, channel `c` and output `o` of group `g` is."""
        if self.across and self.problem.op != "convolution":
            per_group = self.problem.out_channels // self.problem.groups
            g, o = o // per_group, o % per_group
        return super().filter_indices(g, phases, taps, c, o)

    @property
    def expands(self) -> bool:
        """Return whether data is copied so that each lane finds its own group's channel, and left-over lanes zeros."""
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
        """Return whether a pixel's channels are few enough to be read from planes: as many as the sum unrolls."""
        return self.problem.in_channels <= (1 if self.across else FEW_PLANES)

    @property
    def copied_once(self) -> bool:
        """Return whether data is copied before all tasks, not by each: transposed, where several tasks read a plane."""
        several = any(axis.span > axis.stride for axis in self.axes[:-2])
        return self.problem.data_format == "NCX" and not self.across and several

    @property
    def skips_rows(self) -> bool:
        """Return whether sums skip products with rows of padding, along any axis but the last, and data's copy too."""
        return self._may_skip and self.stages_data and any(axis.padded for axis in self.axes[:-1])

    @property
    def skips_columns(self) -> bool:
        """Return whether sums skip products with columns of padding that whole tiles read."""
        axis = self.axes[-1]
        behind = axis.lowest + self.row_extent - axis.inputs
        return self._may_skip and self.stages_data and max(-axis.lowest, behind) >= LEAST_SKIPPED

    @property
    def _may_skip(self) -> bool:
        """Return whether sums over a copy may ask for padding: with lanes across groups, if it is in most products."""
        mostly = 2 * prod(axis.met for axis in self.axes) <= 1 and not (self.shuffles or self.expands)
        return (not self.across or self.spread or mostly) and not self.sums_filter

    @property
    def sums_filter(self) -> bool:
        """Return whether sums have the zero point times the sum of the filter too much: data is multiplied as it is."""
        return self.quads is not None and self.quads.zero_point != 0

    @property
    def stores_apart(self) -> bool:
        """Return whether neighbouring outputs of a row are not neighbours in a plane of the output."""
        axis = self.axes[-1]
        return axis.phases > 1 or axis.store_index(0, 1) > axis.store_index(0, 0) + 1

    @property
    def stores_rows(self) -> bool:
        """Return whether neighbouring outputs of a row, all of them stored, are neighbours in a planar output."""
        last = not self.order or prod(self.problem.out_spatial[self.order[-1] + 1 :]) == 1
        return self.stores_planes and last and not self.stores_apart

    @property
    def stores_planes(self) -> bool:
        """Return whether all outputs of a row are stored, so that vectors of channels can be stored as rows, together or apart."""
        return self.axes[-1].always_inside and not self.excess and self.stored == self.padded_outputs

    @property
    def stages_filter(self) -> bool:
        """Return whether the filter is packed: its fastest index is not the lane, or no shift fills left-over lanes.

        Lanes across groups share no vector of it with other pixels than a tile's, each of which would widen it again.
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
        """Return whether the channels that an output sums are neighbours in the filter, and its lanes are not."""
        forward, one_tap = self.problem.op == "convolution", all(axis.taps * axis.phases == 1 for axis in self.axes)
        if self.problem.filter_format == "OIX":
            return forward and one_tap and not self.shuffles and self.channels_in_filter
        return not forward and not self.across

    @property
    def taps_are_columns(self) -> bool:
        """Return whether several taps of neighbouring channels lie together in the filter, as a row of each lane."""
        problem, taps = self.problem, prod(self.problem.kernel)
        in_order = problem.op == "convolution" and problem.filter_format == "OIX" and not self.order
        whole = self.stored == self.padded_outputs and [axis.taps for axis in self.axes] == list(problem.kernel)
        others = problem.is_quantized or self.across or self.shuffles
        by_channel = self.vnni_factor == 1 and self.channels_in_filter and not others
        return in_order and whole and by_channel and taps > 1 and self.channels * taps >= PART

    @property
    def taps_lie_together(self) -> bool:
        """Return whether several taps of an output channel lie together in a transposed OIX filter, channels apart."""
        transposed = self.problem.op != "convolution" and self.problem.filter_format == "OIX"
        apart = self.across or self.shuffles or self.problem.is_quantized
        return transposed and prod(self.problem.kernel) > 1 and not apart

    @property
    def reads_rows(self) -> bool:
        """Return whether vectors of output channels lie in the filter as they are multiplied, in rows of them all."""
        return self.problem.filter_format == "XIO" and self.problem.op == "convolution"

    @property
    def summed_taps(self) -> int:
        """Taps of a phase whose products are added in registers before a sum is stored."""
        return prod(axis.taps for axis in self.axes)

    @property
    def pixels(self) -> int:
        """Outputs of one channel, of one phase of each axis."""
        return self.problem.batch * prod(axis.outputs for axis in self.axes)

    @property
    def few_pixels(self) -> bool:
        """Return whether reading the filter counts beside multiplying it."""
        return self.pixels <= FEW_PIXELS

    @property
    def streams_filter(self) -> bool:
        """Return whether tiles prefetch the filter of the next block of channels."""
        return self.by_blocks and not self.packs_parts and self.pixels >= STREAMED_PIXELS

    @property
    def stores_vectors(self) -> bool:
        """Return whether whole vectors of output channels lie together in the output."""
        return self.problem.data_format == "NXC" and (self.shifted or self.padded_outputs == self.outputs)

    @property
    def stored_together(self) -> int:
        """Output channels of a group that lie together in a pixel of the output."""
        return self.outputs

    @property
    def stored(self) -> int:
        """Output channels of `out`."""
        return self.padded_outputs if self.shifted else self.outputs

    def summed(self, c: Expr, o: Expr) -> Expr:
        """Return the channel, or pair of them, that output channel `o` sums as its `c`-th."""
        return rotate(c, o, self.channels, self.problem.out_channels // self.problem.groups) if self.shuffles else c

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and where it is inside the output (None: always)."""
        rank = len(self.axes)
        phases, outputs = indices[2 : 2 + rank], [*indices[2 + rank : -2], self.column(indices[-2])]
        at = [*indices[:2], *self.in_order(phases), *self.in_order(outputs), self.output(indices[-1])]
        return store_index(self.problem, tuple(self.in_order(self.axes)), self.outputs, at)
