"""Worker processes forked from one that has imported TVM, so that a test does not wait for that with each of them.

They are what `tvmconv.support.workers` would start, but for the hash seed, which they share.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# What starts the process with which others begin; TVM imports PyTorch where it is not kept from doing so.
START = "import sys; sys.modules['torch'] = None; from warm_workers import serve_forks; serve_forks(int(sys.argv[1]))"
SMALL, CPUS = "conv1d-n1-i8x8-o8x8-k1-s1-d1-p0_0-g1-NXC-XIO-f32", {"x86_64": "x86-64-v3", "aarch64": "neoverse-n1"}
# Set in the environment of workers for whose kernels LLVM optimizes nothing.
UNOPTIMIZED = "TVMCONV_TESTS_UNOPTIMIZED"
LARGEST = 1 << 17  # bytes of an environment
NUMBER = struct.Struct("q")
# The loader reads it when a process starts: one that is to find other libraries, such as a fake driver, is no fork.
LIBRARY_PATH = os.environ.get("LD_LIBRARY_PATH", "")
HAS_TVM = find_spec("tvm") is not None


def unoptimized(full: Callable[..., Any]) -> Callable[..., Any]:
    """Return what stands in for a target's method `tvm`: LLVM optimizes nothing."""

    def tvm_target(target: Any, keep_zeros: bool = False) -> Any:
        import tvm

        return tvm.target.Target({**full(target, keep_zeros).export(), "opt-level": 0})

    return tvm_target


class Forked:
    """What `Worker` uses of `subprocess.Popen`."""

    def __init__(self, code: str, stderr: Any, env: dict[str, str]) -> None:
        stdin, requests = os.pipe()
        answers, stdout = os.pipe()
        self._status, status = os.pipe()
        self.stdin, self.stdout = os.fdopen(requests, "wb"), os.fdopen(answers, "rb")
        given = pickle.dumps((code, env, os.getcwd(), os.sched_getaffinity(0)))
        socket.send_fds(forking_process(), [given], [stdin, stdout, stderr.fileno(), status])
        for each in (stdin, stdout, status):
            os.close(each)
        (self._pid,) = NUMBER.unpack(os.read(self._status, NUMBER.size))
        self._code: int | None = None

    def wait(self) -> int:
        """Return how it ended, as Popen does."""
        if self._code is None:
            (status,) = NUMBER.unpack(os.read(self._status, NUMBER.size))
            os.close(self._status)
            self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def kill(self) -> None:
        """End it, unless it has ended."""
        if self._code is None and not select.select([self._status], [], [], 0)[0]:
            with suppress(ProcessLookupError):  # it ended in between
                os.kill(self._pid, signal.SIGKILL)

    def communicate(self) -> None:
        """Wait for its end and close the pipes."""
        self.wait()
        self.stdin.close()
        self.stdout.close()


def start(command: list[str], *, stderr: Any, env: dict[str, str], **others: Any) -> Any:
    """Stand in for `subprocess.Popen` in `tvmconv.support.workers`."""
    _python, _option, code = command
    if not HAS_TVM or "torch=True" in code or env.get("LD_LIBRARY_PATH", "") != LIBRARY_PATH:
        return subprocess.Popen(command, stderr=stderr, env=env, **others)
    return Forked(code, stderr, env)


SUBPROCESS = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE)


@lru_cache(maxsize=1)
def forking_process() -> socket.socket:
    """Start the process that forks; it ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    environment["LD_LIBRARY_PATH"] = LIBRARY_PATH
    command = [sys.executable, "-c", START, str(its.fileno())]
    process = subprocess.Popen(command, pass_fds=[its.fileno()], env=environment, start_new_session=True)
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve_forks(connection: int) -> None:
    """Fork for each request, until the other end closes."""
    import tvmconv.building.fallbacks
    import tvmconv.tuning.evaluate  # noqa: F401

    _compile_once()
    gc.freeze()  # looking for garbage would copy the pages that processes share
    # A thread that is not forked would hold its locks for ever.
    assert len(os.listdir("/proc/self/task")) == 1
    requests = socket.socket(fileno=connection)
    while True:
        given, files, _flags, _address = socket.recv_fds(requests, LARGEST, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not given:
            return
        if os.fork() == 0:
            requests.close()
            _wait_for_worker(given, files)
        for each in files:
            os.close(each)


def _compile_once() -> None:
    """Compile a kernel, so that workers inherit modules, LLVM's tables and run-time services in C.

    It is for a CPU of a name, of which nothing is asked that a worker's environment decides.
    """
    from tvmconv.lowering.compiler import compile_problem
    from tvmconv.signature import parse_signature
    from tvmconv.targets.target import Target

    with tempfile.TemporaryDirectory() as folder:
        compile_problem(parse_signature(SMALL), Target.parse(CPUS[platform.machine()]), Path(folder) / "kernel.so")


def _wait_for_worker(given: bytes, files: list[int]) -> None:
    """Fork a worker, and report its number and how it ended; never returns."""
    *streams, status = files
    worker = os.fork()
    if worker == 0:
        os.close(status)
        _work(given, streams)
    for each in streams:
        os.close(each)
    os.write(status, NUMBER.pack(worker))
    try:
        os.write(status, NUMBER.pack(os.waitpid(worker, 0)[1]))
    finally:
        os._exit(0)


def _work(given: bytes, streams: list[int]) -> None:
    """Become what the command would have been; never returns."""
    from tvmconv.support.timing import count_anew

    code, environment, folder, cores = pickle.loads(given)
    os.setsid()
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    count_anew()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.sched_setaffinity(0, cores)
    if UNOPTIMIZED in os.environ:
        from tvmconv.targets.target import CpuTarget

        CpuTarget.tvm = unoptimized(CpuTarget.tvm)  # type: ignore[method-assign]
    sys.path[:] = dict.fromkeys([*environment["PYTHONPATH"].split(os.pathsep), *sys.path])
    try:
        exec(code, {"__name__": "__main__"})
        status = 0
    except BaseException:  # noqa: BLE001 (as the interpreter does)
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
