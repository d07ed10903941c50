"""Fit of the cost model's coefficients to times: least squares of the logarithms of estimates by times.

Choices depend on the order of estimates, so a common error of all algorithms of a problem counts less than differences between
their errors. Coefficients on which no time depends stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from ....targets.costs import Costs
from .cost import Counts

# Weight of the common error of a problem's algorithms, and of a coefficient's previous value; error (a logarithm) from which a time
# counts as an outlier; and the least coefficient, as logarithms are fitted.
ALIKE, STAY, OUTLIER, LEAST = 0.15, 0.05, 0.1, 1e-3
# Ratio to the fastest time from which an algorithm counts less, as it affects no choice; and the number of iterations.
NEAR, ROUNDS = 1.15, 60


@dataclass(frozen=True)
class Sample:
    """Seconds of a call of an algorithm's default schedule on one core, and the counts of its events."""

    signature: str
    algorithm: str
    seconds: float
    counts: Counts


def fit(samples: Sequence[Sample], costs: Costs) -> Costs:
    """Return `costs` with the coefficients of all events of `samples` fitted, and the residuals of each algorithm.

    The unit is kept: the median of direct's estimates does not change, because other coefficients, which are not fitted, cut schedules.
    """
    names = sorted({name for sample in samples for name, count in sample.counts.items() if count})
    before = np.array([max(costs.coefficient(name), LEAST) for name in names])
    events = np.array([[sample.counts.get(name, 0.0) for name in names] for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])
    anchors = [i for i, sample in enumerate(samples) if sample.algorithm == "direct"] or list(range(len(samples)))
    hertz = median(float(events[i] @ before / seconds[i]) for i in anchors)
    events /= (seconds * hertz)[:, None]
    problems = {signature: i for i, signature in enumerate(dict.fromkeys(sample.signature for sample in samples))}
    of = np.array([problems[sample.signature] for sample in samples])
    fastest = np.full(len(problems), np.inf)
    np.minimum.at(fastest, of, seconds)
    weights = np.minimum(1.0, NEAR * fastest[of] / seconds) ** 2
    found = _solve(events, np.log(before), weights, of)
    errors = np.log(events @ np.exp(found))
    changed = {name: float(f"{np.exp(value):.3g}") for name, value in zip(names, found, strict=True)}
    residuals = {
        name: round(float(np.std([errors[i] for i, sample in enumerate(samples) if sample.algorithm == name])), 2)
        for name in sorted({sample.algorithm for sample in samples})
    }
    return replace(with_coefficients(costs, changed), residuals=residuals)


def with_coefficients(costs: Costs, changed: dict[str, float]) -> Costs:
    """Return a row with changed coefficients, by their names."""
    for name, value in changed.items():
        group, _, last = name.rpartition(".")
        changes: dict[str, Any] = {last: value}
        costs = replace(costs, **({group: replace(getattr(costs, group), **changes)} if group else changes))
    return costs


def _solve(
    events: npt.NDArray[Any], start: npt.NDArray[Any], weights: npt.NDArray[Any], of: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return the logarithms of coefficients, by Gauss-Newton iterations with weights for outliers."""
    count = int(of.max()) + 1
    total = np.bincount(of, weights, count)

    def apart(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values minus their mean over each problem."""
        if values.ndim == 1:
            return values - (np.bincount(of, weights * values, count) / total)[of]
        return np.stack([apart(column) for column in values.T], axis=1)

    at = start.copy()
    for _ in range(ROUNDS):
        parts = events * np.exp(at)
        estimates = parts.sum(axis=1)
        errors, slopes = np.log(estimates), parts / estimates[:, None]
        matrix, side = STAY * np.eye(len(at)), STAY * (start - at)
        for error, slope, weight in ((apart(errors), apart(slopes), 1.0), (errors, slopes, ALIKE)):
            robust = weight * weights / np.hypot(error, OUTLIER)
            matrix += slope.T @ (robust[:, None] * slope)
            side -= slope.T @ (robust * error)
        at = at + np.clip(np.linalg.solve(matrix, side), -0.5, 0.5)
    return at
