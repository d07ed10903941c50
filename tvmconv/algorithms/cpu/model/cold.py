"""Model the time of a filter that comes from memory, as in a network too large for caches: events and coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....problem import Problem
from ....targets.costs import Costs
from ....targets.cpus import L1_WAY_BYTES, L1_WAYS
from .cost import Counts, lines
from .fit import ROUNDS, with_coefficients

COLD, WAIT = "lines.cold", "lines.cold_wait"
# Error, of the ratio by which a call takes longer, from which on a time counts as an outlier.
OUTLIER = 0.03


@dataclass(frozen=True)
class ColdSample:
    """Measured time of an algorithm's default schedule, with its filter from a cache and from memory.

    Attributes
    ----------
    ratio
        The time of a call with a cold filter by that with a hot one.
    cycles
        Its estimate with a hot one.
    counts
        What `cold_lines` counts.
    """

    ratio: float
    cycles: float
    counts: Counts


def cold_lines(problem: Problem, size: float) -> Counts:
    """Count the events of a filter of so many bytes that comes from memory, beside those of one that a cache keeps.

    All of it takes a share of the memory's bandwidth. A core waits for the first lines of each group: kernels and the hardware fetch
    ahead within one, about as much as an L1 has. So a small filter waits for memory, and a large one takes bandwidth.
    """
    return {COLD: lines(size), WAIT: problem.groups * lines(min(size / problem.groups, L1_WAYS * L1_WAY_BYTES))}


def fit_cold(samples: Sequence[ColdSample], costs: Costs) -> Costs:
    """Return `costs` with the coefficients of cold lines fitted to samples; as they were, if there is none.

    Least squares of how many times as long a call takes, none below 0, with weights for outliers.
    """
    if not samples:
        return costs
    events = np.array([[each.counts[name] / each.cycles for name in (COLD, WAIT)] for each in samples])
    longer = np.array([each.ratio - 1 for each in samples])
    weights, found = np.ones(len(samples)), np.zeros(2)
    for _ in range(ROUNDS):
        found = _not_negative(events * weights[:, None], longer * weights)
        weights = np.hypot(events @ found - longer, OUTLIER) ** -0.5
    return with_coefficients(costs, {COLD: float(f"{found[0]:.3g}"), WAIT: float(f"{found[1]:.3g}")})


def _not_negative(events: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the two coefficients of least squares, neither below 0."""
    both = np.linalg.lstsq(events, wanted, rcond=None)[0]
    if both.min() >= 0:
        return both
    alone = [max(float(column @ wanted / (column @ column)), 0.0) for column in events.T]
    ends = [np.array([alone[0], 0.0]), np.array([0.0, alone[1]])]
    return min(ends, key=lambda each: float(((events @ each - wanted) ** 2).sum()))
