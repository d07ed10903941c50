"""Give the next turn to the problem that gains most of it by estimate, as MetaSchedule's gradient scheduler does, or to each in its turn.

A turn is built, then measured: one by one, or on servers while the next turn is built.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from math import inf

from .evaluate import Result, discard
from .problem_tuner import Session
from .search import Candidate
from .trials import Trial
from .turns import Turns

# MetaSchedule's: the turns whose gain counts, and how much; the rest is what a problem that gains as until now would.
WINDOW, RECENT = 3, 0.2


def drive(problems: Sequence[Turns], weights: Sequence[int], session: Session, scheduler: str) -> None:
    """Give turns until no problem takes another.

    Parameters
    ----------
    problems, weights
        Each problem, and how often it counts.
    session
        Theirs.
    scheduler
        ``"gradient"`` or ``"round-robin"``.
    """
    draw, kept = random.Random(session.seed), _Saver()
    waiting = deque(_Task(*each, session, kept) for each in zip(problems, weights, strict=True))
    try:
        first = len(waiting)  # one turn for each problem, whatever it gains
        while waiting:
            if scheduler == "gradient" and not first:
                draw.shuffle(waiting)  # of equal ones, any
                waiting.remove(most := max(waiting, key=_Task.gain))
                waiting.appendleft(most)
            task = waiting.popleft()
            if task.take_turn():
                waiting.append(task)
            first = max(first - 1, 0)
    finally:
        session.evaluator.stop()


class _Saver:
    """Trials that are saved when they are measured, by whichever thread comes: a write to the disk may take longer than a measurement."""

    def __init__(self) -> None:
        self._measured: deque[tuple[Turns, Trial]] = deque()
        self._saves = threading.Lock()

    def keep(self, turns: Turns, trial: Trial) -> None:
        """Save a trial, and those of other threads."""
        self._measured.append((turns, trial))
        with self._saves:
            found: dict[Turns, list[Trial]] = {}
            while self._measured:
                owner, each = self._measured.popleft()
                found.setdefault(owner, []).append(each)
            for owner, trials in found.items():
                owner.keep(*trials)


class _Task:
    """A problem, and what it gained by its turns until now."""

    def __init__(self, turns: Turns, weight: int, session: Session, kept: _Saver) -> None:
        self._turns, self._weight, self._session, self._kept = turns, weight, session, kept
        self._bests: list[float] = []
        self._started: list[Future[None]] = []
        self._built: Sequence[Result] = ()

    def take_turn(self) -> bool:
        """Build the next candidates and have them measured; where there are none, race, record and return False."""
        self._wait()
        candidates = self._turns.propose()
        if not candidates:
            self._turns.finish()
            return False
        evaluator, problem = self._session.evaluator, self._turns.problem
        self._built = evaluator.build(problem, self._session.target, candidates)
        self._started = evaluator.start(self._judge, zip(candidates, self._built, strict=True))
        return True

    def gain(self) -> float:
        """Return the seconds that the next turn is expected to gain of all, those of the last turns counted once they have ended."""
        if self._started and (not self._bests or all(each.done() for each in self._started)):
            self._wait()
        best, before = self._bests[-1], self._bests[-1 - WINDOW :][0]
        if best == inf:  # nothing of it works
            return -inf
        recent = (before - best) / WINDOW if len(self._bests) > WINDOW else 0.0
        return self._weight * (RECENT * recent + (1 - RECENT) * best / len(self._bests))

    def _wait(self) -> None:
        """Wait for the measurements of the last turn."""
        for each in self._started:
            each.result()
        if self._started:
            self._bests.append(self._turns.tuner.best)
        discard(self._built)
        self._started, self._built = [], ()

    def _judge(self, candidate: Candidate, built: Result) -> None:
        tuner = self._turns.tuner
        trial = self._session.evaluator.judge(self._turns.problem, tuner.spaces, candidate, built, tuner.best)
        self._kept.keep(self._turns, trial)
