"""Transposed convolutions as replacements: cost and operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ...problem import Problem
from ...targets.target import CpuTarget
from ..ir.constants import static_shape
from ..ir.operators import TRANSPOSED
from ..ir.problem_of import DTYPES
from .costs import problem_cycles
from .maps import Array, LinearMap
from .reading import make_constant


class Transposed(Protocol):
    """Transposed convolution found by a rule."""

    @property
    def source(self) -> Any:
        """Input."""

    @property
    def map(self) -> LinearMap:
        """The original map, with the same groups, dilations and bias."""

    @property
    def factors(self) -> tuple[int, ...]:
        """Strides along the axes."""

    @property
    def filter(self) -> Array:
        """Filter: outputs, inputs of a group, taps."""

    @property
    def pads(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Pads at the beginnings and ends of axes."""


def transposed_cycles(found: Transposed, channels: int, pixels: tuple[int, ...], target: CpuTarget) -> float:
    """Return the cost for an output of some channels and pixels."""
    given, (begins, ends), map_ = static_shape(found.source.ty) or (), found.pads, found.map
    return problem_cycles(
        Problem(
            op="convolution_backprop_data", batch=given[0], in_channels=given[1], in_spatial=given[2:],
            out_channels=channels, out_spatial=pixels, kernel=found.filter.shape[2:], strides=found.factors,
            dilations=map_.dilations, pads_begin=begins, pads_end=ends, groups=map_.groups,
            dtype=DTYPES[str(found.source.ty.dtype)], bias=map_.bias is not None,
        ),
        target,
    )  # fmt: skip


def transpose(found: Transposed, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
    """Return a transposed convolution, without its bias, applied to its source."""
    (begins, ends), groups = found.pads, found.map.groups
    # Relax wants inputs first, and outputs of a group; ours has outputs, and inputs of a group.
    filter_ = np.concatenate([each.swapaxes(0, 1) for each in np.split(found.filter, groups)])
    return emit(
        TRANSPOSED[len(found.factors)](
            visit(found.source), make_constant(filter_, found.source.ty.dtype), strides=list(found.factors),
            padding=[*begins, *ends], groups=groups,
        )
    )  # fmt: skip
