"""The connected servers and the queue of measurements: a free server takes the next one.

A thread for each server waits for its answers. The measurement of a server that dies, or sends nothing, goes to another one; a
hanging thread is abandoned.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from math import inf
from typing import Any

from ..errors import TvmconvError, TvmconvWarning
from ..measuring.measure import Check, Measured
from ..measuring.race import Race, Times
from ..support.workers import WorkerDiedError
from ..targets.target import Target
from .protocol import PULSE_SECONDS, Description
from .remote import LostError, RefusedError, Remote

# A server answers every `PULSE_SECONDS`, or receives a library: a network's delays are far below ten times that.
LOST_SECONDS = 10.0
# One or two servers may end by chance; if three end with one candidate, its kernel is at fault.
LOSSES = 3
# Time until a refused server is asked again: it may have been replaced by then.
REFUSED_SECONDS = 60.0


@dataclass
class _Job:
    """A requested measurement.

    Attributes
    ----------
    losses
        The servers that were lost with it, each with the reason.
    avoided
        Addresses of these servers, and of those that found the kernel wrong: others are preferred.
    doubted
        The server that found the kernel wrong: another one checks it, too.
    """

    task: Check | Race
    seconds: float
    result: Future[Any] = field(default_factory=Future)
    losses: list[str] = field(default_factory=list)
    avoided: set[str] = field(default_factory=set)
    doubted: Remote | None = None


class Pool:
    """Measures on its servers; callable from any thread.

    Parameters
    ----------
    key
        The key under which the servers are registered.
    target
        The target to measure for; None: the servers' own CPU.

    Attributes
    ----------
    known
        The description that all servers share; None before the first.
    measured
        Measurements made by each server, by its address.
    """

    def __init__(self, key: str, target: Target | None) -> None:
        self.known: Description | None = None
        self.measured: Counter[str] = Counter()
        self._key, self._asked = key, target
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        # Each server's job, or None; without connecting servers.
        self._at: dict[Remote, _Job | None] = {}
        self._connecting: set[Remote] = set()
        self._threads: list[threading.Thread] = []
        self._refused: dict[str, tuple[float, str]] = {}
        self._end: Exception | None = None

    @property
    def size(self) -> int:
        """Number of connected servers."""
        return len(self._at)

    @property
    def idle(self) -> bool:
        """Return whether every server has described itself."""
        return not self._connecting

    @property
    def taken(self) -> int:
        """Number of servers, including those that have not described themselves yet."""
        with self._changed:
            return len(self._at) + len(self._connecting)

    @property
    def sessions(self) -> int:
        """Number of servers with a session, hanging ones included."""
        return sum(each.is_alive() for each in self._threads)

    @property
    def ended(self) -> bool:
        """Return whether measuring has ended."""
        return self._end is not None

    def refusals(self, addresses: Iterable[str]) -> list[str]:
        """Return which of these servers were refused, each with the reason."""
        return [f"{address}: {self._refused[address][1]}" for address in addresses if address in self._refused]

    def call(self, task: Check | Race, seconds: float) -> Measured | Times:
        """Measure on the first free server, with the errors of :meth:`tvmconv.fleet.fleet.Fleet.call`."""
        job = _Job(task, seconds)
        with self._changed:
            if self._end is not None:
                raise self._end
            self._jobs.append(job)
            self._changed.notify_all()
        answer: Measured | Times = job.result.result()
        return answer

    def cancel(self) -> None:
        """Drop the measurements that no server has begun."""
        with self._changed:
            for job in self._jobs:
                job.result.set_exception(CancelledError())
            self._jobs.clear()

    def end(self, error: Exception) -> None:
        """Free the servers; raise `error` for running and later measurements."""
        with self._changed:
            self._end = self._end or error
            for job in (*self._jobs, *filter(None, self._at.values())):
                if not job.result.done():
                    job.result.set_exception(error)
            self._jobs.clear()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the servers' sessions, which end with their threads; hanging ones are abandoned."""
        end = time.monotonic() + 2 * PULSE_SECONDS
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))

    def wait(self, seconds: float) -> None:
        """Wait until something changes, for at most `seconds`."""
        with self._changed:
            self._changed.wait(seconds)

    def take_on(self, host: str, port: int, password: str) -> None:
        """Connect to a server, unless it was refused: it registers at the tracker again after some seconds."""
        remote = Remote(host, port)
        with self._changed:
            until, _ = self._refused.get(remote.address, (0.0, ""))
            if self.ended or time.monotonic() < until:
                return
            self._connecting.add(remote)
            thread = threading.Thread(target=self._serve, args=(remote, password), daemon=True)
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()

    def lose_silent(self) -> None:
        """Give up the servers that sent nothing for `LOST_SECONDS`."""
        with self._changed:
            for remote in (*self._at, *self._connecting):
                if remote.silent > LOST_SECONDS:
                    self._lose(remote, f"nothing came from it for {LOST_SECONDS:.0f} s")

    def say(self, text: str) -> None:
        """Warn, unless measuring has ended."""
        if not self.ended:
            warnings.warn(text, TvmconvWarning, stacklevel=2)

    # One server, in a thread.

    def _serve(self, remote: Remote, password: str) -> None:
        try:
            self._accept(remote, remote.connect(password, self._asked))
            while (job := self._next(remote)) is not None:
                try:
                    answer = remote.measure(job.task, job.seconds, lambda: self.ended)
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
            known = self.known or found
            if found.machine != known.machine:
                raise RefusedError(
                    f"it is {found.machine}, and the other servers under key {self._key} is {known.machine}; "
                    "their times are not comparable: give each its own key"
                )
            if remote not in self._connecting:
                raise LostError("it answered too late")
            self._connecting.discard(remote)
            self.known = known
            self._at[remote] = None
            self._changed.notify_all()

    def _next(self, remote: Remote) -> _Job | None:
        """Wait for a job for a server; None at the end."""
        with self._changed:
            while not self.ended and remote in self._at:
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
                return  # too late: another server has the job
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
            self.say(f"server {remote} is refused: {why}")
        self._give_up(remote, why)

    def _lose(self, remote: Remote, why: str) -> None:
        if remote in self._at or remote in self._connecting:
            self.say(f"server {remote} is lost: {why}")
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
