"""Where threads run: found by a real look, and judged by the best that was seen; and how long kernels take there."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import compare
from benchmarks import cores as benchmark
from benchmarks.measure import Answer
from tvmconv.measuring import cores, peak, race
from tvmconv.measuring.cores import Cores, ThreadPlace, Where

NEAR, FAR, ONE_CORE = ThreadPlace(1.0, 90e-9), ThreadPlace(0.97, 450e-9), ThreadPlace(0.5, 50e-9)


def watch(monkeypatch: pytest.MonkeyPatch, places: Iterable[ThreadPlace], patience: float = 10.0) -> Cores:
    """Return a watch that sees these places, one a look."""
    seen = iter(places)
    monkeypatch.setattr(Cores, "_look", lambda self: next(seen))
    return Cores(2, patience)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_what_two_threads_have_is_measured() -> None:
    place = Cores(2)._look()
    assert place is not None
    assert 0 < place.share <= 1 and 1e-9 < place.trip < 1


@pytest.mark.parametrize("threads", [1, 2, 10**6])
def test_one_thread_or_too_many_or_no_compiler_is_always_settled(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    if threads == 2:
        monkeypatch.setattr(shutil, "which", lambda name: None)
        monkeypatch.setattr(cores, "load_library", peak.load_library.__wrapped__)
    assert Cores(threads)._look() is None
    assert Cores(threads).settled()


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([NEAR, FAR, ONE_CORE, NEAR], ["same cache", "cross cache", "shared core", "same cache"]),
        # Until something better is seen, what there is counts; then it no longer does.
        ([FAR, FAR, NEAR, FAR], ["same cache", "same cache", "same cache", "cross cache"]),
        # Near only because they shared a core: the distance of two cores is the measure from then on.
        ([ONE_CORE, NEAR, ONE_CORE, NEAR], ["same cache", "same cache", "shared core", "same cache"]),
        ([ONE_CORE, FAR, NEAR, FAR], ["same cache", "same cache", "same cache", "cross cache"]),
        # Clocks change, and so do round trips.
        ([NEAR, ThreadPlace(0.85, 130e-9), ThreadPlace(1.0, 80e-9)], ["same cache", "same cache", "same cache"]),
    ],
)
def test_the_best_seen_is_the_measure(
    monkeypatch: pytest.MonkeyPatch, places: list[ThreadPlace], found: list[Where]
) -> None:
    watched = watch(monkeypatch, places)
    assert [watched.where() for _ in places] == found


def test_it_waits_until_the_best_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    watched = watch(monkeypatch, [NEAR, FAR, ONE_CORE, NEAR, NEAR])
    watched.settled()
    watched.settle()
    assert len(pauses) == 2 and watched.settled()


def test_what_does_not_come_back_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(monkeypatch, [NEAR, FAR, FAR, FAR], patience=-1.0)
    watched.settled()
    watched.settle()
    assert watched.settled() and watched.settled()


class Moved(Cores):
    """Threads that were moved during so many of the first timings."""

    def __init__(self, moves: int) -> None:
        super().__init__(2)
        self.looks, self._moves = 0, moves

    def settle(self) -> None:
        pass

    def settled(self) -> bool:
        self.looks += 1
        return self.looks > self._moves


@pytest.mark.parametrize(("moves", "turns"), [(0, 1), (1, 2), (9, compare.MOVES)])
def test_a_contender_whose_threads_were_moved_takes_its_turn_again(moves: int, turns: int) -> None:
    class Worker:
        calls = 0

        def call(self, task: object) -> Answer:
            self.calls += 1
            return Answer([float(self.calls)])

    timer = object.__new__(compare.Timer)  # without the libraries' processes
    vars(timer).update(_workers={"ours": Worker()}, _cores=Moved(moves), _bundle="", _threads=2, _seconds=0.1)
    assert timer._turn("ours", "conv", "expected.npy") == Answer([float(turns)])


@pytest.mark.parametrize(("moves", "rounds", "quiet"), [(0, 3, True), (2, 5, True), (10**6, None, False)])
def test_a_race_counts_no_turns_of_moved_threads(
    monkeypatch: pytest.MonkeyPatch, moves: int, rounds: int | None, quiet: bool
) -> None:
    class Library:
        def call(self, arrays: object, cold_bytes: int) -> object:
            return lambda: time.sleep(1e-4)

    monkeypatch.setattr(race, "PLACEMENT_SECONDS", 30.0 if quiet else 0.05)
    moved = Moved(moves)
    seconds, undisturbed = race._turns(SimpleNamespace(cold_bytes=0), [Library(), Library()], [np.zeros(1)], moved)  # type: ignore[arg-type, list-item]
    assert len(seconds) == 2 and undisturbed == quiet
    assert rounds is None or moved.looks >= rounds


def test_kernels_are_timed_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    # A look after the first call of each kernel; then two looks a turn, of which the third turn's differ.
    places = [NEAR, NEAR, *[NEAR, NEAR, FAR, FAR, FAR, NEAR, FAR, FAR], *[NEAR] * 8]
    # Each look at the clock is a second later, so there are four turns of both.
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(monotonic=count().__next__))
    monkeypatch.setattr(benchmark, "sample_call", lambda call, seconds: [call()])
    calls = {"slow": lambda: 0.004, "fast": lambda: 0.001}
    seen, times = benchmark.watch(calls, watch(monkeypatch, places), 4.0)
    assert seen == {"cross cache": 2, "same cache": 6}
    assert times["slow"] == {"same cache": [0.004] * 3}
    assert times["fast"] == {"same cache": [0.001] * 2, "cross cache": [0.001] * 2}


def test_the_slowest_apart_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    times: benchmark.Times = {
        "direct one": {"same cache": [1e-5, 3e-5, 2e-5], "cross cache": [2.2e-5]},
        "planar other": {"same cache": [1e-5], "cross cache": [4e-5], "shared core": [2e-5]},
        "direct unseen": {"cross cache": [1e-5]},
    }
    benchmark.print_times(Counter({"same cache": 3, "cross cache": 1}), times)
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "signature"
    assert [line.split() for line in rows[:3]] == [
        ["other", "planar", "10.0", "40.0", "20.0", "4.00"],
        ["one", "direct", "20.0", "22.0", "-", "1.10"],
        ["unseen", "direct", "-", "10.0", "-", "-"],
    ]
    assert rows[3:] == [
        "same cache: 75% of the time",
        "cross cache: 25% of the time: 2.10 times as long as in the same cache",
        "shared core: 0% of the time: 2.00 times as long as in the same cache",
    ]
