"""Transposed convolutions whose row's phases are output channels: for long strides and few channels.

The outputs of a stride, times the channels, are what one multiplication by a matrix gives: an inverse STFT of 512 samples
with stride 128 to one channel is a transposed convolution of 4 taps, without a stride, to 128. So vectors of outputs are
full, each output is summed in registers and written once, and no overlap is added in memory. Where the stride does not divide
pads or taps, some of the filter's places are zeros.

The windows are those of direct (window.py), of the problem with more channels; where its filter and its outputs lie is told
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm import tirx

from ...problem import Problem
from ...targets.target import CpuTarget
from ..constant import covers_data
from ..definition import Definition, assemble
from ..flatten import flatten
from ..subconvolution import Expr
from . import direct
from .window import Window, express


def covers(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> str | None:
    """Return None if the algorithm computes the problem on the target, else why not."""
    problem = flatten(problem)
    if problem.op == "convolution" or problem.strides[-1] == 1:
        return "it has no phases along a row"
    if problem.dilations[-1] > 1:
        return "dilated, phases read data at places of their own"
    if vnni_factor == 2 and (reason := direct.no_dot(problem, target)):
        return reason
    return covers_data(problem, target)


def define(problem: Problem, target: CpuTarget, vnni_factor: int = 1, prepacked: bool = False) -> Definition:
    """Define a transposed convolution by windows whose output channels are those of all phases of a row."""
    windows = phased_windows(problem, target, vnni_factor, prepacked)
    return assemble(problem, flatten(problem), windows, express, vnni_factor)


def define_prepacked(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> Definition | None:
    """Define it as it is best where the filter is prepacked; None: no other way."""
    plain, prepacked = (phased_windows(problem, target, vnni_factor, each) for each in (False, True))
    same = [replace(window, prepacked=False) for window in prepacked] == plain
    return None if same else define(problem, target, vnni_factor, prepacked=True)


def cycles(problem: Problem, target: CpuTarget, vnni_factor: int = 1) -> float:
    """Return the cycles of a problem, its filter prepacked."""
    return direct.windows_cycles(phased_windows(problem, target, vnni_factor, True), target)


def phased_windows(problem: Problem, target: CpuTarget, vnni_factor: int, prepacked: bool) -> list[PhasedWindow]:
    """Return the windows of `define`."""
    flat = flatten(problem)
    windows = direct.direct_windows(phases_as_channels(flat), target, False, vnni_factor, prepacked, arrange=False)
    return [window.as_kind(PhasedWindow, transposed=flat) for window in windows]


def phases_as_channels(flat: Problem) -> Problem:
    """Return the problem whose output channels are those of all phases of the row of `flat`, in the order of their outputs.

    Output ``y = q*s + p`` sums tap ``k`` of data ``x`` with ``y + pad = x*s + k``. With ``pad = h*s + r`` that is
    ``x = q + h - j`` and ``k = p + r + j*s``: j is the tap of phase p, which has a weight where ``0 <= k < K``.
    """
    stride, outputs = flat.strides[-1], -(-flat.out_spatial[-1] // flat.strides[-1])
    first, last = _taps(flat)
    taps, begin = last - first + 1, flat.pads_begin[-1] // stride - first
    end = max(flat.in_spatial[-1] - 1 + taps - begin - outputs, 0)
    row = {"kernel": taps, "strides": 1, "out_spatial": outputs, "pads_begin": begin, "pads_end": end}
    changes = {name: (*getattr(flat, name)[:-1], value) for name, value in row.items()}
    return flat.with_(**changes, out_channels=flat.out_channels * stride)


def _taps(flat: Problem) -> tuple[int, int]:
    """Return the first and the last j for which some phase has a weight."""
    rest = flat.pads_begin[-1] % flat.strides[-1]
    return -(rest > 0), max((flat.kernel[-1] - 1 - rest) // flat.strides[-1], -(rest > 0))


@dataclass(frozen=True, kw_only=True)
class PhasedWindow(Window):
    """A window whose output channels are those of all phases of a row.

    Attributes
    ----------
    transposed
        The problem whose filter and outputs they are. Its phases are the faster index of channels where its outputs are
        planes, the slower one where channels lie together.
    """

    transposed: Problem

    def _parts(self, o: Expr) -> tuple[Expr, Expr]:
        """Return the phase, and the channel of a group, that output channel `o` is."""
        stride, channels = self.transposed.strides[-1], self.outputs // self.transposed.strides[-1]
        if channels == 1:
            return o, 0
        return (o % stride, o // stride) if self.problem.data_format == "NCX" else (o // channels, o % channels)

    def _tap(self, k: Expr, phase: Expr) -> Expr:
        """Return the tap of the filter that is a phase's `k`-th, if there is one."""
        rest, first = self.transposed.pads_begin[-1] % self.transposed.strides[-1], _taps(self.transposed)[0]
        return phase + rest + (k + first) * self.transposed.strides[-1]

    @property
    def _whole(self) -> bool:
        """Whether each phase has all taps."""
        stride = self.transposed.strides[-1]
        return self.transposed.kernel[-1] % stride == self.transposed.pads_begin[-1] % stride == 0

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return where in the filter the weight of tap, channel `c` and output `o` of group `g` is."""
        phase, channel = self._parts(o)
        *before, k = self.filter_taps(phases, taps)
        tap = self._tap(k, phase)
        if not self._whole:
            tap = tirx.max(0, tirx.min(tap, self.transposed.kernel[-1] - 1))
        outer = g * (self.problem.in_channels // self.problem.groups) + c
        spatial = [*before, tap]
        return [*spatial, channel, outer] if self.problem.filter_format == "XIO" else [outer, channel, *spatial]

    def filter_bounds(self, phases: Sequence[Expr], taps: Sequence[Expr], o: Expr) -> list[Expr]:
        """Return the conditions under which the filter has a weight there."""
        if self._whole:
            return []
        tap = self._tap(self.filter_taps(phases, taps)[-1], self._parts(o)[0])
        return [tap >= 0, tap < self.transposed.kernel[-1]]

    @property
    def stages_filter(self) -> bool:
        """Always: the filter has other taps."""
        return True

    @property
    def channels_in_filter(self) -> bool:
        """Whether summed channels, and outputs, are axes of the filter: where no phase lacks a tap, nor lie channels between."""
        return self._whole and self.outputs == self.transposed.strides[-1]

    @property
    def stores_rows(self) -> bool:
        """Never: neighbouring outputs of a row are those of other phases."""
        return False

    @property
    def stores_apart(self) -> bool:
        """Whether the outputs of a vector are of several planes, or of channels apart."""
        return not self._together

    @property
    def _together(self) -> bool:
        """Whether the outputs of a vector lie together in the output."""
        whole = self._piece == self.outputs or self._piece % self.lanes == 0
        return whole and self.transposed.out_spatial[-1] % self.transposed.strides[-1] == 0

    @property
    def _piece(self) -> int:
        """Output channels of the window that lie together in the output: all, or those of a group's pixel or of a channel's row."""
        stride = self.transposed.strides[-1]
        if self.problem.data_format == "NCX":
            return stride
        return self.outputs if self.groups == 1 else self.outputs // stride

    @property
    def shifted(self) -> bool:
        """Whether the last vectors of output channels are shifted inwards, to end with them."""
        return self._together and self._piece == self.outputs and self.lanes < self.outputs < self.padded_outputs

    @property
    def stores_vectors(self) -> bool:
        """Whether whole vectors of output channels lie together in the output."""
        return self._together and (self.shifted or self.padded_outputs == self.outputs)

    def stored_channel(self, g: Expr, o: Expr) -> Expr:
        """Return the output channel that the `o`-th of group `g` is of."""
        return g * (self.outputs // self.transposed.strides[-1]) + self._parts(self.output(o))[1]

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and where it is inside the output (None: always)."""
        rank, g = len(self.axes), indices[1]
        *ys, q = indices[2 + rank : -1]
        phase, stride = self._parts(self.output(indices[-1]))[0], self.transposed.strides[-1]
        ys.append(self.column(q) * stride + phase)
        stored, inside = [], []
        for number, (axis, p, y) in enumerate(zip(self.axes, indices[2 : 2 + rank], ys, strict=True)):
            extent = self.transposed.out_spatial[number]
            row = number == rank - 1
            stored.append(y if row else axis.store_index(p, y))
            always = extent % stride == 0 if row else axis.always_inside
            inside += [] if always else [stored[-1] < extent]
        offset: Expr = indices[0]
        channel, count = self.stored_channel(g, indices[-1]), self.transposed.out_channels
        places = list(zip(stored, self.transposed.out_spatial, strict=True))
        order = [*places, (channel, count)] if self.problem.data_format == "NXC" else [(channel, count), *places]
        for at, extent in order:
            offset = offset * extent + at
        return offset, tirx.all(*inside) if inside else None
