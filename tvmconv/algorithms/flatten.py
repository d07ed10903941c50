"""The smallest Problem with the same sums: each array has the same elements in the same order.

Algorithms see this one, so that all ways to write one computation get one kernel:

- Axes that are only carried along (one tap, stride 1, no padding) merge: a pointwise NXC convolution becomes one long row of
  pixels, which tiles without remainders where 7x7 would not; a (1, 3, 3) filter becomes a two-dimensional problem with a
  larger batch. Axes of one element go: a K x 1 filter over data of width 1 is a one-dimensional convolution.
- An axis whose taps are all of its data is more channels that are summed: 3x300 taps of text, a classifier's 7x7. So are the taps of
  a last axis that patches share among them, none reading what another reads: a row of one is one long pixel.
- A transposed axis of one element of data is more output channels: one pixel that becomes an image is a product of matrices.
- Without other pixels than one, channels are last; a transposed convolution of one tap is a convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod

from ..problem import Problem

_AXES = ("in_spatial", "out_spatial", "kernel", "strides", "dilations", "pads_begin", "pads_end")


@lru_cache(maxsize=256)  # each algorithm asks for it several times
def flatten(problem: Problem) -> Problem:
    """Return the smallest equivalent Problem: each array has the same elements in the same order.

    It may have more output channels, several for each of `problem`'s (`original_channel`).
    """
    if problem.is_empty or problem.is_constant:
        return problem
    smaller = _merge(problem)
    for rule in (_without_unit_axes, _fold, _pixels_last, _forward):
        smaller = rule(smaller)
    return smaller if smaller == problem else flatten(smaller)


def original_channel(problem: Problem, flat: Problem) -> Callable[[object], object]:
    """Return which output channel of `problem` one of its flattened form's is of."""
    each = flat.out_channels // max(problem.out_channels, 1)
    if each <= 1:
        return lambda channel: channel
    # Axes between channels and output pixels become the faster index where channels came first.
    count = problem.out_channels
    return lambda channel: channel // each if problem.data_format == "NCX" else channel % count  # type: ignore[operator]


def _merge(problem: Problem) -> Problem:
    """Merge axes that are only carried along with neighbours of their kind, or with the batch."""
    groups: list[list[int]] = []
    for axis in range(problem.rank):
        if groups and _is_carried(problem, axis) and _is_carried(problem, groups[-1][-1]):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    batch = problem.batch
    longer = 1
    if problem.data_format == "NXC" and _is_carried(problem, 0):
        # The batch lies next to the first axis. Keep one spatial axis.
        if len(groups) > 1:
            batch *= prod(problem.in_spatial[axis] for axis in groups.pop(0))
        else:
            batch, longer = 1, batch

    def merge(values: tuple[int, ...]) -> tuple[int, ...]:
        extents = [prod(values[axis] for axis in group) for group in groups]
        return (extents[0] * longer, *extents[1:])

    changes = {name: tuple(getattr(problem, name)[group[0]] for group in groups) for name in _AXES[2:]}
    spatial = {name: merge(getattr(problem, name)) for name in _AXES[:2]}
    return problem.with_(batch=batch, **spatial, **changes)


def _is_carried(problem: Problem, axis: int) -> bool:
    return (
        problem.kernel[axis] == 1
        and problem.strides[axis] == 1
        and problem.pads_begin[axis] == 0
        and problem.in_spatial[axis] == problem.out_spatial[axis]
    )


def _without_unit_axes(problem: Problem) -> Problem:
    """Drop axes with one element of data, filter and output, but the last of all."""
    units = [axis for axis in range(problem.rank) if _is_carried(problem, axis) and problem.in_spatial[axis] == 1]
    for axis in reversed(units[: problem.rank - 1]):
        problem = _without(problem, axis)
    return problem


def _fold(problem: Problem) -> Problem:
    """Make an axis that lies next to the channels more of them: all its data is summed, or all its outputs are of one element.

    And the taps of a last axis that is cut into patches.
    """
    together = {("NXC", "XIO"): problem.rank - 1, ("NCX", "OIX"): 0}
    axis = together.get((problem.data_format, problem.filter_format))
    if axis is None or problem.groups > 1 or problem.kernel[axis] == 1:
        return problem
    x, y, taps = problem.in_spatial[axis], problem.out_spatial[axis], problem.kernel[axis]
    if problem.dilations[axis] > 1 or problem.pads_begin[axis] or problem.pads_end[axis]:
        return problem
    if problem.op == "convolution" and x == taps:
        return _without(problem, axis, in_channels=problem.in_channels * x)
    if problem.op == "convolution" and problem.data_format == "NXC" and problem.strides[axis] == taps and x == y * taps:
        return _carrying(problem, y, in_channels=problem.in_channels * taps)
    if problem.op != "convolution" and x == 1 and y == taps:
        return _without(problem, axis, out_channels=problem.out_channels * y)
    return problem


def _carrying(problem: Problem, pixels: int, **channels: int) -> Problem:
    """Return a problem whose last axis is so many pixels that are only carried along."""
    last = {"in_spatial": pixels, "out_spatial": pixels, "kernel": 1, "strides": 1}
    return problem.with_(**{name: (*getattr(problem, name)[:-1], value) for name, value in last.items()}, **channels)


def _without(problem: Problem, axis: int, **channels: int) -> Problem:
    """Return a problem less one axis; the last of all becomes one element."""
    if problem.rank == 1:
        ones = dict.fromkeys(("in_spatial", "out_spatial", "kernel"), (1,))
        return problem.with_(**ones, **channels)
    axes = {name: (values := getattr(problem, name))[:axis] + values[axis + 1 :] for name in _AXES}
    return problem.with_(**axes, **channels)


def _pixels_last(problem: Problem) -> Problem:
    """Put channels last where there is one pixel."""
    single = prod(problem.in_spatial) == prod(problem.out_spatial) == prod(problem.kernel) == 1
    return problem.with_(data_format="NXC") if single else problem


def _forward(problem: Problem) -> Problem:
    """Make a transposed convolution of one tap a convolution: inputs and outputs of its filter change names."""
    carried = all(_is_carried(problem, axis) for axis in range(problem.rank))
    if problem.op == "convolution" or problem.groups > 1 or not carried:
        return problem
    other = {"XIO": "OIX", "OIX": "XIO"}
    return problem.with_(op="convolution", filter_format=other[problem.filter_format])
