"""Transposed convolutions that treat the phases of a row as output channels: for long strides and few channels.

One product of matrices gives the outputs of a whole stride and all channels: an inverse STFT of 512 samples with stride 128 to one channel
is a transposed convolution of 4 taps and stride 1 to 128 channels. Vectors of outputs are thus full, each output is summed in registers
and written once, and no overlap is added in memory. If the stride does not divide pads, taps or the row, some phases have other taps,
or fewer: phases that are alike form a window.

The windows are direct's (window.py), for the problem with more channels; here are the places of their weights and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tvm import tirx

from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_data
from ..definition import Definition, assemble, requests_of
from ..flatten import flatten
from ..pairs import sum_requests
from ..subconvolution import Expr, output_offset
from . import direct
from .direct_plan import plan_windows
from .model.cost import Counts, total
from .windows.express import express
from .windows.window import Window


def covers(problem: Problem, target: CpuTarget, vnni_factor: int = 1, ordered: bool = False) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    problem = flatten(problem)
    if problem.op == "convolution" or problem.strides[-1] == 1:
        return "it is for transposed convolutions with a stride along the last axis"
    if problem.dilations[-1] > 1:
        return "with dilation, the phases read different data"
    if any(phases_as_channels(problem, phases).is_constant for phases in phases_alike(problem)):
        return "some phases of a row read no data"
    if vnni_factor == 2 and (reason := direct.no_dot(problem, target, integers=True)):
        return reason
    return covers_data(problem, target)


def define(
    problem: Problem, target: CpuTarget, vnni_factor: int = 1, prepacked: bool = False, ordered: bool = False
) -> Definition:
    """Define a transposed convolution by windows whose output channels are those of all phases of a row."""
    windows = plan_windows(phased_windows(problem, target, vnni_factor, prepacked, ordered), target)
    by_element = vnni_factor == 2 and target.isa.dots_by_element
    flat = flatten(problem)
    asks = [*requests_of(problem, windows), *sum_requests(problem, vnni_factor, target)]
    return assemble(problem, flat, windows, express, vnni_factor, asks, by_element, ordered=ordered)


def define_prepacked(problem: Problem, target: CpuTarget, vnni_factor: int = 1, ordered: bool = False) -> Definition:
    """Return the best definition for prepacked filters."""
    return define(problem, target, vnni_factor, prepacked=True, ordered=ordered)


def estimate(problem: Problem, target: CpuTarget, vnni_factor: int = 1, ordered: bool = False) -> Counts:
    """Count the events of a problem, its filter prepacked."""
    windows = plan_windows(phased_windows(problem, target, vnni_factor, True, ordered), target)
    return direct.windows_estimate(windows, target)


def plain(problem: Problem, target: CpuTarget, vnni_factor: int = 1, ordered: bool = False) -> Counts:
    """Count the events of a problem with a plain filter: those of `estimate`, and the copies of the filter."""
    windows = phased_windows(problem, target, vnni_factor, False, ordered)
    products = estimate(problem, target, vnni_factor, ordered)
    return total(products, *(direct.count_packing(window, target) for window in windows))


def phased_windows(
    problem: Problem, target: CpuTarget, vnni_factor: int, prepacked: bool, ordered: bool
) -> list[PhasedWindow]:
    """Return the windows of `define`."""
    flat = flatten(problem)
    made: list[PhasedWindow] = []
    for phases in phases_alike(flat):
        alike = phases_as_channels(flat, phases)
        for window in direct.direct_windows(alike, target, False, vnni_factor, prepacked, False, ordered):
            made.append(window.as_kind(PhasedWindow, index=len(made), transposed=flat, phases=phases))
    return made


def phases_alike(flat: Problem) -> list[range]:
    """Return ranges of phases of the row of `flat` with equally many outputs, and equally many taps that read the same data.

    Output ``y = q*s + p`` of phase p sums tap ``k`` of data ``x`` with ``y + pad = x*s + k``. With ``p + pad = h*s + r`` that is
    ``x = q + h - j`` and ``k = r + j*s``, for all j with ``k < K``.
    """
    stride, begin = flat.strides[-1], flat.pads_begin[-1]
    # Phases at which h, the number of j, or that of q changes.
    ends = {-begin % stride, (flat.kernel[-1] - begin) % stride, flat.out_spatial[-1] % stride, 0, stride}
    ordered = sorted(ends)
    alike = [range(first, last) for first, last in pairwise(ordered)]
    return [
        each for each in alike if each.start < flat.out_spatial[-1] and (each.start + begin) % stride < flat.kernel[-1]
    ]


def phases_as_channels(flat: Problem, phases: range) -> Problem:
    """Return the problem whose output channels are those of phases alike, in the order of their outputs."""
    stride = flat.strides[-1]
    before, rest = divmod(phases.start + flat.pads_begin[-1], stride)
    taps, outputs = -(-(flat.kernel[-1] - rest) // stride), -(-(flat.out_spatial[-1] - phases.start) // stride)
    end = max(flat.in_spatial[-1] - 1 + taps - before - outputs, 0)
    row = {"kernel": taps, "strides": 1, "out_spatial": outputs, "pads_begin": before, "pads_end": end}
    changes = {name: (*getattr(flat, name)[:-1], value) for name, value in row.items()}
    return flat.with_(**changes, out_channels=flat.out_channels * len(phases))


@dataclass(frozen=True, kw_only=True)
class PhasedWindow(Window):
    """A window whose output channels are those of phases of a row.

    Attributes
    ----------
    transposed
        The flattened problem, of whose filter and outputs the window is a part.
    phases
        The phases: the faster index of the window's channels if outputs are planes, the slower one if channels are last.
    """

    transposed: Problem
    phases: range

    def _parts(self, o: Expr) -> tuple[Expr, Expr]:
        """Return the phase, and the channel of a group, of output channel `o`."""
        count, first = len(self.phases), self.phases.start
        channels = self.outputs // count
        if channels == 1:
            return first + o, 0
        return (
            (first + o % count, o // count)
            if self.problem.data_format == "NCX"
            else (first + o // channels, o % channels)
        )

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return the filter's indices of the weight of a tap, channel `c` and output `o` of group `g`."""
        phase, channel = self._parts(o)
        *before, k = self.filter_taps(phases, taps)
        stride, begin = self.transposed.strides[-1], self.transposed.pads_begin[-1]
        tap = phase + (begin - (self.phases.start + begin) // stride * stride) + k * stride
        outer = g * (self.problem.in_channels // self.problem.groups) + c
        spatial = [*before, tap]
        return [*spatial, channel, outer] if self.problem.filter_format == "XIO" else [outer, channel, *spatial]

    @property
    def stages_filter(self) -> bool:
        """Return True: the window's taps are not those of the filter."""
        return True

    @property
    def taps_lie_together(self) -> bool:
        """Return False: the taps of a lane depend on its phase."""
        return False

    @property
    def channels_in_filter(self) -> bool:
        """Return whether summed channels and outputs are axes of the filter: a group has one output channel."""
        return self.outputs == len(self.phases)

    @property
    def stores_planes(self) -> bool:
        """Return False: the lanes of a vector include phases."""
        return False

    @property
    def stores_apart(self) -> bool:
        """Return whether the outputs of a vector are in several planes, or not contiguous in a pixel."""
        return not self._together

    @property
    def row_neighbours(self) -> int:
        """Number of a vector's outputs that are neighbours in a row of a plane: a channel's phases."""
        return len(self.phases)

    @property
    def _together(self) -> bool:
        """Return whether the outputs of a vector are contiguous in the output."""
        return self.stored_together == self.outputs or self.stored_together % self.lanes == 0

    @property
    def stored_together(self) -> int:
        """Output channels of the window that are contiguous in the output: all, or those of a group's pixel or of a channel's row."""
        count = len(self.phases)
        if self.problem.data_format == "NCX":
            return count
        return self.outputs if self.groups == 1 else self.outputs // count

    @property
    def shifted(self) -> bool:
        """Return whether the last vectors of output channels are shifted inwards, to end with the channels."""
        return (
            self._together and self.stored_together == self.outputs and self.lanes < self.outputs < self.padded_outputs
        )

    @property
    def stores_vectors(self) -> bool:
        """Return whether whole vectors of output channels are contiguous in the output."""
        return self._together and (self.shifted or self.padded_outputs == self.outputs)

    def stored_channel(self, g: Expr, o: Expr) -> Expr:
        """Return the problem's output channel of the window's `o`-th of group `g`."""
        return g * (self.outputs // len(self.phases)) + self._parts(self.output(o))[1]

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and the condition under which it is inside (None: always)."""
        rank, flat = len(self.axes), self.transposed
        before = zip(self.axes[:-1], indices[2 : 1 + rank], indices[2 + rank : -2], strict=True)
        stored = [axis.store_index(p, y) for axis, p, y in before]
        inside = [
            at < extent
            for axis, at, extent in zip(self.axes, stored, flat.out_spatial, strict=False)
            if not axis.always_inside
        ]
        phase, _ = self._parts(self.output(indices[-1]))
        stored.append(self.column(indices[-2]) * flat.strides[-1] + phase)
        channel = self.stored_channel(indices[1], indices[-1])
        offset = output_offset(flat, indices[0], channel, stored, flat.out_spatial)
        return offset, tirx.all(*inside) if inside else None
