"""Candidates built and measured, in processes of their own: building in several at once, measuring in one.

The two never overlap, because the kernels under measurement use all cores, unless they are measured elsewhere
(`tvmconv.fleet`), many at once. A candidate that fails to compile, crashes, hangs or computes something else becomes a Trial with that status.
"""

from __future__ import annotations

import itertools
import queue
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, TypeVar

from ..errors import ReplayError
from ..lowering.cpu.linker import link_together
from ..measuring.measure import Check, Measured, measure
from ..measuring.race import Built, Race, Times
from ..problem import Problem
from ..support.files import check_full
from ..support.sandbox import Sandbox, TimeoutExceededError
from ..support.workers import WorkerDiedError
from ..targets.target import Target
from .machine import Servers
from .search import Candidate, Space
from .tasks import Compile, CompiledPart, Describe
from .trials import Trial

# Candidates in one library: those of a turn, so that the linker starts once. With many servers a turn is longer, and
# each server receives whole libraries.
TOGETHER = 16
# A kernel compiles in a tenth of a second; the first in a process waits for TVM to be imported.
BUILD_SECONDS = 60.0
# Seconds to measure a kernel, some patience with moved threads included; and the least speed, operations a second, of the
# reference that checks it.
MEASURE_SECONDS = 40.0
REFERENCE_FLOPS = 2e8
# A candidate slower than the fastest by this factor is no finalist, however much its timing was disturbed.
CUT_OFF = 1.5
# Characters of an error that a trial keeps, from its end: TVM names the cause there.
_DETAIL = 300
# Most threads that wait for servers: never more candidates than those of some turns are under way.
WAITING = 1024

R = TypeVar("R")
Result = Built | ReplayError | WorkerDiedError | TimeoutExceededError


class Evaluator:
    """Builds and measures candidates. A context, whose end ends its processes.

    Parameters
    ----------
    jobs
        Number of processes that build.
    threads
        Number of threads that measured kernels use.
    work, measure
        Functions that the processes run; importable by name, or their names.
    servers
        Machines that measure instead of a process of this one; this context closes them.
    cold_bytes
        Bytes of the copies of filters that calls take in turn, so that none is in a cache (`tvmconv.measuring.race`); 0: filters are hot.

    Attributes
    ----------
    spent
        Seconds spent until now: ``"describing"`` spaces (and waiting for TVM to be imported), ``"building"`` (by all
        processes at once), ``"measuring"``, with the reference and waits for servers, and ``"racing"``, with the finalists' builds.
    """

    def __init__(
        self,
        jobs: int,
        threads: int,
        work: Callable[[Any], Any] | str = "tvmconv.tuning.trial_library:work",
        measure: Callable[[Any], Any] = measure,
        servers: Servers | None = None,
        cold_bytes: int = 0,
    ) -> None:
        self._cold_bytes = cold_bytes
        self._builders: list[Sandbox[Any, Any]] = [Sandbox(work, threads=1) for _ in range(jobs)]
        self._servers = servers
        self._measurer: Sandbox[Any, Any] | Servers = servers or Sandbox(measure, threads)
        # One thread a candidate, which waits until a free server has measured it.
        self._pool = ThreadPoolExecutor(WAITING)
        self._started: list[Future[Any]] = []
        self._lock = Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="tvmconv-tune-")
        self._numbers = itertools.count()
        self.spent = {"describing": 0.0, "building": 0.0, "measuring": 0.0, "racing": 0.0}

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for sandbox in [*self._builders, self._measurer]:
            sandbox.close()
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def spaces(self, problem: Problem, target: Target, math: str) -> list[Space]:
        """Return the problem's spaces with `math`, the one used with zero trials first."""
        with self._spending("describing"):
            spaces: list[Space] = self._builders[0].call(Describe(problem, target, math), BUILD_SECONDS)
        return spaces

    def trials(
        self, problem: Problem, target: Target, spaces: Sequence[Space], candidates: Sequence[Candidate], best: float
    ) -> Iterator[Trial]:
        """Build the candidates, then measure and yield them one by one, in their order.

        Those that are clearly slower than `best` seconds, or than one before, are measured less exactly.
        """
        results = self.build(problem, target, candidates)
        for candidate, built in zip(candidates, results, strict=True):
            trial = self.judge(problem, spaces, candidate, built, best)
            best = min(best, trial.cost)
            yield trial
        discard(results)

    def judge(
        self, problem: Problem, spaces: Sequence[Space], candidate: Candidate, built: Result, best: float
    ) -> Trial:
        """Measure the result of :meth:`build` for a candidate, less exactly if it is clearly slower than `best` seconds."""
        space = next(space for space in spaces if space.algorithm == candidate.algorithm)
        if isinstance(built, Built):
            return self._measure(problem, space, candidate, built, best * CUT_OFF)
        return Trial(candidate, space.version, _status(built), None, str(built)[-_DETAIL:])

    def race(self, problem: Problem, target: Target, candidates: Sequence[Candidate]) -> Times:
        """Time candidates that worked before in turns, in several placements of the arrays; TvmconvError if one fails this time."""
        libraries = []
        for built in self.build(problem, target, candidates, finalists=True):
            if not isinstance(built, Built):
                raise built
            libraries.append(built)
        with self._spending("racing"):
            times: Times = self._measurer.call(
                Race(problem, tuple(libraries), self._cold_bytes), _limit(problem) * len(libraries)
            )
        return times

    @property
    def width(self) -> int:
        """Number of candidates measured at once."""
        return self._servers.size if self._servers else 1

    def start(self, function: Callable[..., R], items: Iterable[tuple[Any, ...]]) -> list[Future[R]]:
        """Call a function that measures with each item: one by one, or in threads meanwhile if servers measure."""
        if self._servers is not None:
            futures = [self._pool.submit(function, *item) for item in items]
            self._started = [each for each in self._started if not each.done()] + futures
            return futures
        done: list[Future[R]] = []
        for item in items:
            done.append(Future())
            done[-1].set_result(function(*item))
        return done

    def stop(self) -> None:
        """Cancel measurements that have not begun; wait for the rest."""
        if self._servers is not None:
            self._servers.cancel()
            wait(self._started)

    @contextmanager
    def _spending(self, what: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self.spent[what] += time.monotonic() - start

    def _measure(self, problem: Problem, space: Space, candidate: Candidate, library: Built, cut_off: float) -> Trial:
        check = Check(problem, space.numerical_class, library, cut_off, self._cold_bytes)
        try:
            with self._spending("measuring"):
                measured: Measured = self._measurer.call(check, _limit(problem))
        except (WorkerDiedError, TimeoutExceededError) as error:
            return Trial(candidate, space.version, _status(error), None, str(error)[-_DETAIL:])
        if measured.wrong:
            return Trial(candidate, space.version, "wrong", None, measured.wrong)
        return Trial(candidate, space.version, "ok", measured.seconds)

    def build(
        self, problem: Problem, target: Target, candidates: Sequence[Candidate], finalists: bool = False
    ) -> list[Result]:
        """Compile the candidates with all builders; return each one's library or error.

        The libraries are removed when this context ends. Those of `finalists` are as they ship, one for each.

        Raises
        ------
        OSError
            If the disk is full: a trial would blame its candidate for ever.
        """
        idle: queue.SimpleQueue[Sandbox[Any, Any]] = queue.SimpleQueue()
        for builder in self._builders:
            idle.put(builder)

        def compile_one(candidate: Candidate) -> CompiledPart | Result:
            builder = idle.get()
            task = Compile(problem, target, candidate, self._folder.name, next(self._numbers), finalists)
            try:
                result: CompiledPart | Result = builder.call(task, BUILD_SECONDS)
                return result
            except (WorkerDiedError, TimeoutExceededError) as error:
                check_full(error, self._folder.name)
                return error
            finally:
                idle.put(builder)

        pool = ThreadPoolExecutor(len(self._builders))
        try:
            with self._spending("racing" if finalists else "building"):
                return self._linked(list(pool.map(compile_one, candidates)))
        finally:
            pool.shutdown(cancel_futures=True)

    def _linked(self, results: Sequence[CompiledPart | Result]) -> list[Result]:
        """Link parts of libraries, `TOGETHER` at once."""
        found: list[Result] = []
        for start in range(0, len(results), TOGETHER):
            # A loaded library stays loaded: no path is used twice.
            path = f"{self._folder.name}/{next(self._numbers)}.so"
            together = results[start : start + TOGETHER]
            parts = [each for each in together if isinstance(each, CompiledPart)]
            if parts:
                objects = [*{part.pack for part in parts if part.pack}, *(part.kernel for part in parts)]
                link_together(objects, path, parts[0].isa)
            for part in parts:
                Path(part.kernel).unlink()
            found += [replace(each.built, path=path) if isinstance(each, CompiledPart) else each for each in together]
        return found


def discard(results: Iterable[Result]) -> None:
    """Remove the libraries of candidates that were measured."""
    for path in {built.path for built in results if isinstance(built, Built)}:
        Path(path).unlink()


def _status(error: Exception) -> Any:
    if isinstance(error, ReplayError):
        return "failed"
    return "timeout" if isinstance(error, TimeoutExceededError) else "crashed"


def _limit(problem: Problem) -> float:
    return MEASURE_SECONDS + problem.flops / REFERENCE_FLOPS
