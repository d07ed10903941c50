"""The tuner: measures schedules of problems within a budget and records the fastest."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Literal, get_args

from ..algorithms.table import check_math
from ..checks import choice
from ..errors import TuningError, TvmconvError, TvmconvWarning
from ..problem import Problem, list_of
from ..runtime.processors import allowed_processors
from ..targets.target import Target
from .evaluate import Evaluator
from .machine import Servers, check_tunable, tuning_machine
from .problem_tuner import Session, TuneResult
from .records import Records, records_of
from .turns import Budget, TuneProgress, Turns

# Four turns, of which at least one has no parents yet.
DEFAULT_TRIALS = 64
Scheduler = Literal["gradient", "round-robin"]


def tune(
    problems: Sequence[Problem],
    target: str | Target = "host",
    *,
    trials: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    math: str = "default",
    scheduler: Scheduler = "gradient",
    records: Records | str | os.PathLike[str] | None = None,
    progress: Callable[[TuneProgress], None] | None = None,
    servers: Servers | None = None,
    cold: bool = False,
) -> list[TuneResult]:
    """Find fast schedules and record them.

    The default schedule is measured first and takes part in the final comparison, so what is recorded is
    never slower. Every candidate is checked against the reference before it is timed. Each measurement is written
    at once: when interrupted (KeyboardInterrupt), the best until then is recorded, and the next call continues.

    Parameters
    ----------
    problems
        What to tune. A problem that is listed several times, as in a model, counts as often.
    target
        A CPU that this machine can run, or a GPU like its first. With `servers`: theirs.
    trials
        Candidates to measure for each problem, those of earlier calls included. Absent: 64, or all that
        `seconds` allows.
    seconds
        Time for all problems together, the final races included. Turns go first to problems without a record, among these to those
        with the most operations; the first turn and its race may exceed it. A warning counts the problems that had none.
    seed
        The same seed (and measurements) give the same candidates.
    math
        ``"strict"``: only algorithms whose answer differs from the formula in the order of the sum alone. ``"tf32"``:
        on GPUs also f32 by tensor cores, which round factors to TF32.
    scheduler
        Order of turns, by MetaSchedule. ``"gradient"``: the next turn goes where it is likely to save most of the total time,
        in which problems count as often as they are listed; ``"round-robin"``: problems take turns.
    records
        Records to write to, or their folder; absent: the user's, which :func:`tvmconv.build` reads.
    progress
        Called after every trial.
    servers
        Machines that measure instead of this one (`tvmconv.fleet.fleet.Fleet`); closed at the end.
    cold
        Whether each call reads its filter from memory, as within a network whose filters no cache keeps; else from a cache. A GPU's
        always do.

    Returns
    -------
    list of TuneResult
        One for each distinct problem that has an output and had a turn, in order.

    Raises
    ------
    InvalidProblemError
        If something else than a Problem is among the problems.
    TargetError
        If the target is unknown.
    UnsupportedMachineError
        If this machine cannot run its code.
    TuningError
        If the budget is not a positive number, or the scheduler is unknown.
    TvmconvError
        If `math` is not ``"default"``, ``"strict"``, ``"tf32"`` or ``"reproducible"``.
    """
    problems = list_of(problems)
    check_budget(trials, seconds)
    if trials is None and seconds is None:
        trials = DEFAULT_TRIALS
    choice("scheduler", scheduler, get_args(Scheduler), TuningError)
    check_math(math)
    jobs = len(allowed_processors())
    if servers is not None:
        target, label = servers.target, servers.machine
        evaluating = partial(Evaluator, jobs, 1, servers=servers)
    else:
        target = check_tunable(Target.parse(target) if isinstance(target, str) else target)
        machine = tuning_machine(target)
        label = machine.label
        evaluating = partial(Evaluator, jobs, machine.threads, measure=machine.measure)
    records = records_of(records, written=True)
    cold_bytes = target.evicting if cold else 0
    with evaluating(cold_bytes=cold_bytes) as evaluator:
        session = Session(evaluator, target, records, label, seed, math, cold=cold_bytes > 0)
        return tune_all(session, [p for p in problems if not p.is_empty], trials, seconds, progress, scheduler)


def check_budget(trials: int | None, seconds: float | None) -> None:
    """Raise TuningError unless trials and seconds are None or positive numbers."""
    if trials is not None and not (isinstance(trials, Integral) and trials >= 1):
        raise TuningError(f"trials is {trials!r}; it must be a whole number of at least 1")
    if seconds is not None and not (isinstance(seconds, Real) and seconds > 0):
        raise TuningError(f"seconds is {seconds!r}; it must be a number above 0")


def tune_all(
    session: Session,
    problems: Sequence[Problem],
    trials: int | None,
    seconds: float | None,
    progress: Callable[[TuneProgress], None] | None,
    scheduler: Scheduler = "gradient",
    give_turns: Callable[[list[Turns], Budget], None] | None = None,
) -> list[TuneResult]:
    """Tune each problem like :func:`tune`, in the caller's session, with the caller's turns if it gives any."""
    counts = Counter(problems)
    budget = Budget(trials, seconds)
    order = counts if seconds is None else sorted(counts, key=partial(_rank, session, counts))
    turns = {problem: Turns(session, problem, budget, progress) for problem in order}
    try:
        if give_turns is not None:
            give_turns(list(turns.values()), budget)
        elif turns:
            from .drive import drive  # imports TVM

            drive(list(turns.values()), [counts[each] for each in turns], session, scheduler)
    except (KeyboardInterrupt, TvmconvError) as error:
        if isinstance(error, KeyboardInterrupt):
            text = "interrupted: the fastest until now are compared and recorded, some seconds a problem; Ctrl-C again leaves that out"
            warnings.warn(text, TvmconvWarning, stacklevel=3)
        for each in turns.values():
            each.finish()
        raise
    if without := sum(each.result is None for each in turns.values()):
        text = f"{seconds:g} s were enough for {len(turns) - without} of {len(turns)} problems; tune again to go on with the other {without}"
        warnings.warn(text, TvmconvWarning, stacklevel=3)
    return [result for each in counts if (result := turns[each].result) is not None]


def _rank(session: Session, counts: Counter[Problem], problem: Problem) -> tuple[bool, int]:
    """Return a problem's priority under a time limit: untuned ones first, then by the number of operations."""
    own = Records(session.records.folder, shipped=False)
    return own.best(problem, session.target, session.math) is not None, -problem.flops * counts[problem]
