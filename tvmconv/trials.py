"""Trials: every candidate that was measured, kept so that it is never measured again."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args

from . import jsonlines
from .problem import Problem
from .search import Candidate, Space, decisions_of
from .signature import format_signature
from .target import Target

Status = Literal["ok", "wrong", "failed", "crashed", "timeout"]
_KINDS: dict[str, tuple[type, ...]] = {
    "algorithm": (str,),
    "version": (int,),
    "sketch": (int,),
    "decisions": (list,),
    "status": (str,),
    "seconds": (float, NoneType),
    "detail": (str,),
    "machine": (str,),
}


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
        The least that a call took; None unless ok.
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
        Of the user's records.
    machine
        Trials of other machines in the file are not read: their times do not compare.
    """

    def __init__(self, folder: Path, problem: Problem, target: Target, machine: str) -> None:
        self._path = folder / target.folder / "trials" / f"{format_signature(problem)}.jsonl"
        self._machine = machine

    def read(self, spaces: list[Space]) -> list[Trial]:
        """Return the trials whose candidates these spaces, at their algorithms' versions, still hold.

        Malformed lines (the last one, after a crash) are left out with a warning.
        """
        lines, _ = jsonlines.read(self._path, _parse)
        return [
            trial
            for machine, trial in lines
            if machine == self._machine
            and any(trial.candidate in space and trial.version == space.version for space in spaces)
        ]

    def append(self, trial: Trial) -> None:
        """Write one trial, durably."""
        line = {
            "algorithm": trial.candidate.algorithm,
            "version": trial.version,
            "sketch": trial.candidate.sketch,
            "decisions": trial.candidate.decisions,
            "status": trial.status,
            "seconds": trial.seconds,
            "detail": trial.detail,
            "machine": self._machine,
        }
        jsonlines.append(self._path, line)


def _parse(value: Any) -> tuple[str, Trial]:
    known = jsonlines.fields(value, _KINDS)
    status, seconds = known["status"], known["seconds"]
    if status not in get_args(Status):
        raise ValueError(f"status is {status!r}; allowed: {', '.join(get_args(Status))}")
    if (status == "ok") != (seconds is not None and 0 < seconds < inf):
        raise ValueError(f"seconds is {seconds} and status {status!r}; seconds above 0 belong to 'ok' alone")
    candidate = Candidate(known["algorithm"], known["sketch"], decisions_of(known["decisions"]))
    return known["machine"], Trial(candidate, known["version"], status, seconds, known["detail"])
