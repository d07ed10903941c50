"""Col2im for free extents: each element of an image is the sum of the elements of the windows that cover it.

For fixed extents readers write a scatter, or a transposed convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tvm import relax, te, tirx


class FoldedAxis(NamedTuple):
    """Windows along an axis."""

    taps: int
    dilation: int
    begin: int
    end: int
    step: int

    def span(self, extent: Any) -> Any:
        """Return how far the first window can move along a padded axis of this extent."""
        return extent + self.begin + self.end - self.dilation * (self.taps - 1) - 1

    def at(self, place: Any, tap: Any, extent: Any) -> tuple[Any, Any]:
        """Return the window whose tap is at a place, and whether there is such a window."""
        begin = place + self.begin - tap * self.dilation
        is_one = tirx.all(begin >= 0, begin <= self.span(extent), tirx.floormod(begin, self.step) == 0)
        return tirx.floordiv(begin, self.step), is_one


def fold(builder: relax.BlockBuilder, data: relax.Expr, dims: Sequence[Any], axes: Sequence[FoldedAxis]) -> relax.Expr:
    """Return columns ``[..., channels * taps, windows]`` in f32 as an image ``[..., channels, height, width]`` of `dims`."""
    height, width = dims[-2:]
    vertical, horizontal = axes
    columns = horizontal.span(width) // horizontal.step + 1

    def folded(windows: te.Tensor) -> te.Tensor:
        down, right = (te.reduce_axis((0, each.taps), name) for each, name in zip(axes, ("down", "right"), strict=True))

        def element(*at: Any) -> Any:
            *rest, channel, y, x = at
            row, has_row = vertical.at(y, down, height)
            column, has_column = horizontal.at(x, right, width)
            tap = (channel * vertical.taps + down) * horizontal.taps + right
            value = windows(*rest, tap, row * columns + column)
            inside = tirx.if_then_else(tirx.all(has_row, has_column), value, tirx.const(0, "float32"))
            return te.sum(inside, [down, right])

        return te.compute(dims, element, "folded")

    return builder.emit_te(folded, data, primfunc_name_hint="fold")
