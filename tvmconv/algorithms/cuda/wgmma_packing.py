"""Operands of wgmma: arrays that tensor maps can read by boxes, a problem's own or copies made in each call.

Boxes need strides of a multiple of 16 bytes, and contiguous channels; or, channels first, rows of pixels that taps do not shift, because
boxes begin at a multiple of 16 bytes. Other data are copied channels last, padded by zeros; so are OIX filters of several taps, and
filters with other numbers of channels.

With few channels, steps of 64 would be mostly zeros. A step then takes a row of taps: their pixels are neighbours, so that `kernel` *
`channels` elements of data are contiguous, and those of the next output begin `stride` pixels later. Such a row is the input channels of
a convolution with one tap along this axis; its padding has to be in memory.

With several groups, the outputs of a tile are multiplied with the channels of all their groups. If these are several, the filter is
copied: each output has the channels of its tile, zeros except those of its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, gcd, prod
from typing import Any

from ...checks import LARGEST
from ...dtypes import DTYPE_BYTES
from ...problem import Problem
from .blocks import LAUNCH, MULTIPROCESSORS, rounded_up
from .cost import MEMORY_RATE
from .wgmma_phases import phases_of

# Elements in 16 bytes, the unit of strides.
ALIGNED = 8
# Elements of depth of a row in shared memory (128, 64 or 32 bytes); and output channels of a tile.
SPANS = (64, 32, 16)
COLUMNS = (32, 64, 128, 256)
# CUDA Driver API, cuTensorMapEncodeTiled: largest element stride of a copy along an axis.
MOST_STRIDE = 8


@dataclass(frozen=True)
class Packing:
    """Layout in which wgmma reads the arrays of a problem.

    Attributes
    ----------
    source
        The problem, with three spatial axes.
    problem
        The problem that is computed, with data channels last; its data format is that of the output.
    channels
        Channels of a pixel that is read, including zeros.
    width, left
        Pixels of a row that is read, including zeros, and the zeros at its beginning.
    distances
        Elements between neighbours in data along the axes of `problem`, the last first, and between images.
    copies_data, copies_filter
        Whether data and the filter are copied.
    filter_by_depth
        Whether input channels, not output channels, are the fastest index of the filter that is read.
    columns
        Output channels of a tile, which are multiplied with the same input channels; 0 with one group: any number.
    planes
        Whether data are read channels first, by rows of pixels; the distances are then those between rows, planes, channels
        and images.
    """

    source: Problem
    problem: Problem
    channels: int
    width: int
    left: int
    distances: tuple[int, int, int, int]
    copies_data: bool
    copies_filter: bool
    filter_by_depth: bool
    columns: int = 0
    planes: bool = False

    @property
    def outputs(self) -> int:
        """Output channels of the filter that is read, including zeros."""
        return rounded_up(self.source.out_channels, ALIGNED) if self.copies_filter else self.source.out_channels

    @property
    def filter_channels(self) -> int:
        """Input channels of a step's taps in the filter that is read, without the zeros that only data have."""
        if self.columns:
            return depth_of(self.problem, self.columns)
        channels = self.channels if self.copies_filter else self.source.in_channels
        return self.problem.in_channels // self.channels * channels

    @property
    def data_elements(self) -> int:
        """Number of elements of the data that are read."""
        return self.source.batch * prod(self.source.in_spatial[:2]) * self.width * self.channels

    @property
    def filter_elements(self) -> int:
        """Number of elements of the filter that is read."""
        channels = self.filter_channels if self.columns else self.channels
        return prod(self.source.kernel) * channels * self.outputs

    @property
    def nbytes(self) -> int:
        """Least bytes that are read and written, without copies."""
        added = self.data_elements - prod(self.source.data_shape)
        return self.source.nbytes + DTYPE_BYTES[self.source.dtype] * added

    @property
    def cycles(self) -> float:
        """Cycles of the copies."""
        moved = 0
        if self.copies_data:
            moved += self.data_elements + prod(self.source.data_shape)
        if self.copies_filter:
            moved += self.filter_elements + prod(self.source.filter_shape)
        return LAUNCH + moved * DTYPE_BYTES[self.source.dtype] / (MEMORY_RATE * MULTIPROCESSORS[90]) if moved else 0.0


def depth_of(problem: Problem, columns: int) -> int:
    """Return the largest number of input channels that a tile of `columns` output channels is multiplied with.

    They are those of its groups, and some before, because boxes begin at a multiple of 16 bytes.
    """
    inputs, outputs = problem.in_channels // problem.groups, problem.out_channels // problem.groups

    def read(first: int) -> int:
        end = ceil(min(first + columns, problem.out_channels) / outputs) * inputs
        return end - first // outputs * inputs // ALIGNED * ALIGNED

    return max(map(read, range(0, problem.out_channels, columns)))


def mixes_groups(problem: Problem) -> bool:
    """Return whether outputs of one group are also multiplied with channels of another, by zeros."""
    if problem.groups == 1:
        return False
    channels, outputs = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    return channels % min(SPANS) > 0 or outputs % min(COLUMNS) > 0


def packings(source: Problem) -> Iterator[Packing]:
    """Yield the layouts, possibly none, for the arrays of a problem with three spatial axes.

    Channels-last data that can be read in place are not copied.
    """
    if source.groups > 1:
        yield from filter(None, (_by_groups(source, columns) for columns in COLUMNS))
        return
    by_taps, by_rows, by_planes = _by_taps(source), _by_rows(source), _by_planes(source)
    if by_planes is not None:
        yield by_planes
    if by_taps is not None:
        yield by_taps
    if by_rows is not None and (by_taps is None or by_taps.copies_data or not by_rows.copies_data):
        yield by_rows


def _by_taps(source: Problem) -> Packing | None:
    """Return the layout in which a step takes channels of one tap."""
    channels = rounded_up(source.in_channels, ALIGNED)
    if source.op == "convolution" and max(source.strides) > MOST_STRIDE:
        return None
    if source.batch * prod(source.in_spatial) * channels > LARGEST:
        return None
    problem = source if source.groups > 1 else source.with_(in_channels=channels)
    distances = _distances(channels, source.in_spatial[::-1])
    copies = source.data_format == "NCX" or channels != source.in_channels
    by_depth = _filter_by_depth(source)
    copies_filter = by_depth is None
    return Packing(
        source, problem, channels, source.in_spatial[-1], 0, distances, copies, copies_filter, bool(by_depth)
    )


def _by_groups(source: Problem, columns: int) -> Packing | None:
    """Return the layout in which a step takes channels of one tap, of all groups of `columns` output channels."""
    mixed, found = mixes_groups(source), _by_taps(source)
    if found is None or (source.out_channels // source.groups % columns and not mixed):
        return None
    # Otherwise the filters of groups are no rows of one array.
    as_read = source.op == "convolution" and source.filter_format == "XIO" and source.out_channels % ALIGNED == 0
    packing = replace(found, columns=columns, copies_filter=mixed or not as_read, filter_by_depth=False)
    return packing if packing.filter_elements <= LARGEST else None


def _by_rows(source: Problem) -> Packing | None:
    """Return the layout in which a step takes all taps along the last axis."""
    depth, height, pixels = source.in_spatial
    (_, stride_h, stride), (_, dilation_h, dilation) = source.strides, source.dilations
    (_, taps_h, taps), outputs = source.kernel, source.out_spatial[-1]
    if source.op != "convolution" or dilation > 1 or source.strides[0] > MOST_STRIDE:
        return None
    if taps == 1 and stride_h <= MOST_STRIDE:  # that is the layout by taps
        return None
    channels = rounded_up(source.in_channels, ALIGNED // gcd(stride, ALIGNED))
    reached = (outputs - 1) * stride + taps
    in_place = source.data_format == "NXC" and channels == source.in_channels and source.pads_begin[-1] == 0
    in_place = in_place and reached <= pixels and pixels * channels % ALIGNED == 0
    width = pixels if in_place else rounded_up(reached, stride)
    changes: dict[str, Any] = {
        name: (*getattr(source, name)[:2], last)
        for name, last in (("kernel", 1), ("strides", 1), ("pads_begin", 0), ("pads_end", 0), ("in_spatial", outputs))
    }
    _, row, plane, image = _distances(channels, (width, height, depth))
    distances = (stride * channels, row, plane, image)
    if stride_h > MOST_STRIDE:
        # Without padding, rows of taps and rows of outputs can be separate axes.
        span = (taps_h - 1) * dilation_h + 1
        if depth > 1 or source.pads_begin[1] or (source.out_spatial[1] - 1) * stride_h + span > height:
            return None
        rows = source.out_spatial[1]
        changes = {"kernel": (1, taps_h, 1), "in_spatial": (rows, taps_h, outputs), "out_spatial": (rows, 1, outputs)}
        changes |= dict.fromkeys(("strides", "dilations"), (1, 1, 1))
        changes |= dict.fromkeys(("pads_begin", "pads_end"), (0, 0, 0))
        distances = (stride * channels, dilation_h * row, stride_h * row, image)
    # Elements of the copy, and of the data as they are multiplied.
    elements = max(depth * height * width, taps * prod(changes["in_spatial"])) * source.batch * channels
    if elements > LARGEST:
        return None
    problem = source.with_(in_channels=taps * channels, **changes)
    copies_filter = channels != source.in_channels or _filter_by_depth(source) is not False
    left = source.pads_begin[-1]
    return Packing(source, problem, channels, width, left, distances, not in_place, copies_filter, False)


def _by_planes(source: Problem) -> Packing | None:
    """Return the layout in which channels-first data are read in place: a box's rows of pixels are those of the output."""
    d, h, w = source.in_spatial
    moves = source.strides[-1] if source.op == "convolution" else 1
    if source.data_format != "NCX" or moves > 1 or w % ALIGNED or not _begins_aligned(source):
        return None
    distances = (w, h * w, d * h * w, source.in_channels * d * h * w)
    by_depth = _filter_by_depth(source)
    channels = source.in_channels
    return Packing(source, source, channels, w, 0, distances, False, by_depth is None, bool(by_depth), planes=True)


def _begins_aligned(source: Problem) -> bool:
    """Return whether all boxes of pixels begin at a multiple of 16 bytes along the last axis, as tensor maps require."""
    phases = phases_of(source)
    return all(
        (phase.offset[-1] + tap * phases.dilations[-1]) % ALIGNED == 0
        for phase in phases.phases
        for tap in range(phase.taps[-1])
    )


def _distances(channels: int, extents: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return the distances in a dense channels-last array, the last axis first."""
    w, h, d = extents
    return channels, w * channels, h * w * channels, d * h * w * channels


def _filter_by_depth(source: Problem) -> bool | None:
    """Return whether input channels are the fastest index of a filter that boxes can read in place; None if they cannot."""
    if source.filter_format != "XIO" and prod(source.kernel) > 1:
        return None
    # With one tap, OIX is XIO with the other channels last.
    by_depth = (source.filter_format == "XIO") == (source.op != "convolution")
    fastest = source.in_channels if by_depth else source.out_channels
    return by_depth if fastest % ALIGNED == 0 else None
