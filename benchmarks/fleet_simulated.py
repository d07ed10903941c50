"""What `benchmarks.fleet` takes for real: servers that answer after a delay, and builders that write libraries of noise."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tvm.rpc.tracker import PopenTrackerServerState

from tvmconv import __version__
from tvmconv.fleet import server, session
from tvmconv.fleet.protocol import Description
from tvmconv.fleet.tracker import Tracker
from tvmconv.measuring.placements import PLACEMENTS
from tvmconv.measuring.race import Built
from tvmconv.support.parents import end_with_parent
from tvmconv.targets.target import CpuTarget, Target
from tvmconv.tuning.search import Sketch, Space
from tvmconv.tuning.tasks import Compile, Describe

KEY, MACHINE = "simulated", "no machine"
# Processes that build.
JOBS = 2
# What a server is sent for each candidate: of four, as resnet50's are, the fourth part of a turn's library.
LIBRARY_BYTES = 64 * 1024
SPACE = Space("direct", 1, "exact", (Sketch((tuple(range(64)),) * 3, (0, 0, 0)),))


class Simulated(session.ServerSession):
    """A session that answers after a delay."""

    delay = 0.0

    def describe(self, text: str) -> str:
        """Return what no machine is."""
        self._pool = ThreadPoolExecutor(1)
        host = Target.parse("host")
        assert isinstance(host, CpuTarget)
        return Description(host, MACHINE, "").to_text(__version__)

    def _run(self, text: str) -> str:
        task = json.loads(text)
        time.sleep(self.delay)
        if "numerical_class" in task:
            return json.dumps({"ok": 1e-5})
        times = [1e-5] * len(PLACEMENTS)
        return json.dumps({"times": {"seconds": [times] * len(task["libraries"]), "again": times, "quiet": [True] * 8}})


def work(seconds: float, task: Describe | Compile) -> Any:
    """Stand in for `tvmconv.tuning.trial_library.work`: building takes so long a candidate, all processes together."""
    if isinstance(task, Describe):
        return [SPACE]
    time.sleep(seconds * JOBS)
    Path(task.library).write_bytes(os.urandom(LIBRARY_BYTES))
    return Built(task.library)


@contextmanager
def servers(count: int, delay: float) -> Iterator[str]:
    """Start a tracker and so many servers, as forks of this process; yield the tracker's address, and end them."""
    Target.parse("host")  # for all forks
    session.ServerSession, Simulated.delay = Simulated, delay  # type: ignore[misc]
    ready, ends = os.pipe()
    processes = [_fork(partial(_track, ends))]
    tracker = os.read(ready, 100).decode()
    processes += [_fork(partial(server.serve, tracker, KEY, 1, server.LOOPBACK)) for _ in range(count)]
    try:
        while True:
            with Tracker(tracker) as found:
                if len(found.servers().get(KEY, [])) == count:
                    break
            time.sleep(0.1)
        yield tracker
    finally:
        for process in processes:
            os.kill(process, 9)
            os.waitpid(process, 0)


def _fork(function: Callable[[], object]) -> int:
    process = os.fork()
    if process == 0:
        end_with_parent()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        function()
        os._exit(0)
    return process


def _track(ends: int) -> None:
    state = PopenTrackerServerState(server.LOOPBACK, 19190, 19290, silent=True)
    os.write(ends, f"{server.LOOPBACK}:{state.port}".encode())
    threading.Event().wait()
