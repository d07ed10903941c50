"""The tuning loop, run by MetaSchedule: its task scheduler picks the problem of the next turn, and calls our builder and runner.

Each problem is one task, however many algorithms it has: the gradient scheduler minimizes the sum of the times of all tasks, and
only the fastest algorithm of a problem counts. The modules that MetaSchedule handles are placeholders, whose
attribute names a candidate. Builder processes apply the schedule itself, so a schedule that crashes TVM ends a builder alone.
"""

from __future__ import annotations

import json
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from functools import partial
from typing import Any, ClassVar

import tvm
from tvm import tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import MeasureCandidate
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerFuture, RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import PySearchStrategy
from tvm.s_tir.meta_schedule.space_generator import PySpaceGenerator
from tvm.s_tir.meta_schedule.task_scheduler import GradientBased, RoundRobin

from ..measuring.race import Built
from ..signature import format_signature
from .contexts import NO_LIMIT, random_state, tune_context
from .evaluate import discard
from .problem_tuner import Session
from .search import Candidate
from .trials import Trial
from .turns import BATCH, Turns

NAME = "tvmconv.candidate"


def drive(problems: Sequence[Turns], weights: Sequence[int], session: Session, scheduler: str) -> None:
    """Run MetaSchedule's task scheduler, ``"gradient"`` or ``"round-robin"``, until no problem takes another turn."""
    bench = _Bench(session, {format_signature(turns.problem): turns for turns in problems})
    # TVM compiles no kernels here, whatever the target.
    target = tvm.target.Target("llvm")
    tasks = [
        tune_context(
            _empty_function(json.dumps(signature)),
            target=target,
            space_generator=_NoSpace(),
            search_strategy=_Strategy(bench, turns),
            task_name=signature,
        )
        for signature, turns in bench.problems.items()
    ]
    order = GradientBased(seed=random_state(session.seed)) if scheduler == "gradient" else RoundRobin()
    limits = (NO_LIMIT, NO_LIMIT, BATCH)  # candidates in all, of a task, in a turn
    with bench.raising():
        order.tune(tasks, weights, *limits, _Builder(bench), _Runner(bench), [], None, None)


class _Bench:
    """Builder and runner of all problems' candidates, and their errors.

    TVM turns Python errors into RuntimeErrors without their class, and Ctrl-C into one without a message: the originals are kept here.
    """

    def __init__(self, session: Session, problems: dict[str, Turns]) -> None:
        self.problems = problems
        self.session = session
        self._built: dict[str, tuple[Turns, Candidate, Built]] = {}
        self._error: BaseException | None = None
        self._within = 0
        self._measured: deque[tuple[Turns, Trial]] = deque()
        self._keeps = threading.Lock()

    def build(self, names: Sequence[str]) -> list[BuilderResult]:
        """Build the candidates of one problem's turn; one that does not compile is judged at once."""
        signature, *_ = json.loads(names[0])
        turns = self.problems[signature]
        candidates = [_candidate(name) for name in names]
        found = self.session.evaluator.build(turns.problem, self.session.target, candidates)
        results = []
        for name, candidate, built in zip(names, candidates, found, strict=True):
            if isinstance(built, Built):
                self._built[name] = (turns, candidate, built)
                results.append(BuilderResult(name, None))
            else:
                results.append(BuilderResult(None, self._judge(turns, candidate, built).error_msg))
        return results

    def run(self, names: Sequence[str]) -> list[RunnerFuture]:
        """Measure built candidates one by one, or by servers while MetaSchedule goes on to the next turn."""
        built = [self._built.pop(name) for name in names]
        futures = self.session.evaluator.start(self._judge, built)

        def result(number: int) -> RunnerResult:
            with self.keeping():
                found = futures[number].result()
                if number == len(futures) - 1:  # asked for last
                    discard(each for _, _, each in built)
                return found

        return [RunnerFuture(each.done, partial(result, number)) for number, each in enumerate(futures)]

    def _judge(self, turns: Turns, candidate: Candidate, built: Any) -> RunnerResult:
        tuner = turns.tuner
        trial = self.session.evaluator.judge(turns.problem, tuner.spaces, candidate, built, tuner.best)
        self._measured.append((turns, trial))
        with self._keeps:
            self._keep()
        if trial.seconds is None:
            return RunnerResult(None, f"{trial.status}: {trial.detail}")
        return RunnerResult([trial.seconds], None)

    def _keep(self) -> None:
        """Save the trials measured so far, those of other threads too: writing may take longer than measuring."""
        found: dict[Turns, list[Trial]] = {}
        while self._measured:
            turns, trial = self._measured.popleft()
            found.setdefault(turns, []).append(trial)
        for turns, trials in found.items():
            turns.keep(*trials)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep an error of this context, which TVM is about to lose, and raise one kept before."""
        self._within += 1
        try:
            if self._error is not None:
                raise self._error
            yield
        except BaseException as error:
            self._error = self._error or error
            raise
        finally:
            self._within -= 1

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise the kept error in place of TVM's, also a Ctrl-C that arrives within TVM.

        An exception that a signal raises where TVM's C++ expects none ends the process: the next of our contexts raises it.
        """

        def interrupt(*_: object) -> None:
            self._error = self._error or KeyboardInterrupt()
            if self._within:
                raise self._error

        ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if ours:
            signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        except RuntimeError:
            if self._error is None:
                raise
        finally:
            if ours:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            self.session.evaluator.stop()
        if self._error is not None:
            raise self._error


@derived_object
class _NoSpace(PySpaceGenerator):  # type: ignore[misc]
    """No spaces: the first turn of a problem has them described in another process."""

    sch_rules: tuple[()] = ()
    postprocs: tuple[()] = ()
    mutator_probs: ClassVar[dict[Any, float]] = {}

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def generate_design_space(self, mod: tvm.IRModule) -> list[Schedule]:
        """Return nothing."""
        return []


@derived_object
class _Strategy(PySearchStrategy):  # type: ignore[misc]
    """Proposes the candidates of a problem's turn; measurements are recorded when they are done, not when MetaSchedule reports them."""

    def __init__(self, bench: _Bench, turns: Turns) -> None:
        super().__init__()
        self._bench, self._turns = bench, turns

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def pre_tuning(self, *_: Any) -> None:
        """Wait for the first turn."""

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """Return the candidates of the next turn; None if there is none."""
        with self._bench.keeping():
            signature = format_signature(self._turns.problem)
            names = [json.dumps([signature, *astuple(each)]) for each in self._turns.propose()]
            return [MeasureCandidate(Schedule(_empty_function(name)), []) for name in names] or None

    def notify_runner_results(self, *_: Any) -> None:
        """Do nothing: the measurements are recorded already."""

    def post_tuning(self) -> None:
        """Race and record: no other turn follows."""
        with self._bench.keeping():
            self._turns.finish()


@derived_object
class _Builder(PyBuilder):  # type: ignore[misc]
    def __init__(self, bench: _Bench) -> None:
        super().__init__()
        self._bench = bench

    def build(self, build_inputs: Sequence[Any]) -> list[BuilderResult]:
        """Build the named candidates."""
        with self._bench.keeping():
            return self._bench.build([str(each.mod["main"].attrs[NAME]) for each in build_inputs])


@derived_object
class _Runner(PyRunner):  # type: ignore[misc]
    def __init__(self, bench: _Bench) -> None:
        super().__init__()
        self._bench = bench

    def run(self, runner_inputs: Sequence[Any]) -> list[RunnerFuture]:
        """Measure built candidates, here or by servers."""
        with self._bench.keeping():
            return self._bench.run([str(each.artifact_path) for each in runner_inputs])


def _empty_function(name: str) -> tvm.IRModule:
    """Return a module whose function does nothing and has the candidate's name."""
    function = tirx.PrimFunc([], tirx.Evaluate(tirx.IntImm("int32", 0)))
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main").with_attr(NAME, name)})


def _candidate(name: str) -> Candidate:
    _, algorithm, sketch, decisions = json.loads(name)
    return Candidate(algorithm, sketch, tuple(decisions))
