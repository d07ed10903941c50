"""Weigh the algorithms of a problem: the first choice of `tvmconv build`, and the reasons for and against each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...algorithms.algorithm import Algorithm
from ...algorithms.table import ALGORITHMS, allows, applicable
from ...problem import Problem
from ...targets.target import Target
from ...tuning.records import Record, Records
from .decide import decide

if TYPE_CHECKING:
    from ...lowering.compiler import Choice


@dataclass(frozen=True)
class Weighed:
    """Reasons for and against an algorithm for a problem.

    Attributes
    ----------
    covers
        Whether it can compute the problem, and `math` allows it.
    cycles
        The estimated cost; None if it does not cover the problem.
    terms
        Terms of the cost, on CPUs: the count of each event, and its cycles in all.
    taken
        Whether `tvmconv build` tries it first.
    reason
        Why it is taken, or never the default, or cannot be taken; else empty.
    """

    algorithm: str
    numerical_class: str
    covers: bool
    cycles: float | None
    taken: bool
    reason: str
    terms: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def weigh(problem: Problem, target: Target, math: str = "default", records: Records | None = None) -> list[Weighed]:
    """Return the reasons for and against each algorithm on targets of this kind; algorithms that cover the problem come first.

    Parameters
    ----------
    math
        As in `tvmconv.algorithms.table.applicable`, whose order they have.
    records
        The tuning records; absent: the user's and those that ship.
    """
    covering = applicable(problem, target, math)
    (decision,) = decide([problem], target, math, Records() if records is None else records)

    def weighed(algorithm: Algorithm) -> Weighed:
        taken = algorithm.name == decision.ways[0].algorithm
        reason = decision.reason if taken else "" if algorithm.is_default else "never the default"
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


def first_choice(problem: Problem, target: Target, records: Records | None) -> tuple[Choice, Record | None]:
    """Return the schedule that `tvmconv build` tries first, and its record, if any.

    Raises
    ------
    ReplayError
        If there is a record, and its algorithm's space has no such schedule any more.
    """
    from ...lowering.compiler import Choice
    from ...tuning.replay import choice_of

    (decision,) = decide([problem], target, "default", Records() if records is None else records)
    first = decision.ways[0]
    if first.record is None:
        return Choice(first.algorithm), None
    return choice_of(problem, target, first.record.candidate), first.record


def _refusal(algorithm: Algorithm, problem: Problem, target: Target, math: str) -> str:
    """Return why an algorithm cannot be taken."""
    reason = algorithm.covers(problem, target)
    if reason is None and algorithm.ordered and math != "reproducible":
        return "it is for --math reproducible"
    if reason is None and math == "reproducible":
        return "its sums have other orders on other CPUs"
    if reason is None and not allows(algorithm, math):
        return f"its results are of the class {algorithm.numerical_class}, which --math {math} leaves out"
    return str(reason)
