"""Cost of filters that come from memory, as in networks too large for caches: events, and the fit of their coefficients."""

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
# Error of the relative increase of a call's time from which it counts as an outlier.
OUTLIER = 0.03


@dataclass(frozen=True)
class ColdSample:
    """Measured times of an algorithm's default schedule with a hot filter (from a cache) and a cold one (from memory).

    Attributes
    ----------
    ratio
        Time of a call with a cold filter divided by that with a hot one.
    cycles
        Estimated cycles with a hot filter.
    counts
        Counts of `cold_lines`.
    """

    ratio: float
    cycles: float
    counts: Counts


def cold_lines(problem: Problem, size: float) -> Counts:
    """Count the additional events of a filter of so many bytes that comes from memory, not a cache.

    All lines take memory bandwidth. A core waits for the first lines of each group, about as many as an L1 holds, until kernels and the
    hardware prefetch. Small filters therefore wait for memory, and large ones take bandwidth.
    """
    return {COLD: lines(size), WAIT: problem.groups * lines(min(size / problem.groups, L1_WAYS * L1_WAY_BYTES))}


def fit_cold(samples: Sequence[ColdSample], costs: Costs) -> Costs:
    """Return `costs` with the coefficients of cold lines fitted to samples; unchanged without samples.

    The fit is by nonnegative least squares of the relative increase of a call's time, with weights for outliers.
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
    """Return the two coefficients of nonnegative least squares."""
    both = np.linalg.lstsq(events, wanted, rcond=None)[0]
    if both.min() >= 0:
        return both
    alone = [max(float(column @ wanted / (column @ column)), 0.0) for column in events.T]
    ends = [np.array([alone[0], 0.0]), np.array([0.0, alone[1]])]
    return min(ends, key=lambda each: float(((events @ each - wanted) ** 2).sum()))
