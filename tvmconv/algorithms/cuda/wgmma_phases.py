"""Stride phases, by which `lowering/cuda/native/wgmma.cuh` reads data and filter for boxes of outputs.

A transposed convolution has the phases of its windows (`backprop.py`), a convolution one phase. Outputs that no tap meets, which no
window has, are phases without taps here, because boxes of all phases together store the whole output.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from ...problem import Problem
from ..axes import axes_of


@dataclass(frozen=True)
class Phase:
    """Outputs a step apart along each of three axes, which sum equally many taps.

    Attributes
    ----------
    first, outputs
        Coordinates of the first output, and number of outputs along each axis.
    taps
        Number of taps that each output sums along each axis; all 0 if no tap meets them.
    offset
        Data coordinates of the first output's first tap.
    first_tap
        Index of that tap among the filter's.
    """

    first: tuple[int, ...]
    outputs: tuple[int, ...]
    taps: tuple[int, ...]
    offset: tuple[int, ...]
    first_tap: int


@dataclass(frozen=True)
class Phases:
    """The phases of a flattened problem, those with the most taps first, and their common steps.

    Attributes
    ----------
    steps
        Distance between outputs of a phase along each axis.
    strides, dilations
        Distance in data between outputs of a phase, and between taps.
    tap_steps
        Distance between indices of taps of a phase along each axis.
    """

    phases: tuple[Phase, ...]
    steps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    tap_steps: tuple[int, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        """The most outputs of a phase along each axis."""
        return tuple(map(max, zip(*(phase.outputs for phase in self.phases), strict=True)))


def count_phases(flat: Problem) -> int:
    """Return the number of phases of a flattened problem."""
    return prod(map(min, _steps(flat), flat.out_spatial))


def _steps(flat: Problem) -> tuple[int, ...]:
    return (1,) * flat.rank if flat.op == "convolution" else flat.strides


@lru_cache(maxsize=64)
def phases_of(flat: Problem) -> Phases:
    """Return the phases of a flattened problem whose output depends on data."""
    steps = _steps(flat)
    places = [prod(flat.kernel[axis + 1 :]) for axis in range(flat.rank)]

    def outputs(first: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            len(range(start, extent, step)) for start, extent, step in zip(first, flat.out_spatial, steps, strict=True)
        )

    windows, found = axes_of(flat), {}
    for axes in windows:
        for numbers in product(*(range(axis.phases) for axis in axes)):
            each = list(zip(axes, numbers, strict=True))
            first = tuple(axis.store_index(number, 0) for axis, number in each)
            first_tap = sum(
                axis.filter_tap(number, 0) * place for (axis, number), place in zip(each, places, strict=True)
            )
            taps, offset = tuple(axis.taps for axis in axes), tuple(axis.offset(number) for axis, number in each)
            found[first] = Phase(first, outputs(first), taps, offset, first_tap)
    nothing = (0,) * flat.rank
    firsts = product(*(range(min(step, extent)) for step, extent in zip(steps, flat.out_spatial, strict=True)))
    phases = [found.get(first) or Phase(first, outputs(first), nothing, nothing, 0) for first in firsts]
    axes = windows[0]
    return Phases(
        tuple(sorted(phases, key=lambda phase: -prod(phase.taps))),
        steps,
        tuple(axis.stride for axis in axes),
        tuple(axis.dilation for axis in axes),
        tuple(
            (axis.filter_tap(0, 1) - axis.filter_tap(0, 0)) * place for axis, place in zip(axes, places, strict=True)
        ),
    )
