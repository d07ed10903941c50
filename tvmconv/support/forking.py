"""Workers forked from a process that has imported their modules: importing TVM anew takes a second each.

Only on Linux: elsewhere, system libraries have threads that a fork loses. Processes are forked early, while no threads run but those
of the BLAS, which stops them itself; further workers are started as processes of their own (`tvmconv.support.workers`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any

# Most processes: each takes milliseconds, and may never be used.
_MOST = 8
# Names of the function by which an OpenBLAS takes its number of threads; NumPy's wheels have their own.
_BLAS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")
_waiting: list[ForkedProcess] = []
_is_alone: list[bool] = []


class ForkedProcess:
    """A process that runs a function and ends, with the part of `subprocess.Popen`'s interface that a worker needs.

    Parameters
    ----------
    function
        Reads requests from file 0 and writes answers to file 1.

    Attributes
    ----------
    stdin, stdout, stderr
        Its requests, its answers, and a file of its messages.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 (its worker closes it)
        (requests, ours), (answers, theirs) = os.pipe(), os.pipe()
        self._code: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            _run(function, (requests, theirs, self.stderr.fileno()), [ours, answers])
        for each in (requests, theirs):
            os.close(each)
        self.stdin: IO[bytes] = os.fdopen(ours, "wb")
        self.stdout: IO[bytes] = os.fdopen(answers, "rb")

    def kill(self) -> None:
        """End it."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return its exit code, or the negative number of a signal, once it has ended."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def communicate(self) -> None:
        """Close its requests and answers, and wait for its end."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.wait()


def be_alone() -> None:
    """Declare that this process is tvmconv's own: without foreign threads, so it may fork."""
    _is_alone.append(True)


def fork_workers(count: int, function: Callable[[], None], *modules: str) -> None:
    """Import modules, then fork processes that run a function in one thread, for :func:`take_forked`; if this process may fork."""
    if sys.platform != "linux" or not _is_alone or sys.modules.get("torch") is not None:
        return
    for each in modules:
        import_module(each)
    gc.collect()
    gc.freeze()  # present objects are not collected, so their pages stay shared
    with contextlib.suppress(OSError):  # no room for more processes: an error follows where one is needed
        for _ in range(min(count, _MOST) - len(_waiting)):
            _waiting.append(ForkedProcess(function))


def has_forked() -> bool:
    """Return whether a process waits for its first request."""
    return bool(_waiting)


def take_forked() -> ForkedProcess | None:
    """Return a process that waits for its first request; None: there is none."""
    return _waiting.pop(0) if _waiting else None


def _run(function: Callable[[], None], files: tuple[int, ...], others: list[int]) -> None:
    """Run a function in a process that was just forked, its files as 0, 1 and 2; do not return."""
    import fcntl

    code = 1
    try:
        os.setsid()  # Ctrl-C reaches only the process that forked this, which then ends it
        for earlier in _waiting:
            others += [earlier.stdin.fileno(), earlier.stdout.fileno()]
        for each in others:
            os.close(each)
        for number, each in enumerate([fcntl.fcntl(file, fcntl.F_DUPFD, 3) for file in files]):
            os.dup2(each, number)
            os.close(each)
        sys.stdout = sys.stderr = os.fdopen(2, "w", closefd=False)
        os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        _compute_in_one_thread()
        function()
        code = 0
    finally:
        if code:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


def _compute_in_one_thread() -> None:
    """Set NumPy's OpenBLAS to one thread: it read the environment before the fork."""
    from numpy.linalg import _umath_linalg

    library: Any = ctypes.CDLL(_umath_linalg.__file__)
    for name in _BLAS:
        if found := getattr(library, name, None):
            found(1)
