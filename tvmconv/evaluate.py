"""Candidates built and measured, in processes of their own: building in several at once, measuring in one.

The two never overlap, because the kernels under measurement use all cores. A candidate that fails to
compile, crashes, hangs or computes something else becomes a Trial that says so.
"""

from __future__ import annotations

import queue
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from .errors import ReplayError
from .measure import Check, Measured, measure
from .problem import Problem
from .race import Built, Race, Times
from .sandbox import Sandbox, TimeoutExceededError
from .search import Candidate, Space
from .target import Target
from .tasks import Compile, Describe
from .trials import Trial
from .workers import WorkerDiedError

# A kernel compiles in a tenth of a second; the first in a process waits for TVM to be imported.
BUILD_SECONDS = 60.0
# To measure a kernel, and the least speed (operations a second) of the reference that checks it.
MEASURE_SECONDS = 20.0
REFERENCE_FLOPS = 2e8
_DETAIL = 300


class Evaluator:
    """Builds and measures candidates. A context: it ends its processes.

    Parameters
    ----------
    jobs
        Number of processes that build.
    threads
        Number of threads that measured kernels use.
    work, measure
        What the processes run (functions that can be imported by name).

    Attributes
    ----------
    spent
        Seconds spent until now: ``"describing"`` spaces (and waiting for TVM to be imported), ``"building"`` (all
        processes at once), ``"measuring"`` and ``"racing"``.
    """

    def __init__(
        self,
        jobs: int,
        threads: int,
        work: Callable[[Any], Any] | None = None,
        measure: Callable[[Any], Any] = measure,
    ) -> None:
        if work is None:
            from .replay import work as compile_work  # imports TVM

            work = compile_work
        self._builders: list[Sandbox[Any, Any]] = [Sandbox(work, threads=1) for _ in range(jobs)]
        self._measurer: Sandbox[Any, Any] = Sandbox(measure, threads)
        self._folder = tempfile.TemporaryDirectory(prefix="tvmconv-tune-")
        self._libraries = 0
        self.spent = {"describing": 0.0, "building": 0.0, "measuring": 0.0, "racing": 0.0}

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for sandbox in [*self._builders, self._measurer]:
            sandbox.close()
        self._folder.cleanup()

    def spaces(self, problem: Problem, target: Target, math: str) -> list[Space]:
        """Return the problem's spaces with `math`, the one used with zero trials first."""
        with self._spending("describing"):
            spaces: list[Space] = self._builders[0].call(Describe(problem, target, math), BUILD_SECONDS)
        return spaces

    def trials(
        self, problem: Problem, target: Target, spaces: Sequence[Space], candidates: Sequence[Candidate]
    ) -> Iterator[Trial]:
        """Build the candidates, then measure and yield them one by one, in their order."""
        by_name = {space.algorithm: space for space in spaces}
        for candidate, built in zip(candidates, self._build(problem, target, candidates), strict=True):
            space = by_name[candidate.algorithm]
            if isinstance(built, ReplayError | WorkerDiedError | TimeoutExceededError):
                trial = Trial(candidate, space.version, _status(built), None, str(built)[-_DETAIL:])
            else:
                trial = self._measure(problem, space, candidate, built)
                Path(built.path).unlink()
            yield trial

    def race(self, problem: Problem, target: Target, candidates: Sequence[Candidate]) -> Times:
        """Time candidates that worked before in turns, in several placements of the arrays.

        Raises
        ------
        TvmconvError
            If one of them fails this time.
        """
        libraries = []
        for built in self._build(problem, target, candidates):
            if not isinstance(built, Built):
                raise built
            libraries.append(built)
        with self._spending("racing"):
            times: Times = self._measurer.call(Race(problem, tuple(libraries)), _limit(problem) * len(libraries))
        return times

    @contextmanager
    def _spending(self, what: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.spent[what] += time.monotonic() - start

    def _measure(self, problem: Problem, space: Space, candidate: Candidate, library: Built) -> Trial:
        check = Check(problem, space.numerical_class, library)
        try:
            with self._spending("measuring"):
                measured: Measured = self._measurer.call(check, _limit(problem))
        except (WorkerDiedError, TimeoutExceededError) as error:
            return Trial(candidate, space.version, _status(error), None, str(error)[-_DETAIL:])
        if measured.wrong:
            return Trial(candidate, space.version, "wrong", None, measured.wrong)
        return Trial(candidate, space.version, "ok", measured.seconds)

    def _build(
        self, problem: Problem, target: Target, candidates: Sequence[Candidate]
    ) -> list[Built | ReplayError | WorkerDiedError | TimeoutExceededError]:
        """Compile the candidates, all builders at work; return each one's library or what went wrong."""
        idle: queue.SimpleQueue[Sandbox[Any, Any]] = queue.SimpleQueue()
        for builder in self._builders:
            idle.put(builder)

        def compile_one(task: Any) -> Built | ReplayError | WorkerDiedError | TimeoutExceededError:
            builder = idle.get()
            try:
                packed = builder.call(task, BUILD_SECONDS)
                return Built(task.path, packed)
            except (ReplayError, WorkerDiedError, TimeoutExceededError) as error:
                return error
            finally:
                idle.put(builder)

        tasks = []
        for candidate in candidates:
            self._libraries += 1  # a loaded library stays loaded: no path is used twice
            tasks.append(Compile(problem, target, candidate, f"{self._folder.name}/{self._libraries}.so"))
        pool = ThreadPoolExecutor(len(self._builders))
        try:
            with self._spending("building"):
                return list(pool.map(compile_one, tasks))
        finally:
            pool.shutdown(cancel_futures=True)


def _status(error: Exception) -> Any:
    if isinstance(error, ReplayError):
        return "failed"
    return "timeout" if isinstance(error, TimeoutExceededError) else "crashed"


def _limit(problem: Problem) -> float:
    return MEASURE_SECONDS + problem.flops / REFERENCE_FLOPS
