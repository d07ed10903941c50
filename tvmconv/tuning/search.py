"""The search: which candidates to measure next, given how fast the measured ones are.

Pure Python over the choices that MetaSchedule's traces sample, run by MetaSchedule as a search strategy
(`tvmconv.tuning.drive`). MetaSchedule's own strategies replay every schedule that they consider, which takes as long as building
one here: `python -m benchmarks.strategies` compares them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod

Decisions = tuple[int, ...]

# Candidates drawn at random, besides the defaults and starts, before the fastest become parents: one turn. And half as
# many parents, so that children of one sketch have several to mix.
WARM_UP = 16
PARENTS = 8
# Share of candidates that is still drawn at random later, so that every part of the space is explored.
RANDOM_SHARE = 0.2
# A sketch with more schedules than this is not listed to find the last ones that were never drawn.
LISTED = 2**16
# Draws before the rest is listed: where a tenth of the schedules is left, so many draws miss it once in 200 times.
_DRAWS = 50


@dataclass(frozen=True)
class Candidate:
    """One schedule of a problem: an algorithm, the number of a sketch, and the value chosen at each of its sampling instructions in order."""

    algorithm: str
    sketch: int
    decisions: Decisions

    def __str__(self) -> str:
        return f"sketch {self.sketch} of {self.algorithm} with decisions {list(self.decisions)}"


@dataclass(frozen=True)
class Sketch:
    """Decisions that a sketch leaves open: for each sampling instruction, in order, its allowed values, and the one for zero trials."""

    options: tuple[Decisions, ...]
    default: Decisions

    @property
    def size(self) -> int:
        """Number of schedules."""
        return prod(map(len, self.options))


@dataclass(frozen=True)
class Space:
    """The schedules that one algorithm offers for one problem: its sketches, the default first."""

    algorithm: str
    version: int
    numerical_class: str
    sketches: tuple[Sketch, ...]

    @property
    def defaults(self) -> list[Candidate]:
        """The default schedule of every sketch; the first is that for zero trials."""
        return [Candidate(self.algorithm, number, sketch.default) for number, sketch in enumerate(self.sketches)]

    def __contains__(self, candidate: object) -> bool:
        if not isinstance(candidate, Candidate) or candidate.algorithm != self.algorithm:
            return False
        if not 0 <= candidate.sketch < len(self.sketches):
            return False
        options = self.sketches[candidate.sketch].options
        return len(candidate.decisions) == len(options) and all(
            decision in allowed for decision, allowed in zip(candidate.decisions, options, strict=True)
        )


def first_of(spaces: Sequence[Space], starts: Sequence[Candidate]) -> list[Candidate]:
    """Return the first candidates of any search: each space's default, those of other sketches, then `starts`."""
    first = [space.defaults[0] for space in spaces]
    others = [default for space in spaces for default in space.defaults[1:]]
    return list(dict.fromkeys([*first, *others, *starts]))


class Search:
    """Evolutionary search over several spaces together.

    The same spaces, seed and measurements give the same candidates.

    Parameters
    ----------
    spaces
        Spaces of every applicable algorithm, the one used with zero trials first.
    seed
        Seed of the random choices.
    measured
        Seconds of candidates measured before; ``math.inf`` for those that failed. They are not proposed again.
    starts
        Candidates of the spaces to propose first, after the defaults.
    """

    def __init__(
        self,
        spaces: Sequence[Space],
        seed: int,
        measured: Mapping[Candidate, float],
        starts: Sequence[Candidate] = (),
    ) -> None:
        self._sketches = {
            (space.algorithm, number): sketch for space in spaces for number, sketch in enumerate(space.sketches)
        }
        self._first = first_of(spaces, starts)
        # Seeded by the trials too: a search that continues must not repeat the draws of the one before.
        self._random = random.Random(f"{seed} {len(measured)}")
        self._seconds = dict(measured)
        self._proposed = set(self._seconds)

    def propose(self, count: int) -> list[Candidate]:
        """Return at most `count` candidates that were never proposed; none when nothing is left.

        The default schedules come first, then the `starts`.
        """
        candidates: list[Candidate] = []
        while len(candidates) < count:
            candidate = self._next()
            if candidate is None:
                break
            self._proposed.add(candidate)
            candidates.append(candidate)
        return candidates

    def tell(self, candidate: Candidate, seconds: float) -> None:
        """Take in a measurement; ``math.inf`` for a candidate that failed."""
        self._seconds[candidate] = seconds

    def _next(self) -> Candidate | None:
        for candidate in self._first:
            if candidate not in self._proposed:
                return candidate
        warm = len(self._proposed) >= WARM_UP + len(self._first)
        parents = self._parents() if warm and self._random.random() >= RANDOM_SHARE else []
        for _ in range(_DRAWS):
            candidate = self._child(parents) if parents else self._any()
            if candidate not in self._proposed:
                return candidate
        unseen = list(self._unseen())
        return self._random.choice(unseen) if unseen else None

    def _parents(self) -> list[Candidate]:
        working = [candidate for candidate, seconds in self._seconds.items() if seconds < inf]
        return sorted(working, key=self._seconds.__getitem__)[:PARENTS]

    def _any(self) -> Candidate:
        """Draw a schedule, each sketch with the same probability."""
        (algorithm, number), sketch = self._random.choice(list(self._sketches.items()))
        return Candidate(algorithm, number, tuple(self._random.choice(options) for options in sketch.options))

    def _child(self, parents: list[Candidate]) -> Candidate:
        """Mix two parents of one sketch and decide one choice again."""
        first = self._random.choice(parents)
        group = (first.algorithm, first.sketch)
        second = self._random.choice([parent for parent in parents if (parent.algorithm, parent.sketch) == group])
        decisions = [self._random.choice(pair) for pair in zip(first.decisions, second.decisions, strict=True)]
        options = self._sketches[group].options
        if options:
            place = self._random.randrange(len(options))
            decisions[place] = self._random.choice(options[place])
        return Candidate(*group, tuple(decisions))

    def _unseen(self) -> Iterator[Candidate]:
        for group, sketch in self._sketches.items():
            if sketch.size <= LISTED:
                for decisions in product(*sketch.options):
                    candidate = Candidate(*group, decisions)
                    if candidate not in self._proposed:
                        yield candidate
