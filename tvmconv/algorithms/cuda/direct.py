"""Direct convolution on GPUs of any problem: a thread sums a few neighbouring outputs of a row in registers.

All other indices of outputs are flattened to one axis p, so that any number of outputs fills blocks of threads. In its order threads of a
warp access neighbours: channels are the fastest index of channels-last data, else outputs of a row.

    patch   data of the neighbours, f32, zero in padding                      [p, taps but the last..., c, column]
    acc     the sum, f32                                                      [p, neighbour]
    out     bias added, rounded once to the output type                       [p, neighbour]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

from tvm import te, tirx

from ...checks import within_reach
from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..data_dependence import covers_data as covers
from ..definition import Definition
from ..epilogue import Epilogue
from ..stage_names import ACC, OUT, PATCH, stage_name
from ..subconvolution import Axis, Expr, SubConvolution
from ..types import zero_outside
from .blocks import WARP, rounded_up
from .cost import estimate_direct as estimate
from .window import define_cuda

__all__ = ["THREADS", "DirectWindow", "covers", "define", "estimate"]

# Threads of a block at most: eight warps, two for each of a multiprocessor's four schedulers.
THREADS = 256
# Neighbouring outputs of a thread, if they share data: 4 outputs of 3 taps load 6 columns instead of 12. Where the threads of a warp are
# along a row, more neighbours spread a load over more cache lines: 2 outputs load 4 columns instead of 6.
NEIGHBOURS = {"NXC": 4, "NCX": 2}
# Threads that keep a GPU of some 100 multiprocessors busy, 512 each; with fewer threads, each has one output.
ENOUGH_THREADS = 100 * 512


@dataclass(frozen=True)
class DirectWindow(SubConvolution):
    """A window whose outputs are flattened to one axis p, except the neighbours that a thread computes."""

    @cached_property
    def neighbours(self) -> int:
        """Outputs of a row that a thread computes."""
        axis, most = self.axes[-1], NEIGHBOURS[self.problem.data_format]
        shares = axis.dilation == 1 and axis.stride < axis.taps
        return most if shares and prod(self.shape) >= most * ENOUGH_THREADS and axis.outputs >= most else 1

    @property
    def columns(self) -> int:
        """Columns of data that the neighbours of a thread read."""
        axis = self.axes[-1]
        return (self.neighbours - 1) * axis.stride + axis.span

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extents of the indices in p by name, slowest first: n, g, o, phases p0..., outputs y0..., the last one by `neighbours`."""
        phases = {f"p{i}": axis.phases for i, axis in enumerate(self.axes)}
        outputs = {f"y{i}": axis.outputs for i, axis in enumerate(self.axes)}
        last = len(self.axes) - 1
        outputs[f"y{last}"] = -(-outputs[f"y{last}"] // self.neighbours)
        # Phases of the last axis interleave in the output, so they are faster than its outputs.
        spatial = {**dict(list(phases.items())[:last]), **outputs, f"p{last}": phases[f"p{last}"]}
        channels = {"g": self.groups, "o": self.outputs}
        order = {**spatial, **channels} if self.problem.data_format == "NXC" else {**channels, **spatial}
        return {"n": self.problem.batch, **order}

    @property
    def total(self) -> int:
        """Extent of p without rounding up."""
        return prod(self.extents.values())

    @property
    def threads(self) -> int:
        """Extent of p: `total` rounded up to whole blocks, or to whole warps if it is less than a block."""
        return rounded_up(self.total, THREADS if self.total > THREADS else WARP)

    def split(self, p: Expr) -> dict[str, Expr]:
        """Return the indices in `p`; beyond `total`, only n is out of bounds."""
        parts: dict[str, Expr] = {}
        for name, extent in reversed(self.extents.items()):
            parts[name] = p if name == "n" else p % extent
            p = p // extent
        return parts

    def outputs_of(self, parts: dict[str, Expr], neighbour: Expr) -> list[Expr]:
        """Return the outputs (per axis, within their phases) of a thread's `neighbour`."""
        *ys, last = (parts[f"y{i}"] for i in range(len(self.axes)))
        return [*ys, last * self.neighbours + neighbour]

    def phases_of(self, parts: dict[str, Expr]) -> list[Expr]:
        """Return the phases of the outputs of a thread."""
        return [parts[f"p{i}"] for i in range(len(self.axes))]

    def coordinates(self, phases: Sequence[Expr], outputs: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
        """Return the data coordinates that outputs of phases read for taps, without quotients of the phases."""
        each = zip(self.axes, phases, outputs, taps, strict=True)
        return [_offset(axis, p) + y * axis.stride + k * axis.dilation for axis, p, y, k in each]

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices` (p, neighbour), and where it is inside the output."""
        p, neighbour = indices
        parts = self.split(p)
        ys = self.outputs_of(parts, neighbour)
        offset, inside = super().store_index([parts["n"], parts["g"], *self.phases_of(parts), *ys, parts["o"]])
        bounds = [] if inside is None else [inside]
        bounds += [p < self.total] if self.threads != self.total else []
        bounds += [ys[-1] < self.axes[-1].outputs] if self.axes[-1].outputs % self.neighbours else []
        return offset, tirx.all(*bounds) if bounds else None


def define(problem: Problem, target: CudaTarget) -> Definition:
    """Define a problem by windows of one output, or a few neighbours, a thread."""
    return define_cuda(problem, _express, DirectWindow)


def _offset(axis: Axis, phase: Expr) -> Expr:
    """Return the offset of a phase, chosen from constants.

    Phase and output are both remainders of p, and TVM 0.27's `iter_map_simplify` divides by zero in some sums of an output and
    the quotient that `axis.offset` returns: in ``t % 6 // 3 - (t % 3 - 1) // 3``.
    """
    offsets = [axis.offset(each) for each in range(axis.phases)]
    chosen: Expr = offsets[-1]
    for last, (value, following) in reversed(list(enumerate(pairwise(offsets)))):
        if value != following:
            chosen = tirx.Select(phase <= last, tirx.const(value, "int32"), chosen)
    return chosen


def _express(window: DirectWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    axes, number = window.axes, window.index
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(axes)]
    c = te.reduce_axis((0, window.channels), name="c")
    last, beyond = axes[-1], -axes[-1].outputs % window.neighbours  # outputs beyond the row, never stored

    def columns(p: Expr, *indices: Expr) -> Expr:
        *outer, channel, column = indices
        parts = window.split(p)
        phases, ys = window.phases_of(parts), window.outputs_of(parts, 0)
        x = window.coordinates(phases, ys, [*outer, 0])
        x[-1] = x[-1] + column
        bounds = [*([p < window.total] if window.threads != window.total else []), *window.inside(x)]
        if last.lowest + last.extent <= last.inputs < last.lowest + last.extent + beyond * last.stride:
            bounds.append(x[-1] < last.inputs)
        return zero_outside(bounds, data(*window.data_indices(parts["n"], x, parts["g"], channel)).astype("float32"))

    shape = (window.threads, *(axis.taps for axis in axes[:-1]), window.channels, window.columns)
    patch = te.compute(shape, columns, name=stage_name(PATCH, number))

    def total(p: Expr, neighbour: Expr) -> Expr:
        parts = window.split(p)
        value = patch(p, *taps[:-1], c, neighbour * last.stride + taps[-1] * last.dilation)
        at = window.filter_indices(parts["g"], window.phases_of(parts), taps, c, parts["o"])
        return te.sum(value * weights(*at).astype("float32"), axis=[*taps[:-1], c, taps[-1]])

    outputs = within_reach((window.threads, window.neighbours), "the output of whole blocks")
    acc = te.compute(outputs, total, name=stage_name(ACC, number))

    def rounded(p: Expr, neighbour: Expr) -> Expr:
        parts = window.split(p)
        channel = parts["g"] * window.outputs + parts["o"]
        return epilogue(acc(p, neighbour), channel, window.store_index([p, neighbour])[0])

    return te.compute(outputs, rounded, name=stage_name(OUT, number))
