"""The servers of a key together: each takes what is to be measured when it is free.

A server has a thread here, which waits for its answers. One that dies, or from which nothing comes, loses what it had to
measure to another; its thread is left behind if need be. The tracker is asked for more for as long as there are fewer
than may be.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter, deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from math import inf
from types import TracebackType
from typing import Any

from ..errors import TuningError, TvmconvError, TvmconvWarning, UnsupportedMachineError
from ..measuring.measure import Check, Measured
from ..measuring.race import Race, Times
from ..support.workers import WorkerDiedError
from ..targets.target import Target
from .protocol import PULSE_SECONDS, Description
from .remote import LostError, RefusedError, Remote
from .tracker import Tracker, check_key

# A server answers every `PULSE_SECONDS`, or takes a library.
LOST_SECONDS = 10.0
# What ends so many servers is a kernel's fault.
LOSSES = 3
# Until a server that was refused is asked again: it may be another by then.
REFUSED_SECONDS = 60.0
# Without a server, until tuning ends.
LONELY_SECONDS = 60.0
# That TVM keeps in one process (kMaxRPCSession), those that hang among them.
SESSIONS = 32
# Between two attempts to reach a tracker that went away.
TRACKER_SECONDS = 5.0
TICK_SECONDS = 0.25


@dataclass
class _Job:
    """A measurement that was asked for.

    Attributes
    ----------
    losses
        What became of the servers that had it.
    avoided
        Their addresses, and those of servers that called the kernel wrong: others are asked first.
    doubted
        Who called the kernel wrong: another server is asked, too.
    """

    task: Check | Race
    seconds: float
    result: Future[Any] = field(default_factory=Future)
    losses: list[str] = field(default_factory=list)
    avoided: set[str] = field(default_factory=set)
    doubted: Remote | None = None


class Fleet:
    """Measures on the servers that a tracker has under a key. A context: it frees them at the end.

    Parameters
    ----------
    tracker, key
        ``HOST:PORT``, and the key.
    target
        What is to be measured; None: code for the servers' own CPU.
    devices
        How many servers to use at most; None: all, up to `SESSIONS`.

    Attributes
    ----------
    target, machine
        What is measured, and what measurements are marked with: the servers' CPU and threads.
    measured
        Measurements made by each server, by its address.

    Raises
    ------
    TuningError
        If no tracker is there, or it has no server under this key.
    UnsupportedMachineError
        If none of them can be used.
    """

    def __init__(self, tracker: str, key: str, target: Target | None = None, devices: int | None = None) -> None:
        self.measured: Counter[str] = Counter()
        self._address, self._key, self._devices = tracker, check_key(key), inf if devices is None else devices
        self._asked = target
        self._known: Description | None = None
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        # What each server is at; None: nothing. Those that are connecting are not in here.
        self._at: dict[Remote, _Job | None] = {}
        self._connecting: set[Remote] = set()
        self._threads: list[threading.Thread] = []
        self._refused: dict[str, tuple[float, str]] = {}
        self._end: Exception | None = None
        self._recruiting = True
        with Tracker(tracker) as found:
            self._check_key(found.servers())
        self._recruiter = self._start(self._recruit)
        try:
            self._wait_for_one()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def target(self) -> Target:
        """What is measured."""
        assert self._known is not None
        return self._asked or self._known.host

    @property
    def machine(self) -> str:
        """What the measurements are marked with."""
        assert self._known is not None
        return self._known.machine

    @property
    def size(self) -> int:
        """Number of servers at hand."""
        return len(self._at)

    def call(self, task: Check | Race, seconds: float) -> Measured | Times:
        """Measure on a server, whichever is free first; from any thread.

        Raises
        ------
        WorkerDiedError, TimeoutExceededError, TvmconvError
            What measuring raises. The first also for what ended several servers.
        TuningError
            If there has been no server for long.
        CancelledError
            If :meth:`cancel` or :meth:`close` came between.
        """
        job = _Job(task, seconds)
        with self._changed:
            if self._end is not None:
                raise self._end
            self._jobs.append(job)
            self._changed.notify_all()
        answer: Measured | Times = job.result.result()
        return answer

    def cancel(self) -> None:
        """Forget what is to be measured, but what a server is at."""
        with self._changed:
            for job in self._jobs:
                job.result.set_exception(CancelledError())
            self._jobs.clear()

    def close(self) -> None:
        """Free the servers. What is being measured is cancelled."""
        # The tracker is left first, or it would offer what is freed.
        self._recruiting = False
        self._recruiter.join()
        with self._changed:
            self._finish(CancelledError())
        # A session ends when its thread does; those that hang are left behind.
        end = time.monotonic() + 2 * PULSE_SECONDS
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))

    def _finish(self, error: Exception) -> None:
        self._end = self._end or error
        self._recruiting = False
        for job in (*self._jobs, *filter(None, self._at.values())):
            if not job.result.done():
                job.result.set_exception(error)
        self._jobs.clear()
        self._changed.notify_all()

    def _start(self, function: Any, *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()
        return thread

    # Getting servers, in a thread.

    def _recruit(self) -> None:
        lonely = time.monotonic()
        gone = False
        while self._recruiting:
            try:
                with Tracker(self._address) as tracker:
                    asked = gone = False
                    while self._recruiting:
                        if not asked and self._wants():
                            tracker.request(self._key)
                            asked = True
                        if not asked:
                            time.sleep(TICK_SECONDS)
                        elif (offered := tracker.offered(TICK_SECONDS)) is not None:
                            asked = False
                            self._take_on(*offered)
                        lonely = self._watch(lonely)
            except TuningError as error:
                if not gone:
                    self._say(f"{error}; those servers that are at hand go on")
                gone = True
                again = time.monotonic() + TRACKER_SECONDS
                while self._recruiting and time.monotonic() < again:
                    time.sleep(TICK_SECONDS)
                    lonely = self._watch(lonely)

    def _wants(self) -> bool:
        with self._changed:
            sessions = sum(each.is_alive() for each in self._threads if each is not threading.current_thread())
            return len(self._at) + len(self._connecting) < self._devices and sessions < SESSIONS

    def _take_on(self, host: str, port: int, password: str) -> None:
        """Connect to a server, unless it was refused: unused, it tells the tracker again after some seconds."""
        remote = Remote(host, port)
        with self._changed:
            until, _ = self._refused.get(remote.address, (0.0, ""))
            if not self._recruiting or time.monotonic() < until:
                return
            self._connecting.add(remote)
        self._start(self._serve, remote, password)

    def _watch(self, lonely: float) -> float:
        """Give up servers that are silent; all, if there has been none since `lonely`. Return since when there is none."""
        with self._changed:
            for remote in (*self._at, *self._connecting):
                if remote.silent > LOST_SECONDS:
                    self._lose(remote, f"nothing came from it for {LOST_SECONDS:.0f} s")
            if self._at or self._known is None:
                return time.monotonic()
            if time.monotonic() - lonely > LONELY_SECONDS:
                self._finish(
                    TuningError(
                        f"no server has been left under key {self._key} for {LONELY_SECONDS:.0f} s; what was measured is kept, "
                        "and the same command goes on"
                    )
                )
        return lonely

    def _wait_for_one(self) -> None:
        said = False
        start = time.monotonic()
        while not self._at:
            with self._changed:
                self._changed.wait(TICK_SECONDS)
                idle = not self._connecting
            with Tracker(self._address) as tracker:
                there = self._check_key(tracker.servers())
            refused = [f"{address}: {self._refused[address][1]}" for address in there if address in self._refused]
            if idle and len(refused) == len(there) and not self._at:
                raise UnsupportedMachineError(f"no server under key {self._key} can be used: {'; '.join(refused)}")
            if not said and idle and time.monotonic() - start > LOST_SECONDS:
                self._say(f"all {len(there)} servers under key {self._key} are at work for others; waiting")
                said = True

    def _check_key(self, servers: dict[str, list[str]]) -> list[str]:
        if self._key not in servers:
            others = ", ".join(f"{key} ({len(found)})" for key, found in sorted(servers.items()))
            raise TuningError(
                f"the tracker {self._address} has no server under key {self._key}; it has {others or 'none at all'}; start "
                f"one with:  tvmconv rpc-server --tracker {self._address} --key {self._key}"
            )
        return servers[self._key]

    # One server, in a thread.

    def _serve(self, remote: Remote, password: str) -> None:
        try:
            self._accept(remote, remote.connect(password, self._asked))
            while (job := self._next(remote)) is not None:
                try:
                    answer = remote.measure(job.task, job.seconds, lambda: self._end is not None)
                except (LostError, RefusedError):
                    raise
                except TvmconvError as error:
                    self._settle(remote, job, error)
                else:
                    if answer is None:
                        break
                    self._settle(remote, job, answer)
        except RefusedError as error:
            with self._changed:
                self._refuse(remote, str(error), REFUSED_SECONDS)
        except LostError as error:
            with self._changed:
                self._lose(remote, str(error))
        finally:
            remote.close()
            with self._changed:
                self._give_up(remote, "its thread ended")

    def _accept(self, remote: Remote, found: Description) -> None:
        with self._changed:
            if found.obstacle:
                raise RefusedError(found.obstacle)
            known = self._known or found
            if found.machine != known.machine:
                raise RefusedError(
                    f"it is {found.machine}, and what else is used under key {self._key} is {known.machine}; "
                    "times of both do not compare: give each a key of its own"
                )
            if remote not in self._connecting:
                raise LostError("it answered too late")
            self._connecting.discard(remote)
            self._known = known
            self._at[remote] = None
            self._changed.notify_all()

    def _next(self, remote: Remote) -> _Job | None:
        """Wait for something to measure; None at the end."""
        with self._changed:
            while self._end is None and remote in self._at:
                for job in self._jobs:
                    others = {each.address for each in self._at}
                    if remote.address not in job.avoided or others <= job.avoided:
                        self._jobs.remove(job)
                        self._at[remote] = job
                        return job
                self._changed.wait()
            return None

    def _settle(self, remote: Remote, job: _Job, answer: Measured | Times | TvmconvError) -> None:
        with self._changed:
            if self._at.get(remote) is not job or job.result.done():
                return  # it answers too late: another has it
            self._at[remote] = None
            self.measured[remote.address] += 1
            wrong = isinstance(answer, Measured) and bool(answer.wrong)
            if wrong and job.doubted is None and len(self._at) > 1:
                job.doubted = remote
                job.avoided.add(remote.address)
                self._jobs.appendleft(job)
                self._changed.notify_all()
                return
            if isinstance(answer, Measured) and not wrong and job.doubted is not None:
                self._refuse(job.doubted, f"a kernel that {remote} found right was wrong there", inf)
            if isinstance(answer, TvmconvError):
                job.result.set_exception(answer)
            else:
                job.result.set_result(answer)

    # With the lock held.

    def _refuse(self, remote: Remote, why: str, seconds: float) -> None:
        known = self._refused.get(remote.address, (0.0, ""))[1]
        self._refused[remote.address] = (time.monotonic() + seconds, why)
        if why != known:
            self._say(f"server {remote} is refused: {why}")
        self._give_up(remote, why)

    def _lose(self, remote: Remote, why: str) -> None:
        if remote in self._at or remote in self._connecting:
            self._say(f"server {remote} is lost: {why}")
        self._give_up(remote, why)

    def _give_up(self, remote: Remote, why: str) -> None:
        job = self._at.pop(remote, None)
        self._connecting.discard(remote)
        if job is not None and not job.result.done():
            job.losses.append(f"{remote}: {why}")
            job.avoided.add(remote.address)
            if len(job.losses) < LOSSES:
                self._jobs.appendleft(job)
            else:
                job.result.set_exception(WorkerDiedError(f"{job.task}: every server ended: {'; '.join(job.losses)}"))
        self._changed.notify_all()

    def _say(self, text: str) -> None:
        if self._end is None:
            warnings.warn(text, TvmconvWarning, stacklevel=2)
