"""The servers under one key of a tracker; more are requested while fewer than allowed are connected."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from math import inf
from types import TracebackType

from ..errors import TuningError, UnsupportedMachineError
from ..measuring.measure import Check, Measured
from ..measuring.race import Race, Times
from ..targets.target import Target
from .pool import LOST_SECONDS, Pool
from .tracker import Tracker, check_key

# Time without a server until tuning ends: a server that restarts after a crash is back sooner.
LONELY_SECONDS = 60.0
# Most sessions that TVM keeps in one process (kMaxRPCSession), hanging ones included.
SESSIONS = 32
# Time between two attempts to reach a lost tracker: servers register at a new one as often.
TRACKER_SECONDS = 5.0
# Time between two checks for changes: short beside all times above.
TICK_SECONDS = 0.25


class Fleet:
    """Measures on the servers that a tracker has under a key. As a context, it frees them at the end.

    Parameters
    ----------
    tracker, key
        ``HOST:PORT``, and the key.
    target
        The target to measure for; None: the servers' own CPU.
    devices
        Most servers to use; None: all, up to `SESSIONS`.

    Attributes
    ----------
    target, machine
        The target of the measurements, and their label: the servers' CPU and threads.
    measured
        Measurements made by each server, by its address.

    Raises
    ------
    TuningError
        If no tracker answers, or it has no server under this key.
    UnsupportedMachineError
        If none of them can be used.
    """

    def __init__(self, tracker: str, key: str, target: Target | None = None, devices: int | None = None) -> None:
        self._address, self._key, self._devices = tracker, check_key(key), inf if devices is None else devices
        self._asked = target
        self._pool = Pool(key, target)
        self.measured = self._pool.measured
        self._closing = False
        with Tracker(tracker) as found:
            self._check_key(found.servers())
        self._recruiter = threading.Thread(target=self._recruit, daemon=True)
        self._recruiter.start()
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
        """Target of the measurements."""
        assert self._pool.known is not None
        return self._asked or self._pool.known.host

    @property
    def machine(self) -> str:
        """Label of the measurements."""
        assert self._pool.known is not None
        return self._pool.known.machine

    @property
    def size(self) -> int:
        """Number of connected servers."""
        return self._pool.size

    def call(self, task: Check | Race, seconds: float) -> Measured | Times:
        """Measure on the first free server; callable from any thread.

        Raises
        ------
        WorkerDiedError, TimeoutExceededError, TvmconvError
            Errors of measuring. The first also after several servers ended.
        TuningError
            If there has been no server for long.
        CancelledError
            If :meth:`cancel` or :meth:`close` was called meanwhile.
        """
        return self._pool.call(task, seconds)

    def cancel(self) -> None:
        """Drop the measurements that no server has begun."""
        self._pool.cancel()

    def close(self) -> None:
        """Free the servers; running measurements are cancelled."""
        # Leave the tracker first, or it would offer the freed servers again.
        self._closing = True
        self._recruiter.join()
        self._pool.end(CancelledError())
        self._pool.join()

    @property
    def _recruiting(self) -> bool:
        return not (self._closing or self._pool.ended)

    def _recruit(self) -> None:
        """Get servers, in a thread."""
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
                            if self._recruiting:
                                self._pool.take_on(*offered)
                        lonely = self._watch(lonely)
            except TuningError as error:
                if not gone:
                    self._pool.say(f"{error}; those servers that are at hand go on")
                gone = True
                again = time.monotonic() + TRACKER_SECONDS
                while self._recruiting and time.monotonic() < again:
                    time.sleep(TICK_SECONDS)
                    lonely = self._watch(lonely)

    def _wants(self) -> bool:
        return self._pool.taken < self._devices and self._pool.sessions < SESSIONS

    def _watch(self, lonely: float) -> float:
        """Give up silent servers, and end measuring if there has been none since `lonely`; return since when there is none."""
        self._pool.lose_silent()
        if self._pool.size or self._pool.known is None:
            return time.monotonic()
        if time.monotonic() - lonely > LONELY_SECONDS:
            self._pool.end(
                TuningError(
                    f"no server has been left under key {self._key} for {LONELY_SECONDS:.0f} s; what was measured is kept, "
                    "and the same command goes on"
                )
            )
        return lonely

    def _wait_for_one(self) -> None:
        said = False
        start = time.monotonic()
        while not self._pool.size:
            self._pool.wait(TICK_SECONDS)
            idle = self._pool.idle
            with Tracker(self._address) as tracker:
                there = self._check_key(tracker.servers())
            refused = self._pool.refusals(there)
            if idle and len(refused) == len(there) and not self._pool.size:
                raise UnsupportedMachineError(f"no server under key {self._key} can be used: {'; '.join(refused)}")
            if not said and idle and time.monotonic() - start > LOST_SECONDS:
                self._pool.say(f"all {len(there)} servers under key {self._key} are at work for others; waiting")
                said = True

    def _check_key(self, servers: dict[str, list[str]]) -> list[str]:
        if self._key not in servers:
            others = ", ".join(f"{key} ({len(found)})" for key, found in sorted(servers.items()))
            raise TuningError(
                f"the tracker {self._address} has no server under key {self._key}; it has {others or 'none at all'}; start "
                f"one with:  tvmconv rpc-server --tracker {self._address} --key {self._key}"
            )
        return servers[self._key]
