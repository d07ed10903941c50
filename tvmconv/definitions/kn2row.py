"""The tensor expressions of a convolution tap by tap ("kn2row", Vasudevan et al. 2017): for wide padding, and deep filters.

Each tap of the filter is a matrix that multiplies the pixels of data which it meets, and only those: no product is with
padding. They are numbered through, row by row, and tiles take so many in turn, wherever rows end. Each output then
adds up what the taps gave it. Stages:

    data_pad     data widened to f32, channel-last, not padded      (absent when data, or its pairs, can be read in place)
    filter_pack  as in window.py
    acc          the products of a tap, f32, axes (n, g, taps..., pixel, o)
    part         acc copied out of registers
    sum          those of all taps added
    tile, out    as in window.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import prod
from operator import mul

from tvm import te, tirx

from ..checks import within_reach
from ..target import CpuTarget
from .filter import staged_filter
from .pairs import multiply_pairs
from .shapes import accumulators
from .types import widen
from .window import Axis, Expr, Window, finished


@dataclass(frozen=True)
class TapWindow(Window):
    """A window of one phase whose row is all its pixels, rounded up so that every good tile divides it."""

    @property
    def stages_data(self) -> bool:
        """Whether data is widened or laid out anew before it is read."""
        return self.packed == 1 and (self.problem.dtype != "f32" or self.problem.data_format == "NCX")


def tap_window(window: Window, target: CpuTarget) -> TapWindow:
    """Return the window as it is computed tap by tap."""
    most = accumulators(target)
    pixels = prod(axis.outputs for axis in window.axes)
    values = {field.name: getattr(window, field.name) for field in fields(Window)}
    return TapWindow(**{**values, "row": -(-pixels // most) * most})


def reached(axis: Axis, tap: Expr) -> tuple[Expr, Expr]:
    """Return the first output of an axis for which a tap meets data, and how many do."""
    start = axis.origin(0) + tap * axis.spacing  # what the tap of output 0 reads
    first = tirx.max(0, (axis.step - 1 - start) // axis.step)
    behind = tirx.min(axis.outputs, (axis.inputs + axis.step - 1 - start) // axis.step)
    return first, tirx.max(0, behind - first)


def express_kn2row(window: Window, data: te.Tensor, weights: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs..., o).

    Raises
    ------
    InvalidProblemError
        If a stage has more elements than 32-bit indices reach.
    """
    axes, rank, number = window.axes, len(window.axes), window.index
    read_data, read_filter = _data(window, data), staged_filter(window, weights)
    c = te.reduce_axis((0, window.channels), name="c")
    phase = [0] * rank
    multiply = multiply_pairs if window.packed == 2 else mul

    def pixels(k: Sequence[Expr]) -> Expr:
        return prod(reached(axis, tap)[1] for axis, tap in zip(axes, k, strict=True))

    def products(n: Expr, g: Expr, *indices: Expr) -> Expr:
        k, pixel, o = indices[:rank], indices[-2], indices[-1]
        # The last tile of a tap computes its last pixel again instead of ones that are not there.
        left = tirx.max(0, tirx.min(pixel, pixels(k) - 1))
        x: list[Expr] = []
        for axis, tap in reversed(list(zip(axes, k, strict=True))):
            first, count = reached(axis, tap)
            count = tirx.max(1, count)  # tiles of no pixels are skipped, but not what divides by their number
            x.insert(0, axis.origin(0) + (first + left % count) * axis.step + tap * axis.spacing)
            left = left // count
        value = read_data(n, x, g * window.channels + c)
        value = tirx.if_then_else(tirx.likely(pixel < pixels(k)), value, tirx.const(0, window.element_type))
        return te.sum(multiply(value, read_filter(g, phase, k, c, o)), axis=c)

    taps = [axis.taps for axis in axes]
    shape = (window.problem.batch, window.groups, *taps, window.row, window.padded_outputs)
    acc = te.compute(within_reach(shape, "the products of all taps"), products, name=f"acc{number}")

    def met(*indices: Expr) -> Expr:
        inside = tirx.likely(indices[-2] < pixels(indices[2 : 2 + rank]))
        return tirx.if_then_else(inside, acc(*indices), tirx.const(0, "float32"))

    part = te.compute(shape, met, name=f"part{number}")
    k = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(axes)]

    def total(n: Expr, g: Expr, *indices: Expr) -> Expr:
        outputs, o = indices[rank:-1], indices[-1]
        pixel: Expr = 0
        inside = []
        for axis, tap, y in zip(axes, k, outputs, strict=True):
            first, count = reached(axis, tap)
            inside += [y >= first, y < first + count]
            pixel = pixel * count + y - first
        value = tirx.if_then_else(
            tirx.all(*inside), part(n, g, *k, tirx.max(0, tirx.min(pixel, window.row - 1)), o), tirx.const(0, "float32")
        )
        return te.sum(value, axis=k)

    outputs = [axis.outputs for axis in axes]
    shape = (window.problem.batch, window.groups, *[1] * rank, *outputs, window.padded_outputs)
    return finished(window, te.compute(shape, total, name=f"sum{number}"), bias)


def _data(window: Window, data: te.Tensor) -> Callable[..., Expr]:
    """Return ``read(n, x, channel)``."""
    problem = window.problem
    if not window.stages_data:
        return lambda n, x, channel: data(n, *x, channel)

    def copied(n: Expr, *indices: Expr) -> Expr:
        x, channel = indices[:-1], indices[-1]
        return widen(data(n, *x, channel) if problem.data_format == "NXC" else data(n, channel, *x), problem.dtype)

    shape = (problem.batch, *problem.in_spatial, problem.in_channels)
    copy = te.compute(within_reach(shape, "the copy of data"), copied, name=f"data_pad{window.index}")
    return lambda n, x, channel: copy(n, *x, channel)
