"""What a comparison found, and its file: one for each type, layout and way to build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from tvmconv.measuring.peak import Peak
from tvmconv.measuring.timing import Timing
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature

from .peers import INTEGERS
from .result_files import read_file

# Peers that take the filter in every call, as it is; the others have packed it before.
GIVEN_FILTERS = ("pytorch_ncx", "pytorch_nxc")


class Compared:
    """What was measured beside peers."""

    peers: dict[str, Timing]

    @property
    def fastest(self) -> str | None:
        """The name of the fastest peer, None if there is none."""
        return min(self.peers, key=lambda name: self.peers[name].median, default=None)


@dataclass(frozen=True)
class Row(Compared):
    """What was measured for one problem.

    Attributes
    ----------
    suite, signature
        The problem, and which file it is from.
    flops, nbytes
        Floating point operations by the formula; bytes read and written at the least.
    algorithm, origin
        Which of our kernels: its algorithm, and whether its schedule is the default, transferred or tuned.
    plain, packed
        Our times with the filter as it is, and with one that ``kernel.pack`` returned.
    peers
        Times of those peers that compute the problem.
    unsupported
        Why each other peer does not.
    """

    suite: str
    signature: str
    flops: int
    nbytes: int
    algorithm: str
    origin: str
    plain: Timing
    packed: Timing
    peers: dict[str, Timing]
    unsupported: dict[str, str]

    @property
    def problem(self) -> Problem:
        """The problem of the signature."""
        return parse_signature(self.signature)

    @property
    def ours(self) -> float:
        """Our seconds with the filter prepacked, as onnxruntime, OpenVINO and pytorch_packed have it."""
        return self.packed.median

    @property
    def ratio(self) -> float | None:
        """The fastest peer's time / our time, None without a peer."""
        return self._ratio(self.ours)

    @property
    def plain_ratio(self) -> float | None:
        """The same with the filter as it is."""
        return self._ratio(self.plain.median)

    @property
    def given_ratio(self) -> float | None:
        """The same beside those peers alone that take the filter in every call too, None without one."""
        given = [self.peers[name].median for name in GIVEN_FILTERS if name in self.peers]
        return min(given) / self.plain.median if given else None

    def _ratio(self, ours: float) -> float | None:
        return None if self.fastest is None else self.peers[self.fastest].median / ours


@dataclass(frozen=True)
class Result:
    """One run of `benchmarks.compare`.

    Attributes
    ----------
    date
        When it ended, in UTC, by ISO 8601.
    machine, versions
        Where, and with what.
    dtype, layout
        Of all problems; the layout is that of the data.
    target, math, untuned
        What our kernels were built for, and how.
    threads, rounds, seconds
        How they were measured: each peer for `seconds` in each round.
    load
        Processes that wanted a processor in the minute before, the benchmark's own not among them.
    peak
        The machine's limits; None where no C compiler is.
    rows
        One a problem.
    """

    date: str
    machine: str
    versions: dict[str, str]
    dtype: str
    layout: str
    target: str
    math: str
    untuned: bool
    threads: int
    rounds: int
    seconds: float
    load: float
    peak: Peak | None
    rows: tuple[Row, ...]

    @property
    def flops_limit(self) -> float | None:
        """Operations a second that the machine can do in this type; None where that was not measured."""
        return None if self.peak is None or self.dtype == INTEGERS else self.peak.of(self.dtype)

    @property
    def refusals(self) -> list[str]:
        """Which peers did not compute how many of the problems, and why."""
        reasons = Counter((name, reason) for row in self.rows for name, reason in row.unsupported.items())
        return [
            f"{name} did not compute {count} of the {len(self.rows)} shapes: {reason}"
            for (name, reason), count in sorted(reasons.items())
        ]


@dataclass(frozen=True)
class Summary:
    """Ratios of several rows in a few numbers.

    Attributes
    ----------
    shapes
        How many rows have a ratio.
    mean, worst
        Geometric mean and least of the ratios.
    slower
        How many ratios are below 1.
    plain_mean, plain_worst
        Geometric mean and least of the ratios with filters as they are.
    given_mean, given_worst
        The same beside those peers alone that take filters in every call too, None where no row has one.
    worst_signature
        Where the worst is.
    """

    shapes: int
    mean: float
    worst: float
    slower: int
    plain_mean: float
    plain_worst: float
    given_mean: float | None
    given_worst: float | None
    worst_signature: str


def summarize_rows(rows: Iterable[Row]) -> Summary | None:
    """Return the summary of those `rows` that have a peer, None if none has."""
    with_ratio = [(row.ratio, row.plain_ratio, row) for row in rows]
    known = [(ratio, plain, row) for ratio, plain, row in with_ratio if ratio is not None and plain is not None]
    if not known:
        return None
    worst, _, row = min(known, key=lambda entry: entry[0])
    given = [row.given_ratio for _, _, row in known if row.given_ratio is not None]
    return Summary(
        shapes=len(known),
        mean=geometric_mean(ratio for ratio, _, _ in known),
        worst=worst,
        slower=sum(ratio < 1 for ratio, _, _ in known),
        plain_mean=geometric_mean(plain for _, plain, _ in known),
        plain_worst=min(plain for _, plain, _ in known),
        given_mean=geometric_mean(given) if given else None,
        given_worst=min(given, default=None),
        worst_signature=row.signature,
    )


def read_result(path: Path) -> Result:
    """Return the result in a file.

    Raises
    ------
    SourceError
        If there is no such file, or it holds none.
    """
    return read_file(path, _result, "python -m benchmarks.compare")


def _result(value: dict[str, Any]) -> Result:
    return Result(**{**value, "peak": _peak(value["peak"]), "rows": tuple(_row(row) for row in value["rows"])})


def _peak(value: dict[str, Any] | None) -> Peak | None:
    return None if value is None else Peak(**value)


def _row(value: dict[str, Any]) -> Row:
    times = {
        "plain": Timing(**value["plain"]),
        "packed": Timing(**value["packed"]),
        "peers": {name: Timing(**timing) for name, timing in value["peers"].items()},
    }
    return Row(**{**value, **times})
