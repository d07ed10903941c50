"""Where threads run: found by a real look, and judged by the best that was seen."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import pytest

from tvmconv import cores, peak
from tvmconv.cores import Cores, Place

NEAR, FAR, ONE_CORE = Place(1.0, 90e-9), Place(0.97, 450e-9), Place(0.5, 50e-9)


def watch(monkeypatch: pytest.MonkeyPatch, places: Iterable[Place], patience: float = 10.0) -> Cores:
    """Return a watch that sees these places, one a look."""
    seen = iter(places)
    monkeypatch.setattr(Cores, "_look", lambda self: next(seen))
    return Cores(2, patience)


def test_what_two_threads_have_is_measured() -> None:
    place = Cores(2)._look()
    assert place is not None
    assert 0 < place.share <= 1 and 1e-9 < place.trip < 1


@pytest.mark.parametrize("threads", [1, 2])
def test_one_thread_or_no_compiler_is_always_settled(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    if threads > 1:
        monkeypatch.setattr(shutil, "which", lambda name: None)
        monkeypatch.setattr(cores, "load_library", peak.load_library.__wrapped__)
    assert Cores(threads)._look() is None
    assert Cores(threads).settled()


@pytest.mark.parametrize(
    ("places", "settled"),
    [
        ([NEAR, FAR, ONE_CORE, NEAR], [True, False, False, True]),
        # Until something better is seen, what there is counts; then it no longer does.
        ([FAR, FAR, NEAR, FAR], [True, True, True, False]),
        # Near only because they shared a core: the distance of two cores is the measure from then on.
        ([ONE_CORE, NEAR, ONE_CORE, NEAR], [True, True, False, True]),
        ([ONE_CORE, FAR, NEAR, FAR], [True, True, True, False]),
        # Clocks change, and round trips are counted in steps of the clock.
        ([NEAR, Place(0.85, 130e-9), Place(1.0, 80e-9)], [True, True, True]),
    ],
)
def test_the_best_seen_is_the_measure(
    monkeypatch: pytest.MonkeyPatch, places: list[Place], settled: list[bool]
) -> None:
    watched = watch(monkeypatch, places)
    assert [watched.settled() for _ in places] == settled


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
