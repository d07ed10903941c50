"""Decide in which ways a problem is compiled, the best first, for `build`, `compile`, `explain` and `inspect`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import TargetError
from ...family import ProblemFamily
from ...family_text import format_family
from ...problem import Problem
from ...signature import format_signature
from ...targets.target import CpuTarget, Target
from ...tuning.records import Record, Records
from ...tuning.transfer import donor
from .rank import Room, algorithms_of, is_cold


@dataclass(frozen=True)
class Way:
    """One way to compile a problem: by `record`, or by the default schedule of an algorithm.

    Attributes
    ----------
    origin
        Its name in a manifest: ``"tuned"``, ``"transferred"`` (another problem's record) or ``"default"``.
    record
        The record whose schedule it takes; None: the algorithm's default.
    blocks
        Algorithm and outputs along each axis of each block of a family.
    """

    origin: str
    algorithm: str
    record: Record | None = None
    blocks: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class Decision:
    """The choices for compiling a problem, or a family, for a target, the best first: each is tried if those before it fail."""

    problem: Problem | ProblemFamily
    target: Target
    math: str
    ways: tuple[Way, ...]

    @property
    def signature(self) -> str:
        """Signature of the problem, or text of the family."""
        return (
            format_family(self.problem) if isinstance(self.problem, ProblemFamily) else format_signature(self.problem)
        )

    @property
    def is_family(self) -> bool:
        """Return whether the decision is about a family."""
        return isinstance(self.problem, ProblemFamily)

    @property
    def reason(self) -> str:
        """Reason why the first way comes first."""
        record = self.ways[0].record
        if record is None:
            return "the default"
        whose = "" if record.signature == self.signature else f" of {record.signature}"
        return (
            f"a tuning record{whose}: {record.seconds * 1e6:.1f} us, after {record.trials} trials on {record.machine}"
        )

    def __str__(self) -> str:
        return f"{self.signature} for {self.target.name}"


def decide_families(
    families: Iterable[ProblemFamily],
    target: Target,
    math: str,
    sizes: Mapping[ProblemFamily, Sequence[Problem]],
    network: Sequence[Problem],
) -> list[Decision]:
    """Return a decision for each distinct family: the default schedules of the algorithms that compute its blocks.

    Parameters
    ----------
    sizes
        Problems for which families are chosen, as in `tvmconv.building.decision.rank_families`.
    network
        As of :func:`decide`.

    Raises
    ------
    TargetError
        If the target is no CPU, or one that programs are not linked for.
    """
    from .rank_families import rank_family

    given = list(dict.fromkeys(families))
    if not given:
        return []
    if not (isinstance(target, CpuTarget) and target.isa.platform.has_parts):
        raise TargetError(
            f"{format_family(given[0])} has free extents, which are supported on CPUs only, not on {target.name}; give each size by itself"
        )
    cold = is_cold(network, target, math)
    return [
        Decision(
            each,
            target,
            math,
            tuple(
                Way("default", name, blocks=blocks)
                for name, blocks in rank_family(
                    each, target, math, sizes.get(each, ()), cold, joined=not network
                ).items()
            ),
        )
        for each in given
        if isinstance(target, CpuTarget)
    ]


def decide(
    problems: Iterable[Problem],
    target: Target,
    math: str,
    records: Records,
    network: Sequence[Problem] = (),
    room: Room | None = None,
    transfer: bool = False,
) -> list[Decision]:
    """Return a decision for each distinct problem.

    The ways are the problem's own tuning record, the schedule of a like problem, the default schedule of the best algorithm, those of
    the others by increasing estimate, and `plain`.

    Parameters
    ----------
    network, room
        As in `tvmconv.building.decision.rank.algorithms_of`, which orders the algorithms.
    transfer
        Take over the schedule of the nearest problem that has a record, not only of one with the same sums.
    """
    winners = records.winners(target, math) if transfer else []
    decisions = []
    for problem, names in algorithms_of(problems, target, math, network, room, records).items():
        own = records.best(problem, target, math, names)
        like = records.of_sums(problem, target, math, names) or donor(
            problem, target, math, [winner for winner in winners if winner.algorithm in names]
        )
        ways = [Way(origin, each.algorithm, each) for origin, each in (("tuned", own), ("transferred", like)) if each]
        ways += [Way("default", name) for name in names]
        decisions.append(Decision(problem, target, math, tuple(ways)))
    return decisions
