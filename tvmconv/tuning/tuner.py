"""The tuner: measures schedules of problems within a budget and records the fastest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from ..algorithms.table import check_math
from ..errors import TuningError
from ..problem import Problem
from ..targets.target import Target
from .evaluate import Evaluator
from .machine import check_tunable, tuning_machine
from .problem_tuner import ProblemTuner, Session, TuneResult
from .records import Records

DEFAULT_TRIALS = 64
# Within a time for all: after so many candidates of one problem without progress, the next has its turn.
PATIENCE = 32


@dataclass(frozen=True)
class TuneProgress:
    """How far tuning is, reported after every trial.

    Attributes
    ----------
    problem, number, count
        The problem at work, which it is (from 1), and how many there are.
    trials, wanted
        Its candidates measured until now, earlier runs included, and how many are wanted; None if time alone limits.
    best_seconds, default_seconds
        Of its fastest candidate and its default schedule; None before there is one.
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


def tune(
    problems: Sequence[Problem],
    target: str | Target = "host",
    *,
    trials: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    math: str = "default",
    records: Records | None = None,
    progress: Callable[[TuneProgress], None] | None = None,
) -> list[TuneResult]:
    """Find fast schedules and record them.

    The default schedule is measured first and takes part in the final comparison, so what is recorded is
    never slower. Every candidate is checked against the reference before it is timed. Each measurement is written
    at once: when interrupted (KeyboardInterrupt), the best until then is recorded, and the next call continues.

    Parameters
    ----------
    problems
        What to tune.
    target
        A CPU that this machine can run, or a GPU like its first.
    trials
        Candidates to measure for each problem, those of earlier calls included. Absent: 64, or as many as
        `seconds` allows.
    seconds
        For all problems together; divided evenly. A problem that makes no progress leaves its time to the others, and
        has another turn when there is time left. The last candidates built and the final race may exceed it by a few
        seconds a problem.
    seed
        The same seed (and measurements) give the same candidates.
    math
        ``"strict"``: only algorithms whose answer differs from the formula in the order of the sum alone. ``"tf32"``:
        on GPUs also f32 by tensor cores, which round factors to TF32.
    records
        Where they are written; absent: the user's folder.
    progress
        Called after every trial.

    Returns
    -------
    list of TuneResult
        One for each problem that has an output, in order.

    Raises
    ------
    TargetError
        If the target is unknown.
    UnsupportedMachineError
        If this machine cannot run its code.
    TuningError
        If the budget is not positive.
    TvmconvError
        If `math` is not ``"default"``, ``"strict"`` or ``"tf32"``.
    """
    if trials is not None and trials < 1:
        raise TuningError(f"trials is {trials}; it must be at least 1")
    if seconds is not None and not seconds > 0:
        raise TuningError(f"seconds is {seconds}; it must be above 0")
    if trials is None and seconds is None:
        trials = DEFAULT_TRIALS
    check_math(math)
    target = check_tunable(Target.parse(target) if isinstance(target, str) else target)
    machine = tuning_machine(target)
    records = Records() if records is None else records
    with Evaluator(len(os.sched_getaffinity(0)), machine.threads, measure=machine.measure) as evaluator:
        session = Session(evaluator, target, records, machine.label, seed, math)
        return tune_all(session, [p for p in problems if not p.is_empty], trials, seconds, progress)


def tune_all(
    session: Session,
    problems: Sequence[Problem],
    trials: int | None,
    seconds: float | None,
    progress: Callable[[TuneProgress], None] | None,
) -> list[TuneResult]:
    """Tune each problem, as :func:`tune` does, in a session of the caller's."""
    clock = _Clock(trials, seconds)
    results: dict[Problem, TuneResult] = {}
    tuners: dict[Problem, ProblemTuner] = {}
    turns, patience = list(dict.fromkeys(problems)), inf if seconds is None else PATIENCE
    while turns and (not results or clock.has_time()):
        for number, problem in enumerate(turns, 1):
            deadline = clock.share(len(turns) - number + 1)
            tuner = tuners.get(problem) or ProblemTuner(session, problem)
            tuners[problem] = tuner

            def report(tuner: ProblemTuner = tuner, number: int = number, count: int = len(turns)) -> None:
                state = clock.state(tuner, number, count)
                if progress is not None:
                    progress(state)

            results[problem] = tuner.tune(inf if trials is None else trials, deadline, report, patience)
        # What made no progress gets twice the patience, as long as there is time and something left to measure.
        turns = [problem for problem in turns if not tuners[problem].is_done(inf if trials is None else trials)]
        patience *= 2
    return [results[problem] for problem in problems]


class _Clock:
    """The budget: each problem's share of the time, and how much is left."""

    def __init__(self, trials: int | None, seconds: float | None) -> None:
        self._trials = trials
        self._start = time.monotonic()
        self._end = inf if seconds is None else self._start + seconds
        self._measured = 0

    def has_time(self) -> bool:
        """Whether any is left."""
        return time.monotonic() < self._end

    def share(self, problems: int) -> float:
        """Return the deadline of a problem that starts now, when so many, itself included, share what is left."""
        now = time.monotonic()
        return now + (self._end - now) / problems

    def state(self, tuner: ProblemTuner, number: int, count: int) -> TuneProgress:
        """Return the progress after one more trial."""
        self._measured += 1
        now = time.monotonic()
        remaining = self._end - now
        if self._trials is not None:
            to_do = self._trials - len(tuner.trials) + self._trials * (count - number)
            remaining = min(remaining, (now - self._start) / self._measured * to_do)
        default = tuner.trials.get(tuner.default)
        return TuneProgress(
            problem=tuner.problem,
            number=number,
            count=count,
            trials=len(tuner.trials),
            wanted=self._trials,
            best_seconds=_finite(tuner.best),
            default_seconds=None if default is None else default.seconds,
            elapsed=now - self._start,
            remaining=_finite(max(remaining, 0.0)),
        )


def _finite(value: float) -> float | None:
    return value if value < inf else None
