"""Operands of wgmma: arrays that copies of boxes can read, a problem's own or copies of them in each call.

Copies of boxes need distances of a multiple of 16 bytes, and channels that lie together; or, with channels first, rows of
pixels that no tap moves, as boxes begin at a multiple of 16 bytes. Other data are copied with channels last and zeros added; a
filter with several taps and OIX, or channels of another number, likewise.

Of few channels, steps of 64 would be zeros mostly. There a step takes a row of taps: the pixels that lie under them are
neighbours, so that `kernel` * `channels` elements of data lie together, and those of the next output begin `stride` pixels
after. Such a row is the channels of a convolution of one tap along it; what padding adds to it has to be there.

Of several groups, the outputs of a tile are multiplied with the channels of all groups that they are of. Where these are
more than one, the filter is copied: of each output it has the channels of its tile, zeros but for those of its group.
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

# Elements of 16 bytes, of which distances are a multiple.
ALIGNED = 8
# Elements of depth that a row has in shared memory, of 128, 64 or 32 bytes; and output channels of a tile.
SPANS = (64, 32, 16)
COLUMNS = (32, 64, 128, 256)
# CUDA Driver API, cuTensorMapEncodeTiled: copies take one of at most so many elements along an axis.
MOST_STRIDE = 8


@dataclass(frozen=True)
class Packing:
    """Layout by which wgmma reads the arrays of a problem.

    Attributes
    ----------
    source
        The problem, with three spatial axes.
    problem
        What is computed, of data with channels last; its data format is that of the output.
    channels
        Of a pixel that is read, zeros included.
    width, left
        Pixels of a row that is read, zeros included, and how many of these are before the others.
    distances
        Elements from one element of data to the next along the axes of `problem`, the last first, and from image to image.
    copies_data, copies_filter
        Whether they are copied.
    filter_by_depth
        Whether the filter that is read has input channels, not output channels, as the fastest index.
    columns
        Output channels of all tiles, those that are multiplied with the same input channels; 0 in one group: any.
    planes
        Whether data are read with channels first, by rows of pixels; the distances are then of pixels, rows, planes, channels
        and images, less the first.
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
        """Output channels of the filter that is read, zeros included."""
        return rounded_up(self.source.out_channels, ALIGNED) if self.copies_filter else self.source.out_channels

    @property
    def filter_channels(self) -> int:
        """Input channels of a step's taps in the filter that is read: zeros that only data have are beyond its end."""
        if self.columns:
            return depth_of(self.problem, self.columns)
        channels = self.channels if self.copies_filter else self.source.in_channels
        return self.problem.in_channels // self.channels * channels

    @property
    def data_elements(self) -> int:
        """Elements of the data that are read."""
        return self.source.batch * prod(self.source.in_spatial[:2]) * self.width * self.channels

    @property
    def filter_elements(self) -> int:
        """Elements of the filter that is read."""
        channels = self.filter_channels if self.columns else self.channels
        return prod(self.source.kernel) * channels * self.outputs

    @property
    def nbytes(self) -> int:
        """Bytes that are read and written at the least, but for copies."""
        added = self.data_elements - prod(self.source.data_shape)
        return self.source.nbytes + DTYPE_BYTES[self.source.dtype] * added

    @property
    def cycles(self) -> float:
        """Cycles of copying."""
        moved = 0
        if self.copies_data:
            moved += self.data_elements + prod(self.source.data_shape)
        if self.copies_filter:
            moved += self.filter_elements + prod(self.source.filter_shape)
        return LAUNCH + moved * DTYPE_BYTES[self.source.dtype] / (MEMORY_RATE * MULTIPROCESSORS[90]) if moved else 0.0


def depth_of(problem: Problem, columns: int) -> int:
    """Return how many input channels a tile of so many output channels is multiplied with, at most.

    They are those of its groups, and some before, so that a box begins at a multiple of 16 bytes.
    """
    inputs, outputs = problem.in_channels // problem.groups, problem.out_channels // problem.groups

    def read(first: int) -> int:
        end = ceil(min(first + columns, problem.out_channels) / outputs) * inputs
        return end - first // outputs * inputs // ALIGNED * ALIGNED

    return max(map(read, range(0, problem.out_channels, columns)))


def mixes_groups(problem: Problem) -> bool:
    """Return whether outputs of one group are multiplied with channels of another, whose filter is zero."""
    if problem.groups == 1:
        return False
    channels, outputs = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    return channels % min(SPANS) > 0 or outputs % min(COLUMNS) > 0


def packings(source: Problem) -> Iterator[Packing]:
    """Yield the ways to read the arrays of a problem with three spatial axes; maybe none.

    Data with channels last that can be read as they are, are not copied.
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
    """Return the way by which a step takes channels of one tap."""
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
    """Return the way by which a step takes channels of one tap, of all groups that so many output channels are of."""
    mixed, found = mixes_groups(source), _by_taps(source)
    if found is None or (source.out_channels // source.groups % columns and not mixed):
        return None
    # Only so are filters of groups, input channels, rows of an array.
    as_read = source.op == "convolution" and source.filter_format == "XIO" and source.out_channels % ALIGNED == 0
    packing = replace(found, columns=columns, copies_filter=mixed or not as_read, filter_by_depth=False)
    return packing if packing.filter_elements <= LARGEST else None


def _by_rows(source: Problem) -> Packing | None:
    """Return the way by which a step takes all taps along the last axis."""
    depth, height, pixels = source.in_spatial
    (_, stride_h, stride), (_, dilation_h, dilation) = source.strides, source.dilations
    (_, taps_h, taps), outputs = source.kernel, source.out_spatial[-1]
    if source.op != "convolution" or dilation > 1 or source.strides[0] > MOST_STRIDE:
        return None
    if taps == 1 and stride_h <= MOST_STRIDE:  # as by taps
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
        # Without padding, rows of taps and rows of outputs can be axes of their own.
        span = (taps_h - 1) * dilation_h + 1
        if depth > 1 or source.pads_begin[1] or (source.out_spatial[1] - 1) * stride_h + span > height:
            return None
        rows = source.out_spatial[1]
        changes = {"kernel": (1, taps_h, 1), "in_spatial": (rows, taps_h, outputs), "out_spatial": (rows, 1, outputs)}
        changes |= dict.fromkeys(("strides", "dilations"), (1, 1, 1))
        changes |= dict.fromkeys(("pads_begin", "pads_end"), (0, 0, 0))
        distances = (stride * channels, dilation_h * row, stride_h * row, image)
    # Of the copies, and, each time it is read, of the multiplied data.
    elements = max(depth * height * width, taps * prod(changes["in_spatial"])) * source.batch * channels
    if elements > LARGEST:
        return None
    problem = source.with_(in_channels=taps * channels, **changes)
    copies_filter = channels != source.in_channels or _filter_by_depth(source) is not False
    left = source.pads_begin[-1]
    return Packing(source, problem, channels, width, left, distances, not in_place, copies_filter, False)


def _by_planes(source: Problem) -> Packing | None:
    """Return the way by which data with channels first are read as they are: pixels of a row are neighbours in the output's."""
    d, h, w = source.in_spatial
    moves = source.strides[-1] if source.op == "convolution" else 1
    if source.data_format != "NCX" or moves > 1 or w % ALIGNED or not _begins_aligned(source):
        return None
    distances = (w, h * w, d * h * w, source.in_channels * d * h * w)
    by_depth = _filter_by_depth(source)
    channels = source.in_channels
    return Packing(source, source, channels, w, 0, distances, False, by_depth is None, bool(by_depth), planes=True)


def _begins_aligned(source: Problem) -> bool:
    """Return whether all boxes of pixels begin at a multiple of 16 bytes along the last axis, as copies must."""
    phases = phases_of(source)
    return all(
        (phase.offset[-1] + tap * phases.dilations[-1]) % ALIGNED == 0
        for phase in phases.phases
        for tap in range(phase.taps[-1])
    )


def _distances(channels: int, extents: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return those of a densely packed array with channels last, of the last axis first."""
    w, h, d = extents
    return channels, w * channels, h * w * channels, d * h * w * channels


def _filter_by_depth(source: Problem) -> bool | None:
    """Return whether a filter that copies can read has input channels as the fastest index; None if they cannot."""
    if source.filter_format != "XIO" and prod(source.kernel) > 1:
        return None
    # Without more taps than one, OIX is XIO with the other channels last.
    by_depth = (source.filter_format == "XIO") == (source.op != "convolution")
    fastest = source.in_channels if by_depth else source.out_channels
    return by_depth if fastest % ALIGNED == 0 else None
