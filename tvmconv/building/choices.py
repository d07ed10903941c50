"""Which algorithm a problem gets, and why: what `tvmconv build` takes first, and what speaks for and against the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..algorithms.algorithm import Algorithm
from ..algorithms.table import ALGORITHMS, allows, applicable
from ..problem import Problem
from ..signature import format_signature
from ..targets.target import Target
from ..tuning.records import Record, Records

if TYPE_CHECKING:
    from ..lowering.compiler import Choice


@dataclass(frozen=True)
class Weighed:
    """What speaks for and against an algorithm for a problem.

    Attributes
    ----------
    algorithm, numerical_class
        As in the table of algorithms.
    covers
        Whether it can compute the problem, and `math` allows it.
    cycles
        The estimated cost; None if it does not cover the problem.
    terms
        What the cost is the sum of, on CPUs: by event how often it is counted, and the cycles of all of them.
    taken
        Whether `tvmconv build` tries it first.
    reason
        Why it is taken, or is not although it might cost least, or cannot be; else empty.
    """

    algorithm: str
    numerical_class: str
    covers: bool
    cycles: float | None
    taken: bool
    reason: str
    terms: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def weigh(problem: Problem, target: Target, math: str = "default", records: Records | None = None) -> list[Weighed]:
    """Return what speaks for and against each algorithm for targets of this kind, those that cover the problem first.

    Parameters
    ----------
    math
        As in `tvmconv.algorithms.table.applicable`, whose order they have.
    records
        The tuning records; absent: the user's and those that ship.
    """
    record = _record_for(problem, target, math, records)
    covering = applicable(problem, target, math)
    first = record.algorithm if record else covering[0].name

    def weighed(algorithm: Algorithm) -> Weighed:
        taken = algorithm.name == first
        reason = "" if algorithm.is_default else "never the default"
        if taken:
            reason = _recorded(record, problem) if record else "the default"
        cost = algorithm.cycles(problem, target)
        terms = _terms(algorithm, problem, target)
        return Weighed(algorithm.name, algorithm.numerical_class, True, cost, taken, reason, terms)

    others = [each for each in ALGORITHMS if each.kind == target.kind and each not in covering]
    refused = [
        Weighed(each.name, each.numerical_class, False, None, False, _refusal(each, problem, target, math))
        for each in others
    ]
    return [*map(weighed, covering), *refused]


def _terms(algorithm: Algorithm, problem: Problem, target: Target) -> dict[str, tuple[float, float]]:
    if not target.cost_source:
        return {}
    counts = {name: count for name, count in algorithm.estimate(problem, target).items() if count}
    terms = {name: (count, count * target.coefficient(name)) for name, count in counts.items()}
    return dict(sorted(terms.items(), key=lambda term: -term[1][1]))


def first_choice(problem: Problem, target: Target, records: Records | None = None) -> tuple[Choice, Record | None]:
    """Return the schedule that `tvmconv build` tries first, and the record that it is of, if any.

    Raises
    ------
    ReplayError
        If there is a record, and its algorithm's space has no such schedule any more.
    """
    from ..lowering.compiler import default_choice
    from ..tuning.replay import choice_of

    record = _record_for(problem, target, "default", records)
    if record is None:
        return default_choice(problem, target), None
    return choice_of(problem, target, record.candidate), record


def _record_for(problem: Problem, target: Target, math: str, records: Records | None) -> Record | None:
    """Return the record whose schedule is tried first: the problem's own, else that of the same sums."""
    records = records or Records()
    return records.best(problem, target, math) or records.of_sums(problem, target, math)


def _recorded(record: Record, problem: Problem) -> str:
    whose = "" if record.signature == format_signature(problem) else f" of {record.signature}"
    return f"a tuning record{whose}: {record.seconds * 1e6:.1f} us, after {record.trials} trials on {record.machine}"


def _refusal(algorithm: Algorithm, problem: Problem, target: Target, math: str) -> str:
    """Return why an algorithm cannot be taken."""
    reason = algorithm.covers(problem, target)
    if reason is None and not allows(algorithm, math):
        return f"its results are of the class {algorithm.numerical_class}, which --math {math} leaves out"
    return str(reason)
