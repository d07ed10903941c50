"""Long-lived worker processes: each imports its modules once and runs one function on many tasks.

Plain subprocesses rather than `multiprocessing`: they work from a notebook, from ``python -`` and from a
script without a main guard, and when one dies its task and its last words are known.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pkgutil import resolve_name
from typing import IO, Generic, TypeVar

from ..errors import TvmconvError
from .forking import ForkedProcess, take_forked
from .heap import spare_time
from .timing import VARIABLE, add_worker, collect, count_anew, count_start, stage

T = TypeVar("T")
R = TypeVar("R")
LAST_WORDS = 2000
_Process = tuple["subprocess.Popen[bytes]", IO[bytes]]  # and the file of its stderr
# Most processes that are started ahead: each holds its imports, and may never be used.
_MOST = 8
_ahead: list[_Process] = []


class WorkerDiedError(TvmconvError):
    """A worker process that ended instead of answering."""


class Worker(Generic[T, R]):
    """A process that runs `function`, which must be importable by its module's name.

    Parameters
    ----------
    function
        Runs in the worker; as a name, ``"module:function"``, this process need not import it. A TvmconvError that it raises is raised
        by :meth:`call`; any other error ends the worker and is quoted by WorkerDiedError.
    threads
        Number of threads its kernels and NumPy use.
    torch
        Whether the function may import PyTorch. tvm-ffi does so where it is installed, which triples the worker's start time.
    """

    def __init__(self, function: Callable[[T], R] | str, threads: int, torch: bool = False) -> None:
        self._process: subprocess.Popen[bytes] | ForkedProcess
        self._stderr: IO[bytes]
        is_plain = threads == 1 and not torch
        forked = take_forked() if is_plain else None
        if forked is not None:
            self._process, self._stderr = forked, forked.stderr
        elif is_plain and (ahead := _take_ahead()) is not None:
            self._process, self._stderr = ahead
        else:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (close() closes it)
            self._process = _start_process(threads, torch, self._stderr)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._spent: dict[str, float] = {}
        pickle.dump(function, self._requests)
        self._requests.flush()  # the worker imports the function's modules meanwhile

    def call(self, task: T) -> R:
        """Run the function on `task`, named by its text in messages, and return its result.

        Raises
        ------
        WorkerDiedError
            If the process ends instead: a crash, an unexpected error, a kill.
        TvmconvError
            Whatever of this kind the function raises.
        """
        try:
            pickle.dump(task, self._requests)
            self._requests.flush()
            succeeded, value, self._spent = pickle.load(self._answers)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):  # UnpicklingError: half an answer
            raise WorkerDiedError(f"{task}: {self._death()}") from None
        if not succeeded:
            raise value
        return value

    def _death(self) -> str:
        code = self._process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(size - LAST_WORDS, 0))
        words = self._stderr.read().decode(errors="replace").strip()
        return f"the worker process {how}" + (f"; its last words:\n{words}" if words else "")

    def kill(self) -> None:
        """End the process; a call under way raises WorkerDiedError."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and close its pipes and files."""
        self.kill()
        self._process.communicate()
        if self._spent:
            add_worker(self._spent)
        self._stderr.close()


@contextmanager
def workers_ahead(count: int, *modules: str) -> Iterator[None]:
    """Start processes for workers of one thread, at most `_MOST`, which import modules meanwhile; unused ones are ended on exit."""
    started: list[_Process] = []
    try:
        for _ in range(min(count, _MOST)):
            messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (its worker closes it)
            started.append((_start_process(1, False, messages, modules), messages))
        _ahead.extend(started)
        yield
    finally:
        for each in started:
            with suppress(ValueError):  # a worker took it
                _ahead.remove(each)
                process, messages = each
                process.kill()
                process.communicate()
                messages.close()


def _take_ahead() -> _Process | None:
    with suppress(IndexError):
        return _ahead.pop(0)
    return None


def _start_process(
    threads: int, torch: bool, messages: IO[bytes], modules: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a worker's process in a session of its own: Ctrl-C reaches only this process, which then ends it."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from tvmconv.support.workers import serve; serve({torch}, *{modules})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=messages,
        start_new_session=True,
        env={
            **os.environ,
            VARIABLE: "",  # the parent prints all times
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONSAFEPATH": "1",  # never import from the current folder
            "OMP_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": str(threads),
        },
    )


def serve_forked() -> None:
    """Answer the requests of a :class:`Worker` in a forked process."""
    count_anew()
    os.environ[VARIABLE] = ""
    serve(torch=False)


def serve(torch: bool, *modules: str) -> None:
    """Import modules, then answer the requests of a :class:`Worker` until it closes the pipe."""
    if not torch:
        sys.modules["torch"] = None  # type: ignore[assignment]
    requests, answers = os.fdopen(0, "rb", closefd=False), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a compiler's output must not mix with the answers
    spare_time()
    for each in modules:
        import_module(each)
    with stage("waiting"):
        function = pickle.load(requests)
    if isinstance(function, str):
        function = resolve_name(function)
    count_start()
    while True:
        try:
            with stage("waiting"):
                task = pickle.load(requests)
        except EOFError:
            return
        try:
            succeeded, value = True, function(task)
        except TvmconvError as error:
            succeeded, value = False, error
        pickle.dump((succeeded, value, collect()), answers)
        answers.flush()
