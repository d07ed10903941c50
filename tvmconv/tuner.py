"""The tuner: measures schedules of problems within a budget and records the fastest."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from math import inf

from . import __version__
from .cpu import cpu_features, kernel_threads, model_name
from .errors import TargetError, TuningError, TvmconvError, TvmconvWarning
from .evaluate import Evaluator
from .problem import Problem
from .records import Record, Records
from .search import Candidate, Search, Space
from .signature import format_signature
from .target import Target
from .trials import Trial, TrialLog

DEFAULT_TRIALS = 64
# Built together, then measured one by one. Not the number of cores: the search would differ between machines.
BATCH = 16
FINALISTS = 4
# The default schedule wins against one that is faster by less than this.
GAIN = 0.01


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


@dataclass(frozen=True)
class TuneResult:
    """What tuning one problem gave.

    Attributes
    ----------
    problem
        The problem.
    record
        The winner; None if no candidate worked.
    trials
        Candidates measured, earlier runs included.
    failures
        Those of them that did not compile, crashed, hung or computed something else.
    """

    problem: Problem
    record: Record | None
    trials: int
    failures: tuple[Trial, ...]

    @property
    def gain(self) -> float | None:
        """How many times faster the winner is than the default schedule."""
        if self.record is None or self.record.default_seconds is None:
            return None
        return self.record.default_seconds / self.record.seconds


def tune(
    problems: Sequence[Problem],
    target: str | Target = "host",
    *,
    trials: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
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
        A CPU that this machine can run.
    trials
        Candidates to measure for each problem, those of earlier calls included. Absent: 64, or as many as
        `seconds` allows.
    seconds
        For all problems together; divided evenly, what one leaves goes to the later ones. Building the first
        candidates and the final comparison may exceed it by a few seconds a problem.
    seed
        The same seed (and measurements) give the same candidates.
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
        If the target is unknown, or this machine lacks its features.
    TuningError
        If the budget is not positive.
    """
    if trials is not None and trials < 1:
        raise TuningError(f"trials is {trials}; it must be at least 1")
    if seconds is not None and not seconds > 0:
        raise TuningError(f"seconds is {seconds}; it must be above 0")
    if trials is None and seconds is None:
        trials = DEFAULT_TRIALS
    threads = kernel_threads()
    with Evaluator(jobs=len(os.sched_getaffinity(0)), threads=threads) as evaluator:
        tuner = Tuner(
            evaluator,
            check_tunable(Target.parse(target) if isinstance(target, str) else target),
            Records() if records is None else records,
            f"{model_name()} ({threads} threads)",
            seed,
        )
        return tuner.run([p for p in problems if not p.is_empty], trials, seconds, progress)


class Tuner:
    """Tunes problems with one evaluator (see :func:`tune`).

    Parameters
    ----------
    evaluator
        Builds and measures.
    target, records, seed
        As for :func:`tune`.
    machine
        What the measurements are marked with.
    """

    def __init__(self, evaluator: Evaluator, target: Target, records: Records, machine: str, seed: int) -> None:
        self._evaluator = evaluator
        self._target = target
        self._records = records
        self._machine = machine
        self._seed = seed

    def run(
        self,
        problems: Sequence[Problem],
        trials: int | None,
        seconds: float | None,
        progress: Callable[[TuneProgress], None] | None,
    ) -> list[TuneResult]:
        """Tune each problem within the budget."""
        start = time.monotonic()
        end = inf if seconds is None else start + seconds
        results = []
        measured = 0
        for number, problem in enumerate(problems, 1):
            now = time.monotonic()
            deadline = now + (end - now) / (len(problems) - number + 1)
            run = _Run(self._evaluator, problem, self._target, self._records, self._machine, self._seed)

            def report(run: _Run = run, number: int = number) -> None:
                nonlocal measured
                measured += 1
                if progress is None:
                    return
                elapsed = time.monotonic() - start
                left = end - time.monotonic()
                if trials is not None:
                    to_do = trials - len(run.trials) + trials * (len(problems) - number)
                    left = min(left, elapsed / measured * to_do)
                default = run.trials.get(run.default)
                progress(
                    TuneProgress(
                        run.problem, number, len(problems), len(run.trials), trials,
                        _finite(run.best), _finite(default.cost if default else inf), elapsed, _finite(max(left, 0.0)),
                    )
                )  # fmt: skip

            results.append(run.tune(inf if trials is None else trials, deadline, report))
        return results


class _Run:
    """The tuning of one problem."""

    def __init__(
        self, evaluator: Evaluator, problem: Problem, target: Target, records: Records, machine: str, seed: int
    ) -> None:
        self.problem = problem
        self._evaluator, self._target, self._records = evaluator, target, records
        self._machine, self._seed = machine, seed
        self._spaces: list[Space] = evaluator.spaces(problem, target)
        self._log = TrialLog(records.folder, problem, target, machine)
        self.trials = {trial.candidate: trial for trial in self._log.read(self._spaces)}

    @property
    def default(self) -> Candidate:
        """The schedule for zero trials."""
        return self._spaces[0].defaults[0]

    @property
    def best(self) -> float:
        """Seconds of the fastest candidate."""
        return min((trial.cost for trial in self.trials.values()), default=inf)

    def tune(self, wanted: float, deadline: float, report: Callable[[], None]) -> TuneResult:
        """Measure until there are `wanted` trials or the deadline has passed; record the winner."""
        try:
            self._search(wanted, deadline, report)
        except KeyboardInterrupt:
            self._crown()
            raise
        record = self._crown()
        failures = tuple(trial for trial in self.trials.values() if trial.status != "ok")
        return TuneResult(self.problem, record, len(self.trials), failures)

    def _search(self, wanted: float, deadline: float, report: Callable[[], None]) -> None:
        search = Search(self._spaces, self._seed, {trial.candidate: trial.cost for trial in self.trials.values()})
        while len(self.trials) < wanted and (time.monotonic() < deadline or not self.trials):
            candidates = search.propose(int(min(BATCH, wanted - len(self.trials))))
            if not candidates:
                return
            for trial in self._evaluator.trials(self.problem, self._target, self._spaces, candidates, self.best):
                self._log.append(trial)
                self.trials[trial.candidate] = trial
                search.tell(trial.candidate, trial.cost)
                if trial.status in ("wrong", "crashed"):
                    self._warn(f"{trial.candidate} is rejected, {trial.status}: {trial.detail}")
                report()
                if time.monotonic() >= deadline:
                    return

    def _crown(self) -> Record | None:
        """Compare the fastest trials and the default in turns; record the winner, and other algorithms' best.

        Another algorithm's best is of use when the winner's definition changes, if it beats the default.
        """
        old = self._records.best(self.problem, self._target)
        if old is not None and old.trials == len(self.trials) and old.machine == self._machine:
            return old
        finalists = self._finalists()
        if not finalists:
            self._warn("no candidate works, so nothing is recorded")
            return None
        try:
            medians = self._evaluator.race(self.problem, self._target, finalists)
        except TvmconvError as error:
            self._warn(f"the final comparison failed, so nothing is recorded: {error}")
            return None
        seconds = dict(zip(finalists, medians, strict=True))
        default = seconds.get(self.default)
        ranked = sorted(finalists, key=seconds.__getitem__)
        if default is not None and default * (1 - GAIN) <= seconds[ranked[0]]:
            ranked = [self.default]
        winners: dict[str, Record] = {}
        for candidate in ranked:
            if default is None or seconds[candidate] <= default:
                winners.setdefault(candidate.algorithm, self._record(candidate, seconds[candidate], default))
        self._records.put(winners.values())
        return winners[ranked[0].algorithm]

    def _finalists(self) -> list[Candidate]:
        """Return the fastest trials, every algorithm's fastest, and the default, of those that work."""
        working = sorted(
            (trial for trial in self.trials.values() if trial.status == "ok"), key=lambda trial: trial.cost
        )
        chosen = [trial.candidate for trial in working[:FINALISTS]]
        algorithms = {candidate.algorithm for candidate in chosen}
        for trial in working:
            if trial.candidate.algorithm not in algorithms or trial.candidate == self.default:
                algorithms.add(trial.candidate.algorithm)
                chosen.append(trial.candidate)
        return list(dict.fromkeys(chosen))

    def _record(self, candidate: Candidate, seconds: float, default_seconds: float | None) -> Record:
        return Record(
            signature=format_signature(self.problem),
            target=self._target.name,
            algorithm=candidate.algorithm,
            version=next(space.version for space in self._spaces if space.algorithm == candidate.algorithm),
            sketch=candidate.sketch,
            decisions=candidate.decisions,
            seconds=_rounded(seconds),
            default_seconds=None if default_seconds is None else _rounded(default_seconds),
            trials=len(self.trials),
            seed=self._seed,
            machine=self._machine,
            date=datetime.now(timezone.utc).date().isoformat(),
            tools={"tvmconv": __version__, "apache-tvm": version("apache-tvm")},
        )

    def _warn(self, text: str) -> None:
        warnings.warn(f"{format_signature(self.problem)}: {text}", TvmconvWarning, stacklevel=2)


def check_tunable(target: Target) -> Target:
    """Return `target`.

    Raises
    ------
    TargetError
        If this machine cannot run its code.
    """
    missing = sorted(set(target.features) - cpu_features())
    if missing:
        raise TargetError(
            f"target {target.name} cannot be tuned on this machine, whose CPU lacks {', '.join(missing)}; tune it on one that has them"
        )
    return target


def _finite(value: float) -> float | None:
    return value if value < inf else None


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")
