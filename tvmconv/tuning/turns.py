"""Turns of problems under one budget, until all are done or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from ..problem import Problem
from .problem_tuner import ProblemTuner, Session, TuneResult
from .search import Candidate
from .trials import Trial

# Candidates of a turn: built together, then measured one by one, or at once by servers; more if there are more servers. Not the
# number of cores: the search would differ between machines.
BATCH = 16
# Seconds of a final race on a quiet machine, its kernels built again; of a candidate that is built and measured, on a busy one.
RACE_SECONDS, CANDIDATE_SECONDS = 3.0, 0.25
# Candidates of a turn where no time is left: the default schedule, and one to compare it with.
LEAST_TURN = 2


@dataclass(frozen=True)
class TuneProgress:
    """Progress of tuning, reported after every trial.

    Attributes
    ----------
    problem, number, count
        The problem of the trial, its number (from 1), and the number of problems.
    trials, wanted
        Its candidates measured until now, earlier runs included, and the number wanted; None: time alone limits it.
    best_seconds, default_seconds
        Seconds of its fastest candidate and of its default schedule; None before they are measured.
    elapsed, remaining
        Seconds since the start, and seconds left by estimate; None before there is one.
    """

    problem: Problem
    number: int
    count: int
    trials: int
    wanted: int | None
    best_seconds: float | None
    default_seconds: float | None
    elapsed: float
    remaining: float | None


class Budget:
    """Limits of all problems' tuning together.

    Parameters
    ----------
    trials
        Candidates to measure for each problem, those of earlier runs included; None: no limit.
    seconds
        Time for all problems, the final races included; None: no limit.
    """

    def __init__(self, trials: int | None, seconds: float | None) -> None:
        self.trials = trials
        self.problems: list[Turns] = []
        self._seconds = inf if seconds is None else seconds
        self._start = time.monotonic()
        self._measured = 0

    def has_time(self) -> bool:
        """Return whether time is left to search, beside the races of the problems that had a turn."""
        races = RACE_SECONDS * sum(each.is_begun and each.result is None for each in self.problems)
        return self.elapsed() < self._seconds - min(races, self._seconds / 2)

    def turn(self, width: int) -> float:
        """Return for how many candidates a turn has time, `width` of which are measured at once."""
        in_time = (self._seconds - self.elapsed()) // CANDIDATE_SECONDS * width
        return min(max(BATCH, width), max(LEAST_TURN, in_time))

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._start

    def state(self, turns: Turns) -> TuneProgress:
        """Return the progress after one more trial of a problem."""
        self._measured += 1
        elapsed = self.elapsed()
        remaining = self._seconds - elapsed
        if self.trials is not None:
            to_do = sum(max(self.trials - each.measured, 0) for each in self.problems)
            remaining = min(remaining, elapsed / self._measured * to_do)
        tuner = turns.tuner
        default = tuner.trials.get(tuner.default)
        return TuneProgress(
            problem=turns.problem,
            number=self.problems.index(turns) + 1,
            count=len(self.problems),
            trials=len(tuner.trials),
            wanted=self.trials,
            best_seconds=_finite(tuner.best),
            default_seconds=None if default is None else default.seconds,
            elapsed=elapsed,
            remaining=_finite(max(remaining, 0.0)),
        )


class Turns:
    """Turns of one problem; `result` is None until they have ended. No work is done before the first turn."""

    def __init__(
        self, session: Session, problem: Problem, budget: Budget, progress: Callable[[TuneProgress], None] | None
    ) -> None:
        self.problem = problem
        self.result: TuneResult | None = None
        self._session, self._budget, self._progress = session, budget, progress
        budget.problems.append(self)

    @cached_property
    def tuner(self) -> ProblemTuner:
        """Tuner of the problem, with the trials of earlier runs."""
        return ProblemTuner(self._session, self.problem)

    @property
    def measured(self) -> int:
        """Number of candidates measured until now; those of earlier runs do not count before the first turn."""
        return len(self.tuner.trials) if self.is_begun else 0

    @property
    def is_begun(self) -> bool:
        """Return whether the problem had a turn."""
        return "tuner" in self.__dict__

    def propose(self) -> list[Candidate]:
        """Return the candidates of the next turn; empty if there is none. Even without time, the first problem has a short one."""
        budget = self._budget
        is_first = not any(each.is_begun for each in budget.problems)
        if not (is_first or self.measured or budget.has_time()):
            return []
        wanted = inf if budget.trials is None else budget.trials
        left = wanted - len(self.tuner.trials)
        if left <= 0 or (self.tuner.trials and not budget.has_time()):
            return []
        return self.tuner.propose(int(min(budget.turn(self._session.evaluator.width), left)))

    def measure(self, candidates: Sequence[Candidate]) -> None:
        """Build candidates, then measure them."""
        session, tuner = self._session, self.tuner
        for trial in session.evaluator.trials(self.problem, session.target, tuner.spaces, candidates, tuner.best):
            self.keep(trial)

    def keep(self, *trials: Trial) -> None:
        """Write and take in candidates that were measured, and report each."""
        self.tuner.write(*trials)
        for trial in trials:
            self.tuner.take(trial)
            state = self._budget.state(self)
            if self._progress is not None:
                self._progress(state)

    def finish(self) -> None:
        """Race the fastest and record the winner, once, if there was a turn."""
        if self.result is None and self.is_begun:
            self.result = self.tuner.finish()


def _finite(value: float) -> float | None:
    return value if value < inf else None
