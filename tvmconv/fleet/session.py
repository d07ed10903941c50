"""Session of a tuner in the server: functions for TVM's RPC that measure, in a process that may crash or hang.

TVM's server forks a process for each session, whose main thread answers; a thread of its own waits for the measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from functools import partial
from multiprocessing.util import Finalize
from typing import Any

import tvm
import tvm_ffi

from ..errors import TvmconvError, UnsupportedMachineError
from ..support.parents import end_with_parent
from ..support.sandbox import Sandbox
from ..targets.target import CpuTarget, Target
from ..tuning.machine import check_tunable, tuning_machine
from ..version import __version__
from .protocol import (
    DESCRIBE,
    MEASURE,
    PULSE_SECONDS,
    WAIT,
    Description,
    answer_to_text,
    target_from_text,
    task_from_text,
)


def register() -> None:
    """Register the functions in this process, from which TVM's server forks the sessions."""
    session = ServerSession()
    for name, function in ((DESCRIBE, session.describe), (MEASURE, session.measure), (WAIT, session.wait)):
        tvm_ffi.register_global_func(name, function, override=True)


def describe(target: Target | None) -> Description:
    """Return this machine's description for a target, or for its own CPU."""
    host = Target.parse("host")
    assert isinstance(host, CpuTarget)
    try:
        label, obstacle = tuning_machine(check_tunable(target or host)).label, ""
    except UnsupportedMachineError as error:
        label, obstacle = "", str(error)
    return Description(host, label, obstacle)


class ServerSession:
    """One session. It starts nothing before its first function is called, in the forked process."""

    def describe(self, text: str) -> str:
        """Return this server's description for a target, the one of later measurements."""
        target = target_from_text(text)
        found = describe(target)
        if not found.obstacle:
            machine = tuning_machine(target or found.host)
            # The measuring process ends with the thread that starts it (`end_with_parent`): one that lives as long as this process.
            self._pool = ThreadPoolExecutor(1)
            self._sandbox: Sandbox[Any, Any] = self._pool.submit(
                Sandbox, partial(_measure, machine.measure), machine.threads
            ).result()
            # End measuring when the tuner disconnects.
            Finalize(self, self._sandbox.stop, exitpriority=1)
        return found.to_text(__version__)

    def measure(self, text: str) -> str:
        """Begin to measure; return the answer, or an empty text if there is none after `PULSE_SECONDS`."""
        self._answer: Future[str] = self._pool.submit(self._run, text)
        return self.wait()

    def wait(self) -> str:
        """Return the answer of the measurement in progress; an empty text if there is none after `PULSE_SECONDS`."""
        try:
            return self._answer.result(PULSE_SECONDS)
        except TimeoutError:
            return ""

    def _run(self, text: str) -> str:
        task, seconds = task_from_text(text, tvm.get_global_func("tvm.rpc.server.workpath")(""))
        try:
            return answer_to_text(self._sandbox.call(task, seconds))
        except TvmconvError as error:
            return answer_to_text(error)


def _measure(measure: Callable[[Any], Any], task: Any) -> Any:
    end_with_parent()
    return measure(task)
