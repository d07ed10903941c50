"""Pairs of channels of all taps of a row, for pixels with one channel, whose pairs are half empty, or three, a quarter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ....problem import Problem
from ...axes import convolution_axes
from ...subconvolution import Axis, Expr
from .window import Window

# Least products that use a pair of the copy; copying a pair takes about three.
LEAST_USED = 32


@dataclass(frozen=True, kw_only=True)
class PairedTapsWindow(Window):
    """A window with one tap along the last axis, whose channels are those of all taps along `data_row`, data's last axis."""

    data_row: Axis

    @property
    def stages_data(self) -> bool:
        """Return True: the taps of a row are copied for each output."""
        return True

    @property
    def data_in_pairs(self) -> bool:
        """Return False: a pair may consist of two pixels."""
        return False

    @property
    def channels_in_filter(self) -> bool:
        """Return False: they include taps of a row."""
        return False

    def _tap(self, c: Expr) -> tuple[Expr, Expr]:
        per_tap = self.problem.in_channels // self.data_row.taps
        return c // per_tap, c % per_tap

    def in_data(self, x: list[Expr], c: Expr) -> tuple[list[Expr], Expr]:
        """Return data's coordinates and channel of channel `c` of the output `x`."""
        row, (k, c) = self.data_row, self._tap(c)
        return [*x[:-1], row.offset(0) + x[-1] * row.stride + k * row.dilation], c

    def data_bounds(self, x: list[Expr]) -> list[Expr]:
        """Return the conditions under which coordinates of `in_data` are not in the row's padding."""
        row = self.data_row
        return row.inside(x[-1], row.lowest, row.extent)

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return the filter's indices of the weight of channel `c` and output `o`."""
        k, c = self._tap(c)
        spatial = [*taps[:-1], k]
        return [*spatial, c, o] if self.problem.filter_format == "XIO" else [o, c, *spatial]


def pairs_taps(problem: Problem) -> bool:
    """Return whether pairs should span all taps of a row, not one pixel, whose channels would leave a place empty.

    Pixels of neighbouring taps must be neighbours in data, and enough products use a pair of the larger copy.
    """
    *others, taps = problem.kernel
    used = problem.out_channels * prod(others)
    neighbours = problem.data_format == "NXC" and taps > 1 and problem.dilations[-1] == 1
    few = problem.groups == 1 and problem.in_channels in (1, 3)
    return problem.op == "convolution" and neighbours and few and used >= LEAST_USED


def by_row_taps(window: Window) -> Window | None:
    """Return the window with pairs of the channels of all taps of a row; None if pairs of pixels are as good."""
    problem, row = window.problem, window.axes[-1]
    if window.vnni_factor == 1 or not pairs_taps(problem):
        return None

    def last(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*values[:-1], value)

    longer = problem.with_(
        in_spatial=last(problem.in_spatial, row.outputs),
        in_channels=problem.in_channels * row.taps,
        kernel=last(problem.kernel, 1),
        strides=last(problem.strides, 1),
        dilations=last(problem.dilations, 1),
        pads_begin=last(problem.pads_begin, 0),
        pads_end=last(problem.pads_end, 0),
    )
    return window.as_kind(PairedTapsWindow, problem=longer, axes=convolution_axes(longer)[0], data_row=row)
