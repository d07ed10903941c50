"""Trials: all measured candidates, stored so that none is measured again."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args

from ..problem import Problem
from ..signature import format_signature
from ..support import jsonlines, schema
from ..targets.target import Target, folder_of
from .search import Candidate, Space

Status = Literal["ok", "wrong", "failed", "crashed", "timeout"]
_LINE = schema.table(
    {
        "algorithm": schema.text,
        "version": schema.integer,
        "sketch": schema.integer,
        "decisions": schema.list_of(schema.integer),
        "status": schema.one_of(*get_args(Status)),
        "seconds": schema.optional(schema.positive),
        "detail": schema.words,
        "machine": schema.text,
    }
)


@dataclass(frozen=True)
class Trial:
    """One measured candidate.

    Attributes
    ----------
    candidate, version
        The schedule, and the version of its algorithm's definition.
    status
        ``"ok"``: right and timed; ``"wrong"``: the answer differs from the reference; ``"failed"``: it does not
        compile; ``"crashed"`` or ``"timeout"``: it ended its process, or had to be ended.
    seconds
        Least seconds of a call; None unless ok.
    detail
        What went wrong, empty if ok.
    """

    candidate: Candidate
    version: int
    status: Status
    seconds: float | None = None
    detail: str = ""

    @property
    def cost(self) -> float:
        """Seconds, infinite unless ok."""
        return inf if self.seconds is None else self.seconds


class TrialLog:
    """The trials of one problem on one target and machine, in a file of their own.

    Parameters
    ----------
    folder
        Folder of the user's records.
    machine
        Mark of the machine. Trials of others in the file are not read: their times do not compare.
    """

    def __init__(self, folder: Path, problem: Problem, target: Target, machine: str) -> None:
        self._path = _path(folder, target.folder, format_signature(problem))
        self._machine = machine

    def read(self, spaces: list[Space]) -> list[Trial]:
        """Return the trials whose candidates these spaces still have, in the algorithms' present versions.

        Malformed lines (the last one, after a crash) are left out with a warning.
        """
        lines, _ = jsonlines.read(self._path, _parse)
        return [
            trial
            for machine, trial in lines
            if machine == self._machine
            and any(trial.candidate in space and trial.version == space.version for space in spaces)
        ]

    def append(self, *trials: Trial) -> None:
        """Write trials, at once: they are kept however this process ends."""
        jsonlines.append(self._path, *map(self._line, trials))

    def _line(self, trial: Trial) -> dict[str, Any]:
        return {
            "algorithm": trial.candidate.algorithm,
            "version": trial.version,
            "sketch": trial.candidate.sketch,
            "decisions": trial.candidate.decisions,
            "status": trial.status,
            "seconds": trial.seconds,
            "detail": trial.detail,
            "machine": self._machine,
        }


def read_by_machine(folder: Path, target: str, signature: str) -> dict[str, list[Trial]]:
    """Return all trials of a problem on the target of this name, by machine, in the order of measurement.

    Trials whose candidates no space holds any more are included. Malformed lines are left out with a warning.
    """
    trials: dict[str, list[Trial]] = {}
    for machine, trial in jsonlines.read(_path(folder, folder_of(target), signature), _parse)[0]:
        trials.setdefault(machine, []).append(trial)
    return trials


def _path(folder: Path, target: str, signature: str) -> Path:
    return folder / target / "trials" / f"{signature}.jsonl"


def _parse(value: Any) -> tuple[str, Trial]:
    known = _LINE(value)
    if (known["status"] == "ok") != (known["seconds"] is not None):
        raise ValueError(f"seconds is {known['seconds']} and status {known['status']!r}; 'ok' alone has seconds")
    candidate = Candidate(known["algorithm"], known["sketch"], known["decisions"])
    return known["machine"], Trial(candidate, known["version"], known["status"], known["seconds"], known["detail"])
