"""One problem tuned: candidates searched and measured, the fastest raced, the winner recorded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from importlib.metadata import version
from math import inf
from statistics import median
from typing import Protocol

from ..errors import TvmconvError, TvmconvWarning
from ..measuring.race import LEAST_QUIET, Times
from ..problem import Problem
from ..signature import format_signature
from ..targets.target import Target
from ..version import __version__
from .evaluate import Evaluator
from .finalists import ranking
from .records import Record, Records
from .search import Candidate, Search, Space
from .transfer import adapt, nearest
from .trials import Trial, TrialLog

# The fastest that race, besides every algorithm's best: to build and time one takes half a second.
FINALISTS = 4
# Recorded schedules, of other CPUs and of other problems, that the search begins with: a quarter of a turn.
STARTS = 4
# Suffix of the machine in trials with cold filters, whose times do not compare with others.
COLD = ", cold filters"


@dataclass(frozen=True)
class TuneResult:
    """Result of tuning one problem.

    Attributes
    ----------
    record
        The winner; None if no candidate worked.
    trials
        Candidates measured, earlier runs included.
    failures
        Trials that did not compile, crashed, hung or computed something else.
    """

    problem: Problem
    record: Record | None
    trials: int
    failures: tuple[Trial, ...]

    @property
    def gain(self) -> float | None:
        """Ratio of the default schedule's time to the winner's."""
        if self.record is None or self.record.default_seconds is None:
            return None
        return self.record.default_seconds / self.record.seconds


class Proposes(Protocol):
    """A search: it proposes candidates, and is told their results."""

    def propose(self, count: int) -> list[Candidate]:
        """Return at most `count` candidates that were never proposed; none when nothing is left."""

    def tell(self, candidate: Candidate, seconds: float) -> None:
        """Take in a measurement; ``math.inf`` for a candidate that failed."""


# Function from a problem, its spaces, the seconds of candidates measured before, and candidates to begin with, to a search.
MakeSearch = Callable[[Problem, Sequence[Space], Mapping[Candidate, float], Sequence[Candidate]], Proposes]


@dataclass(frozen=True)
class Session:
    """Settings and tools shared by the tuning of several problems.

    Attributes
    ----------
    evaluator
        What builds and measures candidates.
    target, records, seed, math
        As for `tvmconv.tuning.tuner.tune`.
    machine
        Mark of the measurements: CPU and threads.
    cold
        Whether filters were cold (`tvmconv.tuning.tuner.tune`).
    tools
        Versions of the compilers.
    search
        What makes the search of a problem; None: `Search`. Others are `benchmarks.strategies`'.
    """

    evaluator: Evaluator
    target: Target
    records: Records
    machine: str
    seed: int
    math: str = "default"
    tools: Mapping[str, str] = field(
        default_factory=lambda: {"tvmconv": __version__, "apache-tvm": version("apache-tvm")}
    )
    search: MakeSearch | None = None
    cold: bool = False


class ProblemTuner:
    """Tuner of one problem, which starts with the trials of earlier runs.

    Attributes
    ----------
    trials
        Every candidate measured until now.
    spaces
        Spaces of the algorithms, the one used with zero trials first.
    """

    def __init__(self, session: Session, problem: Problem) -> None:
        self.problem = problem
        self._session = session
        self.spaces: list[Space] = session.evaluator.spaces(problem, session.target, session.math)
        machine = session.machine + COLD * session.cold
        self._log = TrialLog(session.records.folder, problem, session.target, machine)
        self.trials = {trial.candidate: trial for trial in self._log.read(self.spaces)}
        records, how = session.records, (session.target, session.math)
        known = filter(
            None, [records.best(problem, *how), records.of_sums(problem, *how), *records.elsewhere(problem, *how)]
        )
        near = nearest(problem, records.winners(*how))
        adapted = (adapt(record.candidate, self.spaces) for record in (*known, *near))
        self._starts = list(dict.fromkeys(filter(None, adapted)))[:STARTS]

    @property
    def default(self) -> Candidate:
        """The schedule for zero trials."""
        return self.spaces[0].defaults[0]

    @property
    def best(self) -> float:
        """Seconds of the fastest candidate."""
        # A list: other threads may be adding to the trials.
        return min((trial.cost for trial in list(self.trials.values())), default=inf)

    def propose(self, count: int) -> list[Candidate]:
        """Return at most `count` candidates to measure next; none when nothing is left."""
        return self._search.propose(count)

    def write(self, *trials: Trial) -> None:
        """Write candidates that were measured."""
        self._log.append(*trials)

    def take(self, trial: Trial) -> None:
        """Take in a candidate that was written."""
        self.trials[trial.candidate] = trial
        self._search.tell(trial.candidate, trial.cost)
        if trial.status in ("wrong", "crashed"):
            self._warn(f"{trial.candidate} is rejected, {trial.status}: {trial.detail}")

    def finish(self) -> TuneResult:
        """Race the fastest and record the winner."""
        record = self._record_winner()
        failures = tuple(trial for trial in self.trials.values() if trial.status != "ok")
        return TuneResult(self.problem, record, len(self.trials), failures)

    def to_prebuild(self, count: int) -> list[Candidate]:
        """Return the candidates to build beforehand, where machines that measure cannot build: the next race's, and `count` more."""
        return list(dict.fromkeys([*self._finalists(), *self.propose(count)]))

    @cached_property
    def _search(self) -> Proposes:
        session, measured = self._session, {trial.candidate: trial.cost for trial in self.trials.values()}
        if session.search is not None:
            return session.search(self.problem, self.spaces, measured, self._starts)
        return Search(self.spaces, session.seed, measured, self._starts)

    def _record_winner(self) -> Record | None:
        """Race the fastest trials and the defaults; record the winner, and the best of other algorithms."""
        # Records that ship won over other trials, perhaps over as many.
        own = Records(self._session.records.folder, shipped=False)
        old = own.best(self.problem, self._session.target, self._session.math)
        if old is not None and self._is_recent(old):
            return old
        finalists = self._finalists()
        if not finalists:
            self._warn(f"no candidate {'works' if self.trials else 'was measured'}, so nothing is recorded")
            return None
        try:
            times = self._session.evaluator.race(self.problem, self._session.target, finalists)
        except TvmconvError as error:
            self._warn(f"the final race failed, so nothing is recorded: {error}")
            return None
        records = self._placed(finalists, times)
        everyone = {(format_signature(self.problem), space.algorithm, space.version) for space in self.spaces}
        self._session.records.put(records, beaten=everyone - {record.key for record in records})
        return records[0]

    def _is_recent(self, record: Record) -> bool:
        """Return whether no other race is needed: the record won undisturbed over the same trials."""
        same = (record.rank, record.trials, record.machine) == (0, len(self.trials), self._session.machine)
        return same and record.cold == self._session.cold and record.placements >= LEAST_QUIET

    def _placed(self, finalists: list[Candidate], race: Times) -> list[Record]:
        """Return the records of a race, the winner's first."""
        raced, times, disturbed = finalists, race.undisturbed(), race.quiet.count(False)
        if len(times.quiet) < LEAST_QUIET:
            self._warn(
                f"others used the processors during {disturbed} of {len(race.quiet)} parts of the final race, so the "
                "default schedule stays; the trials are kept: tune again when the machine is quiet"
            )
            times, finalists = race, [each for each in finalists if each in self._defaults] or finalists
        everyone = dict(zip(raced, times.seconds, strict=True))
        placed = {candidate: everyone[candidate] for candidate in finalists}
        default = median(placed[self.default]) if self.default in placed else None
        count = len(race.quiet) - disturbed
        return [
            self._record(candidate, median(placed[candidate]), default, rank=rank, placements=count)
            for rank, candidate in enumerate(ranking(placed, self.spaces, times.again))
        ]

    @property
    def _defaults(self) -> list[Candidate]:
        """Schedules for zero trials, with the session's math and with strict math."""
        strict = [space.defaults[0] for space in self.spaces if space.numerical_class == "exact"]
        return [self.default, *strict[:1]]

    def _finalists(self) -> list[Candidate]:
        """Return the candidates of the race, from the trials that work.

        The default; the fastest; the default of strict math; every algorithm's fastest.
        """
        ok = (trial for trial in self.trials.values() if trial.status == "ok")
        working = [trial.candidate for trial in sorted(ok, key=lambda trial: trial.cost)]
        best = {candidate.algorithm: candidate for candidate in reversed(working)}
        chosen = [self.default, *working[:FINALISTS], *self._defaults, *best.values()]
        return [candidate for candidate in dict.fromkeys(chosen) if candidate in working]

    def _record(self, candidate: Candidate, seconds: float, default_seconds: float | None, **race: int) -> Record:
        return Record(
            signature=format_signature(self.problem),
            target=self._session.target.tuned_as,
            algorithm=candidate.algorithm,
            version=next(space.version for space in self.spaces if space.algorithm == candidate.algorithm),
            sketch=candidate.sketch,
            decisions=candidate.decisions,
            seconds=_round(seconds),
            default_seconds=None if default_seconds is None else _round(default_seconds),
            trials=len(self.trials),
            seed=self._session.seed,
            machine=self._session.machine,
            date=datetime.now(timezone.utc).date().isoformat(),
            tools=self._session.tools,
            cold=self._session.cold,
            **race,
        )

    def _warn(self, text: str) -> None:
        warnings.warn(f"{format_signature(self.problem)}: {text}", TvmconvWarning, stacklevel=2)


def _round(seconds: float) -> float:
    return float(f"{seconds:.4g}")
