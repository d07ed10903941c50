"""im2col: data copied into one long row of pixels with the channels of all taps, which tiles divide better than short rows.

For taps that read no pixel twice (a strided single tap, or patches of 16x16 pixels in vision transformers), and for few pixels with
overlapping taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ....targets.target import CpuTarget
from ...axes import convolution_axes
from ...subconvolution import Axis, Expr
from .tile import LEAST_GAIN, pixel_cycles, wider
from .window import FEW_PIXELS, Window


@dataclass(frozen=True)
class Im2colWindow(Window):
    """A window of all pixels along one axis with one tap, whose data is along `data_axes`.

    Its channels are data's channels of all taps, in the filter's order, so that the filter can be read in place; but pairs consist of
    data's channels.
    """

    data_axes: tuple[Axis, ...] = ()

    @property
    def stages_data(self) -> bool:
        """Return True: pixels are copied to one row."""
        return True

    @property
    def data_in_pairs(self) -> bool:
        """Return whether data itself consists of pairs, or quads, of a group's channels."""
        return self._per_tap // self.problem.groups % max(2, self.vnni_factor) == 0

    @property
    def channels_in_filter(self) -> bool:
        """Return whether the summed channels are an axis of the filter: there is one tap."""
        return self._per_tap == self.problem.in_channels

    @property
    def _taps_first(self) -> bool:
        """Return whether the channels of a tap are neighbours, not the taps of a channel as in OIX filters."""
        taps_first = self.ordered or self.problem.filter_format == "XIO" or self.vnni_factor == 2
        return taps_first or not _read_once(self.data_axes)

    @property
    def most_lanes(self) -> int:
        """Power of two of a pixel's neighbouring elements in the copy that are contiguous in data: those of a row's taps."""
        row, channels = self.data_axes[-1], self._per_tap
        if not self._taps_first or channels // self.problem.groups % self.vnni_factor:
            return super().most_lanes
        run = channels // self.vnni_factor * (row.taps if row.dilation == 1 else 1)
        return run & -run

    @property
    def _per_tap(self) -> int:
        return self.problem.in_channels // prod(axis.taps for axis in self.data_axes)

    def _tap(self, c: Expr, per_tap: int) -> tuple[list[Expr], Expr]:
        """Return the taps, and the channel among `per_tap`, of the window's channel `c`."""
        taps = [axis.taps for axis in self.data_axes]
        if prod(taps) == 1:
            return [0 for _ in taps], c
        if self._taps_first:
            *found, c = unravel(c, [*taps, per_tap])
        else:
            c, *found = unravel(c, [per_tap, *taps])
        return found, c

    def in_data(self, x: list[Expr], c: Expr) -> tuple[list[Expr], Expr]:
        """Return data's coordinates and channel, or pair if data consists of pairs, of channel `c` of the pixel `x`."""
        pairs = self.vnni_factor == 2 and self.data_in_pairs
        taps, c = self._tap(c, self._per_tap // (2 if pairs else 1))
        outputs = unravel(x[0], [axis.outputs for axis in self.data_axes])
        each = zip(self.data_axes, outputs, taps, strict=True)
        return [axis.offset(0) + y * axis.stride + k * axis.dilation for axis, y, k in each], c

    def data_bounds(self, x: list[Expr]) -> list[Expr]:
        """Return the conditions under which coordinates of `in_data` are not in the padding."""
        each = zip(self.data_axes, x, strict=True)
        return [bound for axis, at in each for bound in axis.inside(at, axis.lowest, axis.extent)]

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return the filter's indices of the weight of channel `c` and output `o` of group `g`."""
        spatial, c = self._tap(c, self._per_tap)
        o = g * self.outputs + o
        return [*spatial, c, o] if self.problem.filter_format == "XIO" else [o, c, *spatial]


def im2col(window: Window, target: CpuTarget) -> Window:
    """Return a window with its pixels copied to one row if that is possible and worth it; else the window itself.

    Copying an element takes at most the time of one multiply-add of a vector, and each vector of output channels has one such
    multiply-add for the element. Tiles cannot span rows of 14 patches; 196 patches in a row divide into tiles of 6 by 2 vectors, which load
    the filter a third as often.
    """
    problem, axes = window.problem, window.axes
    if len(axes) == 1 or window.across or problem.data_format == "NCX" or problem.op != "convolution":
        return window
    if not (_read_once(axes) or _overlap(window, target)):
        return window
    taps = prod(axis.taps for axis in axes)
    if taps > 1 and problem.groups > 1:
        return window
    pixels, ones = (prod(axis.outputs for axis in axes),), {"kernel": (1,), "strides": (1,), "dilations": (1,)}
    zeros = {"pads_begin": (0,), "pads_end": (0,)}
    row = problem.with_(in_spatial=pixels, out_spatial=pixels, in_channels=problem.in_channels * taps, **ones, **zeros)
    changes = {"problem": row, "axes": convolution_axes(row)[0], "row": pixels[0], "tile": 0, "extra_vectors": 0}
    long = wider(window.as_kind(Im2colWindow, **changes, data_axes=axes), target)
    # The copy counts as one more vector of output channels; with vectors of 512 bits, tiles differ by less than estimated.
    copy = long.lanes / long.padded_outputs if "im2col_copy_counted" in target.costs.pays else LEAST_GAIN
    return long if pixel_cycles(long, target) < pixel_cycles(window, target) * (1 - copy) else window


def _read_once(axes: Sequence[Axis]) -> bool:
    """Return whether no two outputs read the same data, and none reads padding."""
    return all(
        axis.phases == 1 and not axis.padded and (axis.taps == 1 or (axis.dilation == 1 and axis.taps <= axis.stride))
        for axis in axes
    )


def _overlap(window: Window, target: CpuTarget) -> bool:
    """Return whether data is worth a copy for each tap although taps overlap or read padding.

    With strides, rows of few pixels leave tiles small for any batch. Without strides, skipping rows of padding gains as much. Not
    measured with AVX-512.
    """
    vectors = (
        "im2col_of_strides" in target.costs.pays and window.vnni_factor == 1 and window.channels % window.lanes == 0
    )
    strided = all(axis.phases == 1 and axis.stride > 1 for axis in window.axes)
    return vectors and prod(axis.outputs for axis in window.axes) <= FEW_PIXELS and strided


def unravel(index: Expr, extents: Sequence[int]) -> list[Expr]:
    """Return the indices along axes of these extents of the element with a flat index."""
    found: list[Expr] = []
    for extent in reversed(extents[1:]):
        found.insert(0, index % extent)
        index = index // extent
    return [index, *found]
