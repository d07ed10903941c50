"""Convert records to and from MetaSchedule's JSON databases, whose workloads are those of `tvmconv.tuning.contexts`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import mean

from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

from ..algorithms import table as algorithms
from ..checks import as_path
from ..errors import ReplayError, SourceError, TvmconvError, TvmconvWarning
from ..signature import format_signature, parse_signature
from ..targets.target import Target
from ..version import __version__
from .contexts import Workload, workload_in, workload_of
from .records import Record, Records
from .search import Candidate

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
MACHINE = "a MetaSchedule database"
# Seconds from which a time is MetaSchedule's mark of a failed candidate.
LONGEST = 1e9


def import_database(path: str | os.PathLike[str], records: Records | None = None) -> list[Record]:
    """Take the fastest schedules of a MetaSchedule database into the records.

    They are neither checked nor compared here: `tvmconv build` checks their kernels like any others, and `tvmconv tune` begins its
    search with them. A problem that has a record of the user's own keeps it, with a warning.

    Parameters
    ----------
    path
        The folder that was ``work_dir`` of ``tvm.s_tir.meta_schedule.tune_tasks`` for tasks of
        :func:`tvmconv.metaschedule.tasks`. Records of other tasks are left out with a warning.
    records
        Records to write to; absent: the user's folder.

    Returns
    -------
    list of Record
        Records written: of each problem and target the fastest, with rank 0, and the best of other algorithms.

    Raises
    ------
    SourceError
        If there is no database.
    """
    folder, records = as_path("path", path), Records() if records is None else records
    for name in (WORKLOADS, RECORDS):
        if not (folder / name).is_file():
            raise SourceError(f"{folder} has no {name}; give the folder that was work_dir of MetaSchedule's tune_tasks")
    by_problem: dict[tuple[str, Target], list[tuple[float, Candidate]]] = {}
    for workload, candidate, seconds in _read(folder):
        of_problem = by_problem.setdefault((format_signature(workload.problem), workload.target), [])
        of_problem.append((seconds, candidate))
    new: list[Record] = []
    own = Records(records.folder, shipped=False)
    for (signature, target), found in by_problem.items():
        if own.best(parse_signature(signature), target) is not None:
            _warn(f"{signature} has a record for {target.name} in {records.folder} already, which stays")
            continue
        fastest: dict[str, tuple[float, Candidate]] = {}
        for seconds, candidate in sorted(found, key=lambda each: each[0]):
            fastest.setdefault(candidate.algorithm, (seconds, candidate))
        new += [
            _record(signature, target, candidate, seconds, len(found), rank)
            for rank, (seconds, candidate) in enumerate(fastest.values())
        ]
    records.put(new)
    return new


def export_database(path: str | os.PathLike[str], target: str | Target = "host", records: Records | None = None) -> int:
    """Write the winners of the records into a MetaSchedule database.

    Parameters
    ----------
    path
        Folder, created if missing: a ``work_dir`` for ``tvm.s_tir.meta_schedule.tune_tasks``, which then continues
        from them. An existing database is extended.
    target
        Target of the records.
    records
        Records to read; absent: the user's and those that ship.

    Returns
    -------
    int
        Number of records written. Those whose schedules no longer exist are left out with a warning.
    """
    folder, records = as_path("path", path), Records() if records is None else records
    target = Target.parse(target) if isinstance(target, str) else target
    folder.mkdir(parents=True, exist_ok=True)
    database, written = JSONDatabase(work_dir=str(folder)), 0
    for record in records.winners(target):
        try:
            workload = workload_of(parse_signature(record.signature), target, record.algorithm)
            trace = workload.trace(record.candidate)
        except ReplayError as error:
            _warn(f"the record of {record.signature} is left out: {error}")
            continue
        committed = database.commit_workload(workload.module)
        arguments = ArgInfo.from_prim_func(workload.module["main"])
        database.commit_tuning_record(TuningRecord(trace, committed, [record.seconds], target.tvm(), arguments))
        written += 1
    return written


def _read(folder: Path) -> Iterator[tuple[Workload, Candidate, float]]:
    for found in JSONDatabase(work_dir=str(folder)).get_all_tuning_records():
        seconds = mean(map(float, found.run_secs or [LONGEST]))
        if seconds >= LONGEST:
            continue
        try:
            workload = workload_in(found.workload.mod)
            yield workload, workload.candidate(found.trace), seconds
        except TvmconvError as error:
            _warn(f"{folder}: {error}; it is left out")


def _record(signature: str, target: Target, candidate: Candidate, seconds: float, trials: int, rank: int) -> Record:
    return Record(
        signature=signature,
        target=target.tuned_as,
        algorithm=candidate.algorithm,
        version=algorithms.get(candidate.algorithm).version,
        sketch=candidate.sketch,
        decisions=candidate.decisions,
        seconds=seconds,
        default_seconds=None,
        trials=trials,
        seed=0,
        machine=MACHINE,
        date=datetime.now(timezone.utc).date().isoformat(),
        tools={"tvmconv": __version__, "apache-tvm": version("apache-tvm")},
        rank=rank,
    )


def _warn(text: str) -> None:
    warnings.warn(text, TvmconvWarning, stacklevel=3)
