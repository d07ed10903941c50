"""ATen's ``col2im`` of free extents, each element the sum of those of the windows that cover it: of others PyTorch writes where each goes."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from .arguments import Converters, Given


def _fold(given: Given) -> relax.Expr:
    """Return ``col2im``, in f32."""
    *lead, channels, height, width = given.made_dims()
    names = ("kernel_size", "dilation", "padding", "stride")
    vertical, horizontal = ([given[name][axis] for name in names] for axis in range(2))
    taps = (vertical[0], horizontal[0])
    tap, _, pad, step = horizontal
    columns = (width + 2 * pad - horizontal[1] * (tap - 1) - 1) // step + 1

    def folded(windows: te.Tensor) -> te.Tensor:
        down, right = (te.reduce_axis((0, extent), name) for extent, name in zip(taps, ("down", "right"), strict=True))

        def element(*at: Any) -> Any:
            *rest, channel, y, x = at
            row, has_row = _window(y, down, height, *vertical)
            column, has_column = _window(x, right, width, *horizontal)
            place = (*rest, (channel * taps[0] + down) * taps[1] + right, row * columns + column)
            inside = tirx.if_then_else(tirx.all(has_row, has_column), windows(*place), tirx.const(0, "float32"))
            return te.sum(inside, [down, right])

        return te.compute((*lead, channels, height, width), element, "folded")

    data = given.of_type(given["self"], "float32")
    return given.of_type(given.builder.emit_te(folded, data, primfunc_name_hint="fold"), given.dtype)


def _window(at: Any, tap: Any, extent: Any, taps: int, dilation: int, pad: int, step: int) -> tuple[Any, Any]:
    """Return the window of an axis whose element of a tap is at a place, and whether there is one."""
    begin = at + pad - tap * dilation
    last = extent + 2 * pad - dilation * (taps - 1) - 1
    return tirx.floordiv(begin, step), tirx.all(begin >= 0, begin <= last, tirx.floormod(begin, step) == 0)


FOLDING: Converters = {"col2im.default": _fold}
