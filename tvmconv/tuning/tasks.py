"""What the processes that build candidates are asked to do. Light to import: `tvmconv.tuning.replay` does it."""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import Problem
from ..signature import format_signature
from ..targets.target import Target
from .search import Candidate


@dataclass(frozen=True)
class Describe:
    """Return the search spaces of a problem; `math` as in `tvmconv.algorithms.table.applicable`."""

    problem: Problem
    target: Target
    math: str

    def __str__(self) -> str:
        return f"the search spaces of {format_signature(self.problem)}"


@dataclass(frozen=True)
class Compile:
    """Compile candidates into the library `path`.

    Attributes
    ----------
    problem, target, candidates, path
        What, for which target, and where to.
    finalist
        Whether each is a library of its own, with the checks of one that ships. Others hold only what measuring calls.
    """

    problem: Problem
    target: Target
    candidates: tuple[Candidate, ...]
    path: str
    finalist: bool = False

    def __str__(self) -> str:
        return f"compiling {' and '.join(map(str, self.candidates))} of {format_signature(self.problem)}"
