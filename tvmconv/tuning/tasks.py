"""Jobs for the processes that build candidates. Light to import: `tvmconv.tuning.trial_library` runs them."""

from __future__ import annotations

from dataclasses import dataclass

from ..isa import Isa
from ..measuring.race import Built
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
    """Compile a candidate, to a library or to a part of one.

    Attributes
    ----------
    problem, target, candidate
        What is compiled, for which target.
    folder, number
        The folder, and a number in names of files and functions, which distinguishes the candidate's from others'.
    finalist
        Whether it becomes a library of its own, with the checks of one that ships. A part has only what measuring calls.
    """

    problem: Problem
    target: Target
    candidate: Candidate
    folder: str
    number: int
    finalist: bool = False

    @property
    def library(self) -> str:
        """Path of the library, if it becomes one."""
        return f"{self.folder}/{self.number}.so"

    def __str__(self) -> str:
        return f"compiling {self.candidate} of {format_signature(self.problem)}"


@dataclass(frozen=True)
class CompiledPart:
    """A candidate compiled to objects, to be linked.

    Attributes
    ----------
    kernel
        Path of the object with its kernel.
    pack
        Path of the object that packs its filter, which other candidates may share; None if it has none.
    built
        Names by which the kernel is called, in a library whose path is not known yet.
    isa
        The instruction set of the objects; None: this machine's.
    """

    kernel: str
    pack: str | None
    built: Built
    isa: Isa | None
