"""What a comparison of the zoo's networks found, and its file: one for each type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvmconv.measuring.timing import Timing

from .network_results import NetworkRows, RatedRow
from .result_files import read_file
from .zoo_contenders import Operator


@dataclass(frozen=True)
class ZooRow(RatedRow):
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
    written
        Our time without the algebra of fixed filters, if that was asked for.
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
    written: Timing | None = None


@dataclass(frozen=True)
class ZooResult(NetworkRows):
    """What `benchmarks.zoo` found of one type: `rows`, one a network, measured as the rest says."""

    machine: str
    versions: dict[str, str]
    dtype: str
    threads: int
    rounds: int
    seconds: float
    rows: tuple[ZooRow, ...] = ()


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
            **{name: Timing(**value[name]) for name in ("ours", "written") if value.get(name) is not None},
            "peers": {name: Timing(**timing) for name, timing in value["peers"].items()},
            "operators": tuple(Operator(**each) for each in value["operators"]),
        }
    )
