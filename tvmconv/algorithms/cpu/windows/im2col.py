"""im2col: data copied into one long row of pixels, whose channels are those of all taps, which tiles without remainders.

Where no pixel is read twice (one tap that leaves pixels out, or patches, of 16x16 pixels in vision transformers), and where
few pixels' taps overlap.
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
    """A window of a problem with one axis and one tap, of all pixels, whose data lies along `data_axes`.

    A channel is one of data's for one of the taps: neighbours are as the filter has them, so that it can be read in place;
    but pairs are of channels, as data may have them.
    """

    data_axes: tuple[Axis, ...] = ()

    @property
    def stages_data(self) -> bool:
        """Return True: pixels are copied together."""
        return True

    @property
    def data_in_pairs(self) -> bool:
        """Return whether data, not its copy, consists of pairs, or quads, of channels of a group."""
        return self._per_tap // self.problem.groups % max(2, self.vnni_factor) == 0

    @property
    def channels_in_filter(self) -> bool:
        """Return whether the channels that are summed are an axis of the filter: not together with several taps."""
        return self._per_tap == self.problem.in_channels

    @property
    def _taps_first(self) -> bool:
        """Return whether the channels of a tap are neighbours, rather than the taps of a channel, as in OIX filters."""
        taps_first = self.ordered or self.problem.filter_format == "XIO" or self.vnni_factor == 2
        return taps_first or not _read_once(self.data_axes)

    @property
    def most_lanes(self) -> int:
        """Neighbouring elements of a pixel's copy that lie together in data, as a power of two: those of a row's taps."""
        row, channels = self.data_axes[-1], self._per_tap
        if not self._taps_first or channels // self.problem.groups % self.vnni_factor:
            return super().most_lanes
        run = channels // self.vnni_factor * (row.taps if row.dilation == 1 else 1)
        return run & -run

    @property
    def _per_tap(self) -> int:
        return self.problem.in_channels // prod(axis.taps for axis in self.data_axes)

    def _tap(self, c: Expr, per_tap: int) -> tuple[list[Expr], Expr]:
        """Return the taps, and the channel of so many, that are the window's channel `c`."""
        taps = [axis.taps for axis in self.data_axes]
        if prod(taps) == 1:
            return [0 for _ in taps], c
        if self._taps_first:
            *found, c = unravel(c, [*taps, per_tap])
        else:
            c, *found = unravel(c, [per_tap, *taps])
        return found, c

    def in_data(self, x: list[Expr], c: Expr) -> tuple[list[Expr], Expr]:
        """Return where in data channel `c`, or pair of data in pairs, of the pixel `x` lies."""
        pairs = self.vnni_factor == 2 and self.data_in_pairs
        taps, c = self._tap(c, self._per_tap // (2 if pairs else 1))
        outputs = unravel(x[0], [axis.outputs for axis in self.data_axes])
        each = zip(self.data_axes, outputs, taps, strict=True)
        return [axis.offset(0) + y * axis.stride + k * axis.dilation for axis, y, k in each], c

    def data_bounds(self, x: list[Expr]) -> list[Expr]:
        """Return the conditions under which coordinates of `in_data` are not padding."""
        each = zip(self.data_axes, x, strict=True)
        return [bound for axis, at in each for bound in axis.inside(at, axis.lowest, axis.extent)]

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return where in the filter the weight of channel `c` and output `o` of group `g` is."""
        spatial, c = self._tap(c, self._per_tap)
        o = g * self.outputs + o
        return [*spatial, c, o] if self.problem.filter_format == "XIO" else [o, c, *spatial]


def im2col(window: Window, target: CpuTarget) -> Window:
    """Return a window as one of pixels copied together, if it can be and that is worth it.

    The copy takes the time of a vector's multiply-adds of one step or less, and each element is in one for every vector of
    output channels. Two rows of 14 patches share no tile; 196 patches are tiles of 6 by 2 vectors, which load the filter a
    third as often.
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
    # The copy is counted as one more vector of output channels; where vectors are of 512 bits, tiles differ by less than estimated.
    copy = long.lanes / long.padded_outputs if "im2col_copy_counted" in target.costs.pays else LEAST_GAIN
    return long if pixel_cycles(long, target) < pixel_cycles(window, target) * (1 - copy) else window


def _read_once(axes: Sequence[Axis]) -> bool:
    """Return whether no two outputs read the same data, and none reads padding."""
    return all(
        axis.phases == 1 and not axis.padded and (axis.taps == 1 or (axis.dilation == 1 and axis.taps <= axis.stride))
        for axis in axes
    )


def _overlap(window: Window, target: CpuTarget) -> bool:
    """Return whether taps that read the same data, or padding, are worth a copy for each of them.

    Where taps overlap by a stride, it is rows of few pixels that leave tiles small, whatever the batch. Without a stride, rows of padding that are skipped are worth as much. Not measured with AVX-512.
    """
    vectors = (
        "im2col_of_strides" in target.costs.pays and window.vnni_factor == 1 and window.channels % window.lanes == 0
    )
    strided = all(axis.phases == 1 and axis.stride > 1 for axis in window.axes)
    return vectors and prod(axis.outputs for axis in window.axes) <= FEW_PIXELS and strided


def unravel(index: Expr, extents: Sequence[int]) -> list[Expr]:
    """Return the indices along axes of such extents of an element of an array, counted in its order."""
    found: list[Expr] = []
    for extent in reversed(extents[1:]):
        found.insert(0, index % extent)
        index = index // extent
    return [index, *found]
