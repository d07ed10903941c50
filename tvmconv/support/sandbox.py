"""Worker processes that may crash or hang: each task has a time limit, and an ended process is replaced."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from functools import partial
from threading import Lock, Timer
from typing import Any, Generic, TypeVar

from ..errors import TvmconvError
from .timing import stage
from .workers import Worker, WorkerDiedError

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")
Q = TypeVar("Q")
DAY = 24 * 3600.0
# Runs the function on a task within a number of seconds, as `Sandbox.call` does.
Call = Callable[[T, float], R]


class TimeoutExceededError(TvmconvError):
    """A task that did not end in time; its process was ended."""


class Sandbox(Generic[T, R]):
    """Runs `function` on tasks in one process (`Worker`), which lives until it crashes, exceeds a limit, or is closed."""

    def __init__(self, function: Callable[[T], R] | str, threads: int, torch: bool = False) -> None:
        self._function = function
        self._threads = threads
        self._torch = torch
        self._lock = Lock()
        self._stopped = False
        self._worker: Worker[T, R] | None = Worker(function, threads, torch)

    def call(self, task: T, seconds: float) -> R:
        """Run the function on `task`.

        Raises
        ------
        TimeoutExceededError
            If it takes longer than `seconds`.
        WorkerDiedError
            If the process crashes.
        TvmconvError
            Whatever of this kind the function raises.
        CancelledError
            If another thread called :meth:`stop`.
        """
        with self._lock:
            if self._stopped:
                raise CancelledError
            if self._worker is None:
                self._worker = Worker(self._function, self._threads, self._torch)
            worker = self._worker
        is_late = has_answered = False

        def end() -> None:
            nonlocal is_late
            with self._lock:
                if not has_answered:  # else the next task would be ended
                    is_late = True
                    worker.kill()

        timer = Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            return worker.call(task)
        except WorkerDiedError:
            self.close()
            if self._stopped:
                raise CancelledError from None
            if is_late:
                raise TimeoutExceededError(f"{task}: it took longer than {seconds:.3g} s") from None
            raise
        except KeyboardInterrupt:
            self.close()  # else its answer would be taken for the next task's
            raise
        finally:
            with self._lock:
                has_answered = True
            timer.cancel()
            if is_late:  # though it answered at that moment
                self.close()

    def stop(self) -> None:
        """End the process for good, from any thread: a call under way, and every later one, is cancelled."""
        with self._lock:
            self._stopped = True
            if self._worker is not None:
                self._worker.kill()

    def close(self) -> None:
        """End the process; a later call starts another."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()
                self._worker = None


def run_all(
    function: Callable[[T], R],
    tasks: Sequence[S],
    jobs: int,
    threads: int,
    handle: Callable[[Call[T, R], S], Q] | None = None,
) -> Iterator[tuple[S, Q]]:
    """Handle every task with a free process, `jobs` at once; yield (task, result) as they finish.

    Parameters
    ----------
    function, threads
        As for `tvmconv.support.workers.Worker`.
    handle
        ``handle(call, task)`` returns a task's result; ``call(what, seconds)`` runs the function, and may be called repeatedly.
        Absent: the result is the function's.

    Raises
    ------
    TvmconvError
        What `handle` raised for a task. The processes have ended by then, as they have when the caller stops
        iterating.
    """
    sandboxes = [Sandbox(function, threads) for _ in range(min(jobs, len(tasks)))]
    idle: queue.SimpleQueue[Sandbox[T, R]] = queue.SimpleQueue()
    for sandbox in sandboxes:
        idle.put(sandbox)

    def work(task: Any) -> Any:
        sandbox = idle.get()
        try:
            return handle(sandbox.call, task) if handle else sandbox.call(task, DAY)
        finally:
            idle.put(sandbox)

    try:
        with ThreadPoolExecutor(max(len(sandboxes), 1)) as pool:
            futures = {pool.submit(partial(work, task)): task for task in tasks}
            try:
                finished = as_completed(futures)
                for _ in futures:
                    with stage("waiting"):
                        future = next(finished)
                    yield futures[future], future.result()
            finally:
                for future in futures:
                    future.cancel()
                for sandbox in sandboxes:
                    sandbox.stop()
    finally:
        for sandbox in sandboxes:
            sandbox.close()
