"""Schedules for problems that were never tuned, from those of tuned problems like them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import inf, log2, prod

from ..algorithms.table import applicable
from ..problem import Problem
from ..signature import format_signature, parse_signature
from ..targets.target import Target
from .records import Record
from .search import Candidate, Space

# Distances of other differences, in terms of sizes: a size larger by a factor of 2 is at a distance of 1.
OTHER_TYPE, OTHER_LAYOUT, OTHER_FILTER_LAYOUT, OTHER_BIAS = 4.0, 2.0, 1.0, 0.25
# Weights: taps and strides decide which data a tile shares, so a factor in them changes more than one in a size.
TAPS, STRIDES = 2.0, 2.0
# Distance beyond which a search learns nothing: each of five sizes differs by a factor of nearly 4.
FARTHEST = 9.0
# Distance beyond which no schedule is taken over. `python -m benchmarks.transfer` on ResNet-50's and MobileNet's
# shapes (Zen 4, one thread, 24 trials each): up to here 5 schedules, geometric mean of the gain 1.024, the least
# 1.001; the one from further away lost 1 %.
NEAR = 4.0


def distance(one: Problem, other: Problem) -> float:
    """Return the distance of two problems: 0 for equal ones, infinite if one's schedule is of no use for the other."""
    if (one.op, one.rank, _grouping(one)) != (other.op, other.rank, _grouping(other)):
        return inf
    sizes = sum(_far(a, b) for a, b in zip(_sizes(one), _sizes(other), strict=True))
    taps = TAPS * _far(prod(one.kernel), prod(other.kernel))
    strides = STRIDES * sum(_far(a, b) for a, b in zip(one.strides, other.strides, strict=True))
    dilations = sum(_far(a, b) for a, b in zip(one.dilations, other.dilations, strict=True))
    names = (
        OTHER_TYPE * (one.dtype != other.dtype)
        + OTHER_LAYOUT * (one.data_format != other.data_format)
        + OTHER_FILTER_LAYOUT * (one.filter_format != other.filter_format)
        + OTHER_BIAS * ((one.bias, one.epilogue) != (other.bias, other.epilogue))
    )
    return sizes + taps + strides + dilations + names


def nearest(problem: Problem, records: Iterable[Record]) -> list[Record]:
    """Return the records of other problems that are near enough to learn from, the nearest first."""
    signature = format_signature(problem)
    others = [record for record in records if record.signature != signature]
    far = [(distance(problem, _problem(record.signature)), record.key, record) for record in others]
    return [record for away, _, record in sorted(far, key=lambda each: each[:2]) if away <= FARTHEST]


def donor(problem: Problem, target: Target, math: str, records: Iterable[Record]) -> Record | None:
    """Return the record whose schedule `problem` may take over; None if the default schedule is as promising.

    It is the nearest one of an algorithm that covers the problem, at most `NEAR` away, unless its own problem's default schedule won.

    Parameters
    ----------
    target, math
        As in `tvmconv.algorithms.table.applicable`.
    records
        Records of the same target.
    """
    near = nearest(problem, records)
    # Most problems have none, and to order algorithms takes estimates of each.
    names = {algorithm.name for algorithm in applicable(problem, target, math)} if near else set()
    found = next((record for record in near if record.algorithm in names), None)
    if found is None or found.seconds == found.default_seconds:
        return None
    return found if distance(problem, _problem(found.signature)) <= NEAR else None


def adapt(candidate: Candidate, spaces: Sequence[Space]) -> Candidate | None:
    """Return the schedule in `spaces` whose decisions are most like those of `candidate`, which is another problem's.

    Of its algorithm's sketches with as many choices, the one is taken whose allowed values are nearest to the candidate's,
    by their ratios; of several, the one with the candidate's number. None if there is no such sketch.
    """
    fitting: list[tuple[float, bool, Candidate]] = []
    for space in spaces:
        if space.algorithm != candidate.algorithm:
            continue
        for number, sketch in enumerate(space.sketches):
            if len(sketch.options) != len(candidate.decisions):
                continue
            pairs = list(zip(candidate.decisions, sketch.options, strict=True))
            decisions = tuple(min(allowed, key=lambda value: _far(value, wanted)) for wanted, allowed in pairs)
            off = sum(map(_far, decisions, candidate.decisions))
            fitting.append((off, number != candidate.sketch, Candidate(space.algorithm, number, decisions)))
    return min(fitting, key=lambda each: each[:2])[2] if fitting else None


# Cached: a build looks at every record for every problem.
_problem = lru_cache(maxsize=None)(parse_signature)


def _grouping(problem: Problem) -> str:
    return "dense" if problem.groups == 1 else "depthwise" if problem.is_depthwise else "grouped"


def _sizes(problem: Problem) -> tuple[int, ...]:
    """Return batch, groups, channels of a group, pixels of a row of the output, and rows."""
    groups = problem.groups
    return (
        problem.batch,
        groups,
        problem.in_channels // groups,
        problem.out_channels // groups,
        problem.out_spatial[-1],
        prod(problem.out_spatial[:-1]),
    )


def _far(one: int, other: int) -> float:
    """Return the binary logarithm of the ratio of the larger number to the smaller."""
    return abs(log2((one or 0.5) / (other or 0.5)))
