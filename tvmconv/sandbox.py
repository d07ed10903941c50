"""A worker process that may crash or hang: it is given a time limit, and replaced when it had to end."""

from __future__ import annotations

from collections.abc import Callable
from threading import Timer
from typing import Generic, TypeVar

from .errors import TvmconvError
from .workers import Worker, WorkerDiedError

T = TypeVar("T")
R = TypeVar("R")


class TimeoutExceededError(TvmconvError):
    """A task that did not end in time; its process was ended."""


class Sandbox(Generic[T, R]):
    """Runs `function` on tasks in one process that lives until it crashes, hangs, or this is closed.

    Parameters
    ----------
    function, threads
        As for `tvmconv.workers.Worker`.
    """

    def __init__(self, function: Callable[[T], R], threads: int) -> None:
        self._function = function
        self._threads = threads
        self._worker: Worker[T, R] | None = Worker(function, threads)

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
        """
        if self._worker is None:
            self._worker = Worker(self._function, self._threads)
        worker = self._worker
        late: list[bool] = []

        def end() -> None:
            late.append(True)
            worker.kill()

        timer = Timer(seconds, end)
        timer.start()
        try:
            return worker.call(task)
        except WorkerDiedError:
            self.close()
            if late:
                raise TimeoutExceededError(f"{task}: it took longer than {seconds:.3g} s") from None
            raise
        except KeyboardInterrupt:
            self.close()  # its answer would be taken for that of the next task
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the process; a later call starts another."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
