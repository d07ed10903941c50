"""The smallest Problem with the same sums: each array has the same elements in the same order.

Algorithms compute the flattened problem, so that all ways to write a computation share a kernel:

- Carried axes (one tap, stride 1, no padding) are merged: a pointwise NXC convolution becomes one long row of pixels, which tiles
  divide better than 7x7; a (1, 3, 3) filter becomes a two-dimensional problem with a larger batch. Axes of one element are
  dropped: a K x 1 filter over data of width 1 is a one-dimensional convolution.
- An axis whose taps span all its data becomes input channels: 3x300 taps of text, a classifier's 7x7. So does a last axis that
  the taps cut into patches without overlap, each of which becomes a pixel.
- A transposed axis of one element of data becomes output channels: one pixel that becomes an image is a product of matrices.
- Data of one pixel is channels last, and a transposed convolution of one tap a convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod

from ..problem import Problem

_AXES = ("in_spatial", "out_spatial", "kernel", "strides", "dilations", "pads_begin", "pads_end")


@lru_cache(maxsize=256)  # each algorithm calls it several times
def flatten(problem: Problem) -> Problem:
    """Return the smallest equivalent Problem: each array has the same elements in the same order.

    Each output channel of `problem` may become several (`original_channel`).
    """
    if problem.is_empty or problem.is_constant:
        return problem
    smaller = _merge(problem)
    for rule in (_without_unit_axes, _fold, _pixels_last, _forward):
        smaller = rule(smaller)
    return smaller if smaller == problem else flatten(smaller)


def original_channel(problem: Problem, flat: Problem) -> Callable[[object], object]:
    """Return the function from an output channel of the flattened form to that of `problem`."""
    each = flat.out_channels // max(problem.out_channels, 1)
    if each <= 1:
        return lambda channel: channel
    # A folded axis is the faster index if channels came first, else the slower one.
    count = problem.out_channels
    return lambda channel: channel // each if problem.data_format == "NCX" else channel % count  # type: ignore[operator]


def _merge(problem: Problem) -> Problem:
    """Merge carried axes with carried neighbours, or with the batch."""
    groups: list[list[int]] = []
    for axis in range(problem.rank):
        if groups and _is_carried(problem, axis) and _is_carried(problem, groups[-1][-1]):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    batch = problem.batch
    longer = 1
    if problem.data_format == "NXC" and _is_carried(problem, 0):
        # The batch is adjacent to the first axis. One spatial axis stays.
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
    """Drop axes with one element of data, filter and output, but keep at least one axis."""
    units = [axis for axis in range(problem.rank) if _is_carried(problem, axis) and problem.in_spatial[axis] == 1]
    for axis in reversed(units[: problem.rank - 1]):
        problem = _without(problem, axis)
    return problem


def _fold(problem: Problem) -> Problem:
    """Fold an axis adjacent to the channels into these, if all its data is summed, or all its outputs are of one element of data.

    A last axis that is cut into patches is folded by its taps.
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
    """Return a problem whose last axis is carried, and has so many pixels."""
    last = {"in_spatial": pixels, "out_spatial": pixels, "kernel": 1, "strides": 1}
    return problem.with_(**{name: (*getattr(problem, name)[:-1], value) for name, value in last.items()}, **channels)


def _without(problem: Problem, axis: int, **channels: int) -> Problem:
    """Return a problem without one axis; an only axis becomes one element."""
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
    """Make a transposed convolution of one tap a convolution, whose filter's inputs are the other's outputs."""
    carried = all(_is_carried(problem, axis) for axis in range(problem.rank))
    if problem.op == "convolution" or problem.groups > 1 or not carried:
        return problem
    other = {"XIO": "OIX", "OIX": "XIO"}
    return problem.with_(op="convolution", filter_format=other[problem.filter_format])
