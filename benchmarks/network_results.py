"""What a comparison of whole networks found, and its file: one for each type and batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, TypeVar

from tvmconv.measuring.timing import Timing

from .result_files import read_file
from .results import Compared

# By a peer's name, the package whose version is recorded; tables have them in this order.
PEERS = {
    "pytorch_nxc": "torch",
    "pytorch_ncx": "torch",
    "torch_compile": "torch",
    "openvino": "openvino",
    "onnxruntime": "onnxruntime",
}


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


@dataclass(frozen=True)
class NetworkRow(RatedRow):
    """What was measured for one network.

    Attributes
    ----------
    network
        A module of `benchmarks.models`.
    ours
        Our time.
    kernels, others
        The times of our kernels, called one after the other with what the network gives them; and of all else.
    peers
        Times of those peers that compute it.
    unsupported
        Why each other peer does not.
    by_torch
        Our layers that no kernel computes.
    date
        When it was measured, in UTC, by ISO 8601.
    load
        Processes that wanted a processor in the minute before, the benchmark's own not among them.
    """

    network: str
    ours: Timing
    kernels: Timing
    others: Timing
    peers: dict[str, Timing]
    unsupported: dict[str, str]
    by_torch: tuple[str, ...]
    date: str
    load: float

    @property
    def kernels_ratio(self) -> float | None:
        """The fastest peer's time / our kernels' alone."""
        return None if self.fastest is None else self.peers[self.fastest].median / self.kernels.median

    @property
    def by_parts(self) -> float:
        """Our time / that of its parts: what it takes beyond 1 is spent between them."""
        return self.ours.median / (self.kernels.median + self.others.median)


@dataclass(frozen=True)
class NetworkResult(NetworkRows):
    """What `benchmarks.networks` found of one type and batch.

    Attributes
    ----------
    machine, versions
        Where, and with what.
    dtype, batch
        Of all networks.
    threads, rounds, seconds
        How they were measured: each contender for `seconds` in each round.
    clock
        "wall", or "cpu": what a contender had of the processors.
    rows
        One a network.
    """

    machine: str
    versions: dict[str, str]
    dtype: str
    batch: int
    threads: int
    rounds: int
    seconds: float
    clock: str
    rows: tuple[NetworkRow, ...] = ()


def mean_ratio(rows: Iterable[RatedRow]) -> float | None:
    """Return the geometric mean of the ratios, None if there are none."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return geometric_mean(ratios) if ratios else None


def read_result(path: Path) -> NetworkResult:
    """Return the result in a file.

    Raises
    ------
    SourceError
        If there is no such file, or it holds none.
    """
    return read_file(path, _result, "python -m benchmarks.networks")


def _result(value: dict[str, Any]) -> NetworkResult:
    return NetworkResult(**{**value, "rows": tuple(map(_row, value["rows"]))})


def _row(value: dict[str, Any]) -> NetworkRow:
    peers = {name: Timing(**timing) for name, timing in value["peers"].items()}
    ours = {name: Timing(**value[name]) for name in ("ours", "kernels", "others")}
    return NetworkRow(**{**value, **ours, "peers": peers, "by_torch": tuple(value["by_torch"])})
