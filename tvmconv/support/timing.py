"""Wall time by stage: of this process, and of the workers that it starts (`tvmconv compile --timing`, `$TVMCONV_TIMING`)."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import current_thread, main_thread

_BEGIN = time.perf_counter()
VARIABLE = "TVMCONV_TIMING"
TOTAL = "total"


@dataclass
class Clock:
    """Seconds by stage; a nested stage is not counted in its outer one."""

    seconds: dict[str, float] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    since: float = 0.0

    def switch(self) -> None:
        """Add the time since the last switch to the running stage."""
        now = time.perf_counter()
        if self.running:
            self.add(self.running[-1], now - self.since)
        self.since = now

    def add(self, name: str, seconds: float) -> None:
        """Add to a stage."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


_clock = Clock()
_workers: list[Mapping[str, float]] = []


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the main thread's time in a stage; other threads are not counted."""
    if current_thread() is not main_thread():
        yield
        return
    _clock.switch()
    _clock.running.append(name)
    try:
        yield
    finally:
        _clock.switch()
        _clock.running.pop()


def count_anew() -> None:
    """Forget the times of the process that this one was forked from."""
    _clock.seconds.clear()
    _clock.running.clear()
    _workers.clear()


def count_start() -> None:
    """Count this process' time from its start until now as imports, less its stages."""
    _clock.add("import", _age() - sum(_clock.seconds.values()))


def collect() -> dict[str, float]:
    """Return the seconds of this process by stage, and in total."""
    _clock.switch()
    return {**_clock.seconds, TOTAL: _age()}


def add_worker(seconds: Mapping[str, float]) -> None:
    """Add an ended worker's times from :func:`collect`, if times are counted."""
    if os.environ.get(VARIABLE) == "1":
        _workers.append(seconds)


def show_at_end() -> None:
    """Print the table when this process ends."""
    os.environ[VARIABLE] = "1"
    atexit.unregister(_show)
    atexit.register(_show)


def render() -> str:
    """Return the seconds by stage as text, of this process and of all workers together; `rest` is the time outside of stages."""
    own = collect()
    columns = [("this process", own)]
    if _workers:
        columns.append((f"{len(_workers)} workers", {name: _sum(name) for each in _workers for name in each}))
    names = [name for name in dict.fromkeys(name for _, each in columns for name in each) if name != TOTAL]
    names.sort(key=lambda name: -sum(each.get(name, 0.0) for _, each in columns))
    rows = [("seconds", *(title for title, _ in columns))]
    rows += [(name, *(f"{each.get(name, 0.0):.2f}" for _, each in columns)) for name in names]
    rest = [each[TOTAL] - sum(seconds for name, seconds in each.items() if name != TOTAL) for _, each in columns]
    rows += [("rest", *(f"{each:.2f}" for each in rest)), (TOTAL, *(f"{each[TOTAL]:.2f}" for _, each in columns))]
    return "\n".join(f"{name:10}" + "".join(f"{cell:>14}" for cell in cells) for name, *cells in rows)


def _sum(name: str) -> float:
    return sum(each.get(name, 0.0) for each in _workers)


def _age() -> float:
    """Return the seconds since this process was started, to a hundredth."""
    try:
        file = open("/proc/self/stat")  # noqa: SIM115 (closed below)
    except OSError:  # another system: since this was imported
        return time.perf_counter() - _BEGIN
    with file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _show() -> None:
    print(render(), file=sys.stderr)


if os.environ.get(VARIABLE) == "1":
    show_at_end()
