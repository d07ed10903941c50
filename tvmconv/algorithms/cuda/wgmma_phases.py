"""Order in which `lowering/cuda/native/wgmma.cuh` reads data and filter for boxes of outputs: by stride phases.

The phases of a transposed convolution are those of its windows (`backprop.py`), of a convolution there is one. What
windows leave out, outputs that no tap meets, are phases without taps here, since a phase is stored by boxes, and all
together are the output.
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
    """Outputs, one in every so many along each of three axes, that sum equally many taps.

    Attributes
    ----------
    first, outputs
        The first one's place, and how many there are along each axis.
    taps
        How many each sums along each axis; 0 along all if no tap meets them.
    offset
        The data coordinates of the first output's first tap.
    first_tap
        Where that tap is among all of the filter's.
    """

    first: tuple[int, ...]
    outputs: tuple[int, ...]
    taps: tuple[int, ...]
    offset: tuple[int, ...]
    first_tap: int


@dataclass(frozen=True)
class Phases:
    """The phases of a flattened problem, those with the most taps first, and what all of them share.

    Attributes
    ----------
    steps
        From an output to the next of its phase, along each axis.
    strides, dilations
        From the data of an output to that of the next, and of a tap to that of the next.
    tap_steps
        From a tap to the next along each axis, among all of the filter's.
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
    """Return how many phases a flattened problem has."""
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
