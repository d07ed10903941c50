"""Fewer, longer axes: the smallest Problem with the same arrays, element for element.

An axis with one tap, stride 1 and no padding is only carried along, so it merges with a neighbour of
its kind. A pointwise NXC convolution becomes one long row of pixels, which tiles without remainders
where 7x7 would not; a (1, 3, 3) filter becomes a two-dimensional problem with a larger batch.
"""

from __future__ import annotations

from math import prod

from ..problem import Problem


def flatten(problem: Problem) -> Problem:
    """Return the smallest equivalent Problem: each array has the same elements in the same order."""
    groups: list[list[int]] = []
    for axis in range(problem.rank):
        if groups and _carried(problem, axis) and _carried(problem, groups[-1][-1]):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    batch = problem.batch
    if problem.data_format == "NXC":
        # The batch lies next to the first axis. Keep one spatial axis.
        if _carried(problem, 0) and len(groups) > 1:
            batch *= prod(problem.in_spatial[axis] for axis in groups.pop(0))
        elif _carried(problem, 0):
            return _merged(problem, 1, groups, batch)
    return _merged(problem, batch, groups, 1)


def _carried(problem: Problem, axis: int) -> bool:
    return (
        problem.kernel[axis] == 1
        and problem.strides[axis] == 1
        and problem.pads_begin[axis] == 0
        and problem.in_spatial[axis] == problem.out_spatial[axis]
    )


def _merged(problem: Problem, batch: int, groups: list[list[int]], longer: int) -> Problem:
    def merge(values: tuple[int, ...]) -> tuple[int, ...]:
        extents = [prod(values[axis] for axis in group) for group in groups]
        return (extents[0] * longer, *extents[1:])

    def first(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[group[0]] for group in groups)

    return problem.with_(
        batch=batch,
        in_spatial=merge(problem.in_spatial),
        out_spatial=merge(problem.out_spatial),
        kernel=first(problem.kernel),
        strides=first(problem.strides),
        dilations=first(problem.dilations),
        pads_begin=first(problem.pads_begin),
        pads_end=first(problem.pads_end),
    )
