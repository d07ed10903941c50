"""Servers of a fleet whose machine need not be quiet, and bad ones; all are forks of one process, which imports TVM once.

Reads lines of stdin: ``tracker``, or a kind of server and its key. Prints the process of each, and the tracker's port.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

import fake_candidates as fake
from tvm.rpc.server import PopenRPCServerState
from tvm.rpc.tracker import PopenTrackerServerState

from tvmconv.errors import UnsupportedMachineError
from tvmconv.fleet import server, session
from tvmconv.fleet.session import ServerSession
from tvmconv.measuring.measure import Check, Measured
from tvmconv.support.parents import end_with_parent
from tvmconv.tuning.machine import TuningMachine


def slow(task: Any) -> Any:
    """Measure, after a while in which this process may be killed."""
    time.sleep(0.1)
    return fake.hasty_measure(task)


def faulty(task: Any) -> Any:
    """Take all kernels for wrong."""
    return Measured(None, "outputs differ") if isinstance(task, Check) else fake.hasty_measure(task)


def start(kind: str, key: str, tracker: str) -> None:
    """Serve."""
    measure = {"slow": slow, "faulty": faulty}.get(kind, fake.hasty_measure)
    label = "another machine" if kind == "other" else fake.MACHINE
    session.tuning_machine = lambda target: TuningMachine(label, 1, measure)  # type: ignore[assignment]
    if kind == "old":
        ServerSession.describe = lambda *_: json.dumps({"protocol": 0, "tvmconv": "0.0.1"})  # type: ignore[method-assign]
    if kind == "liar":
        ServerSession.measure = lambda *_: json.dumps({"ok": -1.0})  # type: ignore[method-assign]
    if kind == "lesser":

        def lacks(target: Any) -> Any:
            raise UnsupportedMachineError("its CPU lacks avx2")

        session.check_tunable = lacks  # type: ignore[assignment]
    if kind == "foreign":
        host, _, port = tracker.partition(":")
        PopenRPCServerState(server.LOOPBACK, *server.PORTS, tracker_addr=(host, int(port)), key=key).thread.join()
    server.serve(tracker, key, 1, server.LOOPBACK)


def main() -> None:
    """Fork what the lines of stdin ask for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ready, ends = os.pipe()
    address = ""
    for line in sys.stdin:
        if (process := os.fork()) == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            end_with_parent()
            if line.strip() == "tracker":
                state = PopenTrackerServerState(server.LOOPBACK, 19190, 19290, silent=True)
                os.write(ends, f"{server.LOOPBACK}:{state.port}".encode())
                threading.Event().wait()
            start(*line.split(), address)
        address = address or os.read(ready, 100).decode()
        print(process, address, flush=True)
