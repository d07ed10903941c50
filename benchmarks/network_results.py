"""Rows that benchmarks of whole networks have in common, and what tables say of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any, TypeVar

from tvmconv.measuring.timing import Timing

from .results import Compared


class RatedRow(Compared):
    """A network that was measured beside peers; `ours` is None if we have no time."""

    network: str
    ours: Timing | None
    unsupported: dict[str, str]
    date: str
    load: float

    @property
    def ratio(self) -> float | None:
        """The fastest peer's time / our time; None without one of them."""
        if self.fastest is None or self.ours is None:
            return None
        return self.peers[self.fastest].median / self.ours.median

    @property
    def least_ratio(self) -> float | None:
        """The same of the least times, which a busy machine disturbs less."""
        least = [timing.least for timing in self.peers.values()]
        return min(least) / self.ours.least if least and self.ours is not None else None


Result = TypeVar("Result", bound="NetworkRows")


class NetworkRows:
    """A result, a dataclass, whose rows are one a network."""

    rows: tuple[Any, ...]

    def with_row(self: Result, row: RatedRow) -> Result:
        """Return the same with a row, in the place of what was measured of its network before."""
        rows = {each.network: each for each in (*self.rows, row)}
        return replace(self, rows=tuple(rows.values()))  # type: ignore[type-var]


def mean_ratio(rows: Iterable[RatedRow]) -> float | None:
    """Return the geometric mean of the ratios, None if there are none."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return geometric_mean(ratios) if ratios else None


def ratio_cells(rows: Sequence[RatedRow], *bounds: float) -> tuple[str, ...]:
    """Return how many rows have a ratio, their geometric mean, the worst, and how many are below each of some bounds."""
    ratios, mean = {row.network: row.ratio for row in rows if row.ratio is not None}, mean_ratio(rows)
    if mean is None:
        return "0", *("",) * (2 + len(bounds))
    worst = min(ratios, key=ratios.__getitem__)
    below = (str(sum(ratio < bound for ratio in ratios.values())) for bound in bounds)
    return str(len(ratios)), f"{mean:.2f}", f"{ratios[worst]:.2f} ({worst})", *below


def span_cells(rows: Sequence[RatedRow]) -> tuple[str, str, str]:
    """Return when the first and the last row were measured, and the greatest load."""
    dates = [row.date[:16].replace("T", " ") for row in rows]
    return min(dates, default=""), max(dates, default=""), f"{max((row.load for row in rows), default=0.0):.1f}"
