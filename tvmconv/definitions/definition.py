"""`Definition`: the unscheduled function of one algorithm for one problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import te, tirx

from ..problem import Problem
from ..target import CpuTarget
from .backprop import backprop_windows, covers_output, interleaved_windows
from .direct import convolution_windows
from .flatten import flatten
from .gathered import gathered
from .kn2row import express_kn2row, tap_window
from .planar import express_planar, planar_place, planar_window
from .reduced import express_reduced, reduced_window
from .shapes import KEPT_BYTES, shuffles
from .tile import rounded_up, whole_planes
from .types import kernel_dtype
from .window import Window, express, placeholders
from .winograd import express_winograd
from .winograd_tiles import Tiles, cut, lift

# From an output buffer's indices to (flat offset in the output, condition under which it is inside, or None: always).
Place = Callable[[list[Any]], tuple[Any, Any]]


@dataclass(frozen=True)
class Definition:
    """An unscheduled function, and how its arguments lie in the kernel's.

    Attributes
    ----------
    func
        Parameters: data, filter, bias if the problem has one, then one buffer for each of `outputs`. Data and
        filter have the flattened problem's shapes (data possibly by pairs): the same bytes in the same order.
    windows
        What `func` computes, in order: each a Window, on GPUs a CudaWindow.
    outputs
        The place of each output buffer's elements in the kernel's one output.
    """

    problem: Problem
    func: tirx.PrimFunc
    windows: Sequence[Any]
    outputs: list[Place]


def define(
    problem: Problem, target: CpuTarget, across: bool = False, packed: int = 1, ahead: bool = False
) -> Definition:
    """Define `problem` by direct windows, with lanes across groups or within one, and channels `packed` to an element.

    With `ahead`, as it is best where the filter is packed ahead.
    """
    flat = flatten(problem)
    shuffled = across and shuffles(problem, packed, target)
    windows = [
        replace(window, packed=packed, ahead=ahead, shuffles=shuffled) for window in _windows(flat, target, across)
    ]
    windows = [whole_planes(gathered(rounded_up(window, target), target), target) for window in windows]
    return _definition(problem, flat, windows, express, [window.place for window in windows], packed)


def define_kn2row(problem: Problem, target: CpuTarget, packed: int = 1, ahead: bool = False) -> Definition:
    """Define a convolution tap by tap; with `ahead`, as it is best where the filter is packed ahead."""
    flat = flatten(problem)
    windows = [
        replace(tap_window(window, target), packed=packed, ahead=ahead) for window in _windows(flat, target, False)
    ]
    return _definition(problem, flat, windows, express_kn2row, [window.place for window in windows], packed)


def define_planar(problem: Problem, target: CpuTarget, ahead: bool = False) -> Definition:
    """Define `problem` by windows whose lanes run along a row; with `ahead`, as it is best where the filter is packed ahead."""
    flat = flatten(problem)
    made = convolution_windows(flat, target, False) if flat.op == "convolution" else interleaved_windows(flat, target)
    windows = [replace(planar_window(window, target), ahead=ahead) for window in made]
    return _definition(problem, flat, windows, express_planar, [planar_place(window) for window in windows])


def define_reduced(problem: Problem, target: CpuTarget) -> Definition:
    """Define `problem` by windows whose lanes run along the channels that are summed."""
    flat = flatten(problem)
    windows = [reduced_window(window, target) for window in _windows(flat, target, False)]
    return _definition(problem, flat, windows, express_reduced, [window.place for window in windows])


def define_winograd(problem: Problem, target: CpuTarget, points: int) -> Definition:
    """Define `problem` by windows cut into tiles of `points` points along an axis."""
    windows = [cut(window, points, target) for window in winograd_windows(problem, target)]
    flat = lift(flatten(problem))
    return _definition(problem, flat, windows, express_winograd, [window.place for window in windows])


def winograd_windows(problem: Problem, target: CpuTarget) -> list[Window]:
    """Return the windows that `define_winograd` cuts into tiles, of three axes each."""
    return _windows(lift(flatten(problem)), target, False)


def winograd_ahead(problem: Problem, target: CpuTarget, points: int) -> Definition | None:
    """Return the definition that keeps the transformed filter, if it stays in a cache; None: it is made as it is used."""
    definition = define_winograd(problem, target, points)
    kept = [replace(window, ahead=True) for window in definition.windows if isinstance(window, Tiles)]
    return replace(definition, windows=kept) if sum(tiles.filter_bytes for tiles in kept) <= KEPT_BYTES else None


def define_constant(problem: Problem, target: CpuTarget) -> Definition:
    """Define a problem whose output is the bias alone, or empty."""
    return _definition(problem, problem, [], express, [])


def _windows(flat: Problem, target: CpuTarget, across: bool) -> list[Window]:
    make = convolution_windows if flat.op == "convolution" else backprop_windows
    return make(flat, target, across)


def _definition(
    problem: Problem,
    flat: Problem,
    windows: Sequence[Window],
    express_window: Callable[..., te.Tensor],
    places: list[Place],
    packed: int = 1,
) -> Definition:
    """Return the definition, which first fills the output where no window writes it."""
    data, weights, bias = placeholders(flat, packed)
    outs = [express_window(window, data, weights, bias) for window in windows]
    if not windows or (flat.op == "convolution_backprop_data" and not covers_output(flat)):
        outs.insert(0, fill(flat, bias, kernel_dtype(flat.dtype)))
        places = [in_order(flat), *places]
    inputs = [data, weights, bias] if bias is not None else [data, weights]
    return Definition(problem, te.create_prim_func([*inputs, *outs]), windows, places)


def fill(problem: Problem, bias: te.Tensor | None, dtype: str) -> te.Tensor:
    """The output, of TVM type `dtype`, as it is where no tap meets it. Named `fill`."""
    shape = (problem.batch, *problem.out_spatial, problem.out_channels)
    if problem.data_format == "NCX":
        shape = problem.output_shape
    channel_axis = problem.rank + 1 if problem.data_format == "NXC" else 1

    def value(*indices: Any) -> Any:
        return tirx.const(0, dtype) if bias is None else bias[indices[channel_axis]]

    return te.compute(shape, value, name="fill")


def in_order(problem: Problem) -> Place:
    """Return the place of an output buffer that has the output's shape."""
    strides = [prod(problem.output_shape[axis + 1 :]) for axis in range(len(problem.output_shape))]
    return lambda indices: (sum(i * s for i, s in zip(indices, strides, strict=True)), None)
