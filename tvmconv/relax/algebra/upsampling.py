"""Rule: repeating each pixel, then a convolution, is a transposed convolution, which does not write the repeated pixels.

Along an axis that is repeated ``s`` times, a tap ``t`` of a filter with pad ``p`` reads input ``i`` for the outputs
``i * s + m``, ``p - t <= m < p - t + s``. So tap ``m`` of the transposed filter is the sum of the taps that reach it: of 3 taps
repeated twice w2, w1 + w2, w0 + w1, w0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from ...problem import Problem
from ...targets.target import CpuTarget
from ..graph import Graph
from ..operators import TRANSPOSED
from ..problems import DTYPES, is_convolution
from ..simplify import static_shape
from .costs import pass_cycles, problem_cycles
from .maps import Array
from .reading import convolution, fixed
from .rounding import MOST, lost


@dataclass(frozen=True)
class Upsampled:
    """A transposed convolution in the place of repeated pixels and a convolution.

    Attributes
    ----------
    source
        What is repeated.
    filter
        Inputs, outputs of a group, and taps, as Relax has them.
    factors, begins, ends, groups
        Its strides and pads.
    """

    source: Any
    filter: Array
    factors: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    groups: int

    def written(self, source: Any, emit: Callable[[Any], Any]) -> Any:
        """Return its operator on what stands for the source."""
        return emit(
            TRANSPOSED[len(self.factors)](
                source, fixed(self.filter, source.ty.dtype), strides=list(self.factors),
                padding=[*self.begins, *self.ends], groups=self.groups,
            )
        )  # fmt: skip


def find_upsampled(graph: Graph, target: CpuTarget) -> Iterator[tuple[Any, Upsampled]]:
    """Give the convolutions of a function that one transposed convolution costs less than."""
    for variable in graph.values:
        call = graph.call(variable)
        if call is None or not is_convolution(call):
            continue
        found = _upsampled(call, graph, target)
        if found is not None:
            yield variable, found


def _upsampled(call: relax.Call, graph: Graph, target: CpuTarget) -> Upsampled | None:
    read = convolution(call, graph)
    if read is None or str(call.ty.dtype) not in DTYPES:
        return None
    repeated, map_ = read
    found = _repeated(repeated, graph)
    shape = static_shape(call.ty)
    if found is None or shape is None or {*map_.strides, *map_.dilations} != {1} or not map_.is_finite:
        return None
    source, factors = found
    if source.ty.dtype != call.ty.dtype:
        return None
    filter_ = map_.filter
    for axis, (factor, pad) in enumerate(zip(factors, map_.begins, strict=True)):
        filter_ = _spread(filter_, axis + 2, factor, pad)
    begins = tuple(taps - 1 - pad for taps, pad in zip(map_.taps, map_.begins, strict=True))
    ends = tuple(taps - 1 - pad for taps, pad in zip(map_.taps, map_.ends, strict=True))
    if min((*begins, *ends)) < 0:
        return None
    dtype = DTYPES[str(call.ty.dtype)]
    given = static_shape(source.ty) or ()
    wide = static_shape(repeated.ty) or ()
    common: dict[str, Any] = {
        "batch": shape[0],
        "out_channels": shape[1],
        "out_spatial": shape[2:],
        "in_channels": given[1],
        "dtype": dtype,
    }
    flat = Problem(
        op="convolution", in_spatial=wide[2:], kernel=map_.taps, strides=map_.strides, dilations=map_.dilations,
        pads_begin=map_.begins, pads_end=map_.ends, groups=map_.groups, **common,
    )  # fmt: skip
    transposed = Problem(
        op="convolution_backprop_data", in_spatial=given[2:], kernel=tuple(filter_.shape[2:]), strides=factors,
        dilations=map_.dilations, pads_begin=begins, pads_end=ends, groups=map_.groups, **common,
    )  # fmt: skip
    before = problem_cycles(flat, target) + pass_cycles(wide, dtype, 1, target) + pass_cycles(given, dtype, 1, target)
    if problem_cycles(transposed, target) >= before:
        return None
    # A pixel's output has a part of the taps.
    if dtype != "f32" and lost(filter_, dtype).sum() / prod(factors) > MOST * lost(map_.filter, dtype).sum():
        return None
    # Relax wants inputs first, and outputs of a group; ours has outputs, and inputs of a group.
    parts = np.split(filter_, map_.groups)
    return Upsampled(
        source, np.concatenate([each.swapaxes(0, 1) for each in parts]), factors, begins, ends, map_.groups
    )


def _spread(filter_: Array, axis: int, factor: int, pad: int) -> Array:
    """Return the filter whose tap ``m + taps - 1 - pad`` is the sum of those that reach the outputs ``i * factor + m``."""
    taps = filter_.shape[axis]
    shape = list(filter_.shape)
    shape[axis] = taps + factor - 1
    made = np.zeros(shape)
    for tap in range(taps):
        place = [slice(None)] * filter_.ndim
        place[axis] = slice(taps - 1 - tap, taps - 1 - tap + factor)
        made[tuple(place)] += np.take(filter_, [tap], axis)
    return made


def _repeated(variable: Any, graph: Graph) -> tuple[Any, tuple[int, ...]] | None:
    """Return what a variable repeats the pixels of, and how often along each axis; None: it does not, or others read it."""
    call = graph.call(variable)
    if call is None or len(graph.readers(variable)) != 1 or not call.op.name.startswith("relax.image.resize"):
        return None
    attrs, given, made = call.attrs, static_shape(call.args[0].ty), static_shape(call.ty)
    if (
        given is None
        or made is None
        or str(attrs.method) != "nearest_neighbor"
        or not str(attrs.layout).startswith("NC")
    ):
        return None
    if any(size % before for size, before in zip(made[2:], given[2:], strict=True)) or made[:2] != given[:2]:
        return None
    # Of whole factors these give the pixel that an output lies in; rounded otherwise, halves of pixels are shifted.
    modes = (str(attrs.coordinate_transformation_mode), str(attrs.rounding_method))
    if modes not in (
        ("asymmetric", "floor"),
        ("half_pixel", "round"),
        ("half_pixel", "round_prefer_floor"),
        ("half_pixel", "round_prefer_ceil"),
    ):
        return None
    return call.args[0], tuple(size // before for size, before in zip(made[2:], given[2:], strict=True))
