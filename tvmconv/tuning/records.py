"""Tuning records: which schedule won for a problem on a target.

A folder holds one folder a target, with JSON-lines files of records, one record a line. Two folders
are read: the one that ships with tvmconv, and the user's, which wins. The user's also holds the trials of each
problem (`tvmconv.tuning.trials`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..algorithms import table as algorithms
from ..checks import as_path
from ..errors import InputError, TvmconvError, TvmconvWarning
from ..problem import Problem
from ..signature import format_signature, parse_signature
from ..support import jsonlines, schema
from ..support.user import user_folder
from ..targets.target import Target, folder_of, kind_of
from .search import Candidate

FILE = "records.jsonl"
Key = tuple[str, str, int]  # signature, algorithm, version
_LINE = schema.table(
    {
        "signature": schema.text,
        "target": schema.text,
        "algorithm": schema.text,
        "version": schema.integer,
        "sketch": schema.integer,
        "decisions": schema.list_of(schema.integer),
        "seconds": schema.positive,
        "default_seconds": schema.optional(schema.positive),
        "trials": schema.integer,
        "seed": schema.integer,
        "machine": schema.text,
        "date": schema.text,
        "tools": schema.map_of(schema.text),
        "rank": schema.integer,
        "placements": schema.integer,
        "cold": schema.boolean,
    },
    absent={"rank": 0, "placements": 0, "cold": False},  # the first records had none of them
)


@dataclass(frozen=True)
class Record:
    """Best schedule measured of one algorithm, for a problem on a target.

    Attributes
    ----------
    signature, target
        The problem's signature and the target's name.
    algorithm, version
        The algorithm and the version of its definition.
    sketch, decisions
        The schedule (see `tvmconv.tuning.search.Candidate`).
    seconds
        Seconds of a call, the median over several placements of the arrays (`tvmconv.measuring.race`).
    default_seconds
        Seconds of a call of the schedule for zero trials, measured in turns with this one; None if it failed.
    trials
        Number of the problem's candidates measured until then, of all algorithms.
    seed
        Seed of the search.
    machine
        CPU, its LLVM name, and the threads of the measurement; `target` may be a lesser CPU.
    date
        Date of the measurement, like ``2026-01-31``.
    tools
        Versions of the compilers.
    placements
        Number of placements of the arrays in which it was compared undisturbed (`tvmconv.measuring.race`).
    rank
        0: it won. Above: the best of another algorithm, for where the winner's cannot be used.
    cold
        Whether each call's filter came from memory, as within a network whose filters no cache keeps; else from a cache.
    """

    signature: str
    target: str
    algorithm: str
    version: int
    sketch: int
    decisions: tuple[int, ...]
    seconds: float
    default_seconds: float | None
    trials: int
    seed: int
    machine: str
    date: str
    tools: Mapping[str, str]
    rank: int = 0
    placements: int = 0
    cold: bool = False

    @property
    def candidate(self) -> Candidate:
        """The schedule."""
        return Candidate(self.algorithm, self.sketch, self.decisions)

    @property
    def key(self) -> Key:
        """Key of the record among those of its target."""
        return (self.signature, self.algorithm, self.version)


class Records:
    """The records of the user's folder and of the shipped one.

    A target's files are read once, when its records are first asked for.

    Parameters
    ----------
    folder
        The user's folder; absent: :func:`user_folder`.
    shipped
        Whether the shipped ones count.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, shipped: bool = True) -> None:
        self._given = None if folder is None else as_path("records", folder)
        self._shipped = shipped
        self._tables: dict[Path, dict[str, list[Record]]] = {}

    @cached_property
    def folder(self) -> Path:
        """The user's folder; TvmconvError if the user has no writable home."""
        return user_folder() if self._given is None else self._given

    def best(
        self, problem: Problem, target: Target, math: str = "default", among: Sequence[str] | None = None
    ) -> Record | None:
        """Return the best usable record of `problem` on `target`; the user's before the shipped.

        Records of another version of an algorithm's definition are not usable, nor those of algorithms that `math`
        excludes (see `tvmconv.algorithms.table.applicable`). If the best is of no algorithm `among` those named, the best of the
        first of these is returned: a schedule that was not compared with the others says nothing about them. Malformed lines are left out with
        a warning that names file and line.
        """
        return self._best(format_signature(problem), target.tuned_as, math, among)

    def of_sums(
        self, problem: Problem, target: Target, math: str = "default", among: Sequence[str] | None = None
    ) -> Record | None:
        """Return the result of :meth:`best` for the first problem with the same sums, but another bias or epilogue.

        An epilogue takes little of the time: the schedule that won for one is as good for the other.
        """
        sums = problem.without_epilogue()
        others = (sums.with_(bias=bias) for bias in (problem.bias, not problem.bias))
        found = (self.best(other, target, math, among) for other in others if other != problem)
        return next((record for record in found if record is not None), None)

    def winners(self, target: Target, math: str = "default") -> list[Record]:
        """Return the result of :meth:`best` for each problem with a record, in the order of their signatures."""
        signatures = {each for folder in self._folders() for each in self._table(folder, target.tuned_as)}
        found = (self._best(signature, target.tuned_as, math) for signature in sorted(signatures))
        return [record for record in found if record is not None]

    def elsewhere(self, problem: Problem, target: Target, math: str = "default") -> list[Record]:
        """Return the result of :meth:`best` for the same problem on each other target of its kind, in the order of their names."""
        folders = (path for folder in self._folders() for path in _files(folder, f"*/{FILE}"))
        # By the names of folders, in which a GPU's colon and commas are dashes; no algorithm is for several kinds.
        others = {path.parent.name for path in folders if kind_of(path.parent.name) == target.kind} - {
            folder_of(target.tuned_as)
        }
        found = (self._best(format_signature(problem), name, math) for name in sorted(others))
        return [record for record in found if record is not None]

    def _best(self, signature: str, target: str, math: str, among: Sequence[str] | None = None) -> Record | None:
        for folder in self._folders():
            records = self._table(folder, target).get(signature, [])
            usable = [record for record in records if record.version == _version(record.algorithm, math)]
            usable.sort(key=lambda record: (record.rank, record.seconds))
            if among is not None and usable and usable[0].algorithm not in among:
                usable = [record for record in usable if record.algorithm == among[0]]
            if usable:
                return usable[0]
        return None

    def put(self, records: Iterable[Record], beaten: Collection[Key] = ()) -> None:
        """Write records to the user's folder, in place of those with the same key; remove those with `beaten` keys."""
        by_target: dict[str, list[Record]] = {}
        for record in records:
            by_target.setdefault(record.target, []).append(record)
        for target, new in by_target.items():
            path = self.folder / folder_of(target) / FILE
            with jsonlines.lock(path):
                old, malformed = jsonlines.read(path, _parser(target))
                kept = {record.key: record for record in (*old, *new)}
                kept = {key: record for key, record in kept.items() if key not in beaten}
                jsonlines.write(path, (asdict(kept[key]) for key in sorted(kept)), malformed)
            self._tables.pop(path.parent, None)

    def _folders(self) -> list[Path]:
        shipped = [shipped_folder()] if self._shipped else []
        try:
            return [self.folder, *shipped]
        except TvmconvError:  # the user has no home, thus no folder
            return shipped

    def _table(self, folder: Path, target: str) -> dict[str, list[Record]]:
        place = folder / folder_of(target)
        if place not in self._tables:
            table: dict[str, list[Record]] = {}
            for path in _files(place, "*.jsonl"):
                try:
                    records = jsonlines.read(path, _parser(target))[0]
                except OSError as error:
                    _warn(path, error)
                    continue
                for record in records:
                    table.setdefault(record.signature, []).append(record)
            self._tables[place] = table
        return self._tables[place]


def _files(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError as error:
        _warn(folder, error)
        return []


def _warn(path: Path, error: OSError) -> None:
    warnings.warn(f"records are not used: {path}: {error.strerror}", TvmconvWarning, stacklevel=3)


def shipped_folder() -> Path:
    """Return the folder of the records that come with tvmconv."""
    return Path(str(files("tvmconv.tuning_logs")))


def _version(name: str, math: str) -> int | None:
    """Return the present version of the algorithm's definition; None if there is no such algorithm, or `math` excludes it."""
    try:
        algorithm = algorithms.get(name)
    except TvmconvError:
        return None
    return algorithm.version if algorithms.allows(algorithm, math) else None


def _parser(target: str) -> Callable[[Any], Record]:
    return lambda value: parse_record(value, target)


def parse_record(value: Any, target: str) -> Record:
    """Return the record in a line's JSON value, or raise ValueError; `target` is the target's name, or its folder's."""
    known = _LINE(value)
    if folder_of(known["target"]) != folder_of(target):
        raise ValueError(f"its target is {known['target']!r}, but it lies in the folder of {target!r}")
    parse_signature(known["signature"])  # a SignatureError is a ValueError
    return Record(**known)


def records_of(given: Records | str | os.PathLike[str] | None, written: bool = False) -> Records:
    """Return records as given, or those of a folder, None being the user's, and those that ship.

    Parameters
    ----------
    written
        Whether they are written to: then the folder may be missing, and must be writable.

    Raises
    ------
    InputError
        If `given` is something else, or there is no such folder, or a folder to write to is read-only.
    """
    if isinstance(given, Records):
        return given
    folder = None if given is None else as_path("records", given)
    if folder is not None and not folder.is_dir() and (folder.exists() or not written):
        raise InputError(
            f"records is {str(folder)!r}, and there is no such folder; give the one that tvmconv tune --records wrote"
        )
    records = Records(folder)
    if written:
        place = records.folder.absolute()
        there = next(each for each in (place, *place.parents) if each.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            raise InputError(f"records go to {place}, and {there} is read-only for this user; give another folder")
    return records
