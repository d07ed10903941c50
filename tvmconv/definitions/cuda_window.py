"""What the definitions for GPUs share: the windows of a problem, their reads of data and filter, and their outputs.

The windows are those of `window.py`, one for a convolution and one for each class of stride phases of a transposed
one, without what CPUs need: lanes, padded rows and copies of data. Padding is a condition of each read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ..problem import Problem
from .backprop import backprop_axes, covers_output
from .definition import Definition, Place, fill, in_order
from .direct import convolution_axes
from .flatten import flatten
from .types import cuda_dtype
from .window import Axis, Expr, place

# From a window and data, filter and bias (or None) to the window's `out`, whose elements' places the window knows.
Express = Callable[[Any, te.Tensor, te.Tensor, te.Tensor | None], te.Tensor]


@dataclass(frozen=True)
class CudaWindow:
    """One dense window of a (flattened) problem; `index` ends its stages' names."""

    problem: Problem
    index: int
    axes: tuple[Axis, ...]

    @property
    def groups(self) -> int:
        """Groups of the problem."""
        return self.problem.groups

    @property
    def channels(self) -> int:
        """Channels summed for one output and tap."""
        return self.problem.in_channels // self.problem.groups

    @property
    def outputs(self) -> int:
        """Output channels of a group."""
        return self.problem.out_channels // self.problem.groups

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of (n, g, phases..., outputs..., o)."""
        phases, outputs = [axis.phases for axis in self.axes], [axis.outputs for axis in self.axes]
        return (self.problem.batch, self.groups, *phases, *outputs, self.outputs)

    def place(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices`, and where it is inside the output (None: always)."""
        return place(self.problem, self.axes, self.outputs, indices)

    def coordinates(self, phases: Sequence[Expr], outputs: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
        """Return the data coordinates that outputs of phases read for taps."""
        each = zip(self.axes, phases, outputs, taps, strict=True)
        return [axis.origin(p) + y * axis.step + k * axis.spacing for axis, p, y, k in each]

    def inside(self, coordinates: Sequence[Expr]) -> list[Expr]:
        """Return the conditions under which data coordinates are not padding."""
        bounds = []
        for axis, x in zip(self.axes, coordinates, strict=True):
            bounds += [x >= 0] if axis.lowest < 0 else []
            bounds += [x < axis.inputs] if axis.lowest + axis.extent > axis.inputs else []
        return bounds

    def data_indices(self, n: Expr, coordinates: Sequence[Expr], g: Expr, c: Expr) -> list[Expr]:
        """Return where in data channel `c` of group `g` is."""
        channel = g * self.channels + c
        return [n, *coordinates, channel] if self.problem.data_format == "NXC" else [n, channel, *coordinates]

    def filter_indices(self, g: Expr, phases: Sequence[Expr], taps: Sequence[Expr], c: Expr, o: Expr) -> list[Expr]:
        """Return where in the filter the weight of tap, channel `c` and output `o` of group `g` is."""
        spatial = [axis.filter_tap(p, k) for axis, p, k in zip(self.axes, phases, taps, strict=True)]
        if self.problem.op == "convolution":
            inner, outer = c, g * self.outputs + o
        else:
            inner, outer = o, g * self.channels + c
        return [*spatial, inner, outer] if self.problem.filter_format == "XIO" else [outer, inner, *spatial]


def define_cuda(
    problem: Problem,
    express: Express,
    make: Callable[[Problem, int, tuple[Axis, ...]], CudaWindow] = CudaWindow,
) -> Definition:
    """Define `problem` by the windows of its flattened form, made by `make`, each computed as `express` says.

    The output is filled first where no window writes it.
    """
    windows = cuda_windows(problem, make)
    return _definition(problem, flatten(problem), windows, express)


def cuda_windows(
    problem: Problem, make: Callable[[Problem, int, tuple[Axis, ...]], CudaWindow] = CudaWindow
) -> list[CudaWindow]:
    """Return the windows of a problem's flattened form, made by `make`."""
    flat = flatten(problem)
    spatial_axes = convolution_axes if flat.op == "convolution" else backprop_axes
    return [make(flat, index, axes) for index, axes in enumerate(spatial_axes(flat))]


def define_cuda_constant(problem: Problem) -> Definition:
    """Define a problem whose output is the bias alone, or empty."""
    return _definition(problem, problem, [], None)


def _definition(problem: Problem, flat: Problem, windows: Sequence[CudaWindow], express: Express | None) -> Definition:
    dtype = cuda_dtype(flat.dtype)
    data = te.placeholder(flat.data_shape, dtype, name="data")
    weights = te.placeholder(flat.filter_shape, dtype, name="filter")
    bias = te.placeholder(flat.bias_shape, dtype, name="bias") if flat.bias else None
    outs = [express(window, data, weights, bias) for window in windows] if express else []
    places: list[Place] = [window.place for window in windows]
    if not windows or (flat.op == "convolution_backprop_data" and not covers_output(flat)):
        outs.insert(0, fill(flat, bias, dtype))
        places.insert(0, in_order(flat))
    inputs = [data, weights, bias] if bias is not None else [data, weights]
    return Definition(problem, te.create_prim_func([*inputs, *outs]), list(windows), places)


def padded(bounds: list[Expr], value: Expr) -> Expr:
    """Return the f32 `value` where all of `bounds` hold, else 0."""
    return tirx.if_then_else(tirx.all(*bounds), value, tirx.const(0, "float32")) if bounds else value
