"""A bundle beside another one, or beside what `python -m benchmarks.compare` recorded of other libraries."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from ..building.bench import BenchRow
from ..errors import SourceError
from ..isa.machine import model_name
from ..measuring.peak import Peak
from ..runtime.bundle import Bundle, read_bundle
from ..runtime.selection import take_best
from ..support import schema
from .kernels import Line, seconds

# Ratios nearer to 1 than this, which is what a schedule must win by to be recorded, count as neither gain nor loss.
EVEN = 0.01
# Peaks of one machine, measured twice, differ by less than this factor.
SAME_PEAK = 1.25
_TIMING = schema.table({"median": schema.positive})
_RESULT = schema.table(
    {
        "date": schema.text,
        "machine": schema.text,
        "threads": schema.unsigned,
        "peak": schema.optional(schema.table({"flops": schema.positive})),
        "rows": schema.list_of(
            schema.table({"signature": schema.text, "packed": _TIMING, "peers": schema.map_of(_TIMING)})
        ),
    }
)


@dataclass(frozen=True)
class Recorded:
    """A result of `python -m benchmarks.compare`.

    Attributes
    ----------
    path
        Its file.
    date, machine, threads, flops
        When and where it was measured, and the peak there; None if unknown.
    peers
        By signature, the fastest library and its seconds.
    ours
        By signature, the seconds of tvmconv's kernels then, with filters prepacked.
    """

    path: Path
    date: str
    machine: str
    threads: int
    flops: float | None
    peers: dict[str, tuple[str, float]]
    ours: dict[str, float]


@dataclass(frozen=True)
class Pair:
    """One kernel of this bundle and what it is compared with.

    Attributes
    ----------
    signature, algorithm
        Of the kernel.
    ours, theirs
        Seconds of a call.
    name
        What `theirs` is: an algorithm of the other bundle, or a library.
    then
        `theirs` / the seconds of tvmconv when both were recorded; None beside a bundle.
    """

    signature: str
    algorithm: str
    ours: float
    theirs: float
    name: str
    then: float | None = None

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
    """Ratios by kernel.

    Attributes
    ----------
    other
        What the bundle is compared with.
    theirs
        What the names of the pairs are, and their times.
    how
        How it was measured.
    warning
        Why the times might not compare, empty if they do.
    pairs
        At least one.
    """

    other: str
    theirs: str
    how: str
    warning: str
    pairs: tuple[Pair, ...]

    @property
    def mean(self) -> float:
        """Geometric mean of the ratios."""
        return geometric_mean(pair.ratio for pair in self.pairs)

    @property
    def mean_then(self) -> float | None:
        """The same as recorded; None beside a bundle."""
        then = [pair.then for pair in self.pairs if pair.then is not None]
        return geometric_mean(then) if then else None


def read_other(path: str | os.PathLike[str]) -> Bundle | Recorded:
    """Return the bundle, or the result of a comparison, at `path`.

    Raises
    ------
    BundleError, SourceError
        If it is neither.
    """
    place = Path(path)
    return read_bundle(place) if place.is_dir() else read_recorded(place)


def read_recorded(path: Path) -> Recorded:
    """Return the result in a file that `python -m benchmarks.compare` wrote.

    Raises
    ------
    SourceError
        If it cannot be read, or is something else.
    """
    write_one = "write one with: python -m benchmarks.compare SUITE --output FILE.json"
    try:
        known = _RESULT(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SourceError(
            f"{path} is neither a bundle's folder nor a file that can be read ({error.strerror}); {write_one}"
        ) from error
    except (ValueError, RecursionError) as error:  # json.JSONDecodeError and schema.SchemaError are ValueErrors
        raise SourceError(f"{path} is no result of python -m benchmarks.compare: {error}; {write_one}") from error
    peers, ours = {}, {}
    for row in known["rows"]:
        if row["peers"]:
            fastest = min(row["peers"], key=lambda name: row["peers"][name]["median"])
            peers[row["signature"]] = (fastest, row["peers"][fastest]["median"])
            ours[row["signature"]] = row["packed"]["median"]
    flops = known["peak"] and known["peak"]["flops"]
    return Recorded(path, known["date"], known["machine"], known["threads"], flops, peers, ours)


def check_common(bundle: Bundle, recorded: Recorded) -> None:
    """Check that `recorded` has a kernel that this machine takes from `bundle`.

    Raises
    ------
    SourceError
        If it has none.
    """
    taken = take_best([bundle])
    if not recorded.peers.keys() & taken.keys():
        raise SourceError(
            f"{recorded.path} has no other library's time for any of the {len(taken)} kernels that this machine's CPU takes from"
            f" {bundle.path}; compare the bundle's problems: python -m benchmarks.compare SIGNATURE --output FILE.json"
        )


def with_bundle(other: Bundle, pairs: Iterable[tuple[BenchRow, BenchRow]]) -> Comparison | None:
    """Return the comparison of kernels that were timed in turn, None if there are none."""
    found = tuple(
        Pair(ours.signature, ours.algorithm, seconds(ours), seconds(theirs), theirs.algorithm) for ours, theirs in pairs
    )
    how = "Both bundles were timed here, in turn, on the same arrays; filters are prepacked where they can be."
    return Comparison(other.path.resolve().name, "other bundle", how, "", found) if found else None


def with_recorded(
    recorded: Recorded, bundle: Bundle, lines: Sequence[Line], limits: Peak | None, threads: int
) -> Comparison | None:
    """Return the comparison of what the bundle's kernels took here with what the fastest library took then.

    None if no kernel that both have was timed.
    """
    taken = {signature: entry.target for signature, (_, entry) in take_best([bundle]).items()}
    pairs = []
    for line in lines:
        signature = line.entry.signature
        if line.row is None or taken.get(signature) != line.entry.target or signature not in recorded.peers:
            continue
        name, theirs = recorded.peers[signature]
        then = theirs / recorded.ours[signature]
        pairs.append(Pair(signature, line.entry.algorithm, seconds(line.row), theirs, name, then))
    how = (
        f"The other libraries were timed on {recorded.date[:10]} on {recorded.machine}, {recorded.threads} threads; the ratio"
        " is the fastest one's time then / this bundle's time now, and 'ratio then' takes the time that tvmconv's"
        " kernels had in that comparison, in turn with the others. Filters are prepacked where they can be."
    )
    differences = "; ".join(_differences(recorded, limits, threads))
    return Comparison(recorded.path.name, "fastest library", how, differences, tuple(pairs)) if pairs else None


def _differences(recorded: Recorded, limits: Peak | None, threads: int) -> list[str]:
    """Return in what the conditions then and now differ, as far as can be known."""
    found = []
    if not recorded.machine.startswith(model_name()):
        found.append(f"another CPU: {recorded.machine} then, {model_name()} now")
    if recorded.threads != threads:
        found.append(f"{recorded.threads} threads then, {threads} now")
    if limits is not None and recorded.flops is not None:
        low, high = sorted((recorded.flops, limits.flops))
        if high / low > SAME_PEAK:
            found.append(f"a peak of {recorded.flops / 1e9:.0f} GFLOP/s then, {limits.flops / 1e9:.0f} now")
    return found
