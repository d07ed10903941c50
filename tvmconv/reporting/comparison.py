"""Comparison of a bundle with another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import geometric_mean

from ..building.bench import BenchRow
from ..runtime.bundle import Bundle
from .kernels import seconds

# Ratios nearer to 1 count as neither gain nor loss; a schedule must win by as much to be recorded.
EVEN = 0.01


@dataclass(frozen=True)
class Pair:
    """One kernel of this bundle and the other bundle's algorithm for it (`name`), with the seconds of a call of both."""

    signature: str
    algorithm: str
    ours: float
    theirs: float
    name: str

    @property
    def ratio(self) -> float:
        """Ratio of the times; above 1, ours is faster."""
        return self.theirs / self.ours

    @property
    def verdict(self) -> int:
        """1: ours is faster, -1: slower, 0: neither."""
        return (self.ratio > 1 + EVEN) - (self.ratio < 1 - EVEN)


@dataclass(frozen=True)
class Comparison:
    """Ratios to the bundle named `other`, of at least one kernel."""

    other: str
    pairs: tuple[Pair, ...]

    @property
    def mean(self) -> float:
        """Geometric mean of the ratios."""
        return geometric_mean(pair.ratio for pair in self.pairs)


def with_bundle(other: Bundle, pairs: Iterable[tuple[BenchRow, BenchRow]]) -> Comparison | None:
    """Return the comparison of kernels that were timed in turn, None if there are none."""
    found = tuple(
        Pair(ours.signature, ours.algorithm, seconds(ours), seconds(theirs), theirs.algorithm) for ours, theirs in pairs
    )
    return Comparison(other.path.resolve().name, found) if found else None
