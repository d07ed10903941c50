"""What a comparison of the zoo's networks found, and its file: one for each type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tvmconv.measuring.timing import Timing

from .result_files import read_file
from .zoo_contenders import Operator


@dataclass(frozen=True)
class ZooRow:
    """What was measured for one network.

    Attributes
    ----------
    network, kind
        Of `zoo_networks.NETWORKS`.
    ours
        Our time; None if we have none, and `unsupported` says why.
    peers
        Times of those peers that compute it.
    unsupported
        By contender, why it does not.
    errors
        By contender, the largest relative L2 error of its outputs.
    operators
        Ours, what takes longest first.
    date
        When it was measured, in UTC, by ISO 8601.
    load
        Processes that wanted a processor in the minute before.
    """

    network: str
    kind: str
    ours: Timing | None
    peers: dict[str, Timing]
    unsupported: dict[str, str]
    errors: dict[str, float]
    operators: tuple[Operator, ...]
    date: str
    load: float

    @property
    def fastest(self) -> str | None:
        """The name of the fastest peer, None if there is none."""
        return min(self.peers, key=lambda name: self.peers[name].median, default=None)

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


@dataclass(frozen=True)
class ZooResult:
    """What `benchmarks.zoo` found of one type: `rows`, one a network, measured as the rest says."""

    machine: str
    versions: dict[str, str]
    dtype: str
    threads: int
    rounds: int
    seconds: float
    rows: tuple[ZooRow, ...] = ()

    def with_row(self, row: ZooRow) -> ZooResult:
        """Return the same with a row, in the place of what was measured of its network before."""
        rows = {each.network: each for each in (*self.rows, row)}
        return replace(self, rows=tuple(rows.values()))


def read_result(path: Path) -> ZooResult:
    """Return the result in a file.

    Raises
    ------
    SourceError
        If there is no such file, or it holds none.
    """
    return read_file(path, _result, "python -m benchmarks.zoo")


def losses_first(rows: tuple[ZooRow, ...]) -> list[ZooRow]:
    """Return rows by their ratio, those first that have none."""
    return sorted(rows, key=lambda row: (row.ratio is not None, row.ratio or 0.0, row.network))


def _result(value: dict[str, Any]) -> ZooResult:
    return ZooResult(**{**value, "rows": tuple(map(_row, value["rows"]))})


def _row(value: dict[str, Any]) -> ZooRow:
    return ZooRow(
        **{
            **value,
            "ours": None if value["ours"] is None else Timing(**value["ours"]),
            "peers": {name: Timing(**timing) for name, timing in value["peers"].items()},
            "operators": tuple(Operator(**each) for each in value["operators"]),
        }
    )
