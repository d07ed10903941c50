"""Windows of one tap that leave pixels out: the others are copied together, into one long row that tiles without remainders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import prod

from ...targets.target import CpuTarget
from ..axes import convolution_axes
from ..subconvolution import Axis, Expr
from .tile import LEAST_GAIN, pixel_cycles, rounded_up
from .window import Window


@dataclass(frozen=True)
class GatheredWindow(Window):
    """A window of a problem with one axis, of all pixels, whose data lies along several.

    Attributes
    ----------
    along
        The axes along which data lies.
    """

    along: tuple[Axis, ...] = ()

    @property
    def stages_data(self) -> bool:
        """Always: pixels are copied together."""
        return True

    def in_data(self, x: list[Expr]) -> list[Expr]:
        """Return where in data the pixel `x` lies."""
        found: list[Expr] = []
        for axis in reversed(self.along):
            found.insert(0, x[0] % axis.outputs * axis.stride)
            x = [x[0] // axis.outputs]
        return found

    def filter_taps(self, p: Sequence[Expr], k: Sequence[Expr]) -> list[Expr]:
        """Return the filter's spatial indices of its one tap."""
        return [0 for _ in self.along]


def gathered(window: Window, target: CpuTarget) -> Window:
    """Return a window as one of pixels copied together, if it can be and that is worth it.

    The copy takes the time of a vector's multiply-adds of one step or less, and each element is in one for every vector of
    output channels.
    """
    problem, axes = window.problem, window.axes
    one_tap = all(axis.taps == axis.phases == 1 and not axis.padded for axis in axes)
    if not one_tap or len(axes) == 1 or window.across or problem.data_format == "NCX" or problem.op != "convolution":
        return window
    pixels, ones = (prod(axis.outputs for axis in axes),), {"kernel": (1,), "strides": (1,), "dilations": (1,)}
    zeros = {"pads_begin": (0,), "pads_end": (0,)}
    row = problem.with_(in_spatial=pixels, out_spatial=pixels, **ones, **zeros)
    values = {field.name: getattr(window, field.name) for field in fields(Window)}
    values |= {"problem": row, "axes": convolution_axes(row)[0], "row": pixels[0], "tile": 0}
    long = rounded_up(GatheredWindow(**values, along=axes), target)
    return long if pixel_cycles(long, target) < pixel_cycles(window, target) * (1 - LEAST_GAIN) else window
