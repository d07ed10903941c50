"""A library's turn ends when its threads sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from benchmarks import rest


def awake_until(done: Callable[[], bool]) -> threading.Thread:
    """Return a thread that waits awake, as libraries' do for the next call."""
    thread = threading.Thread(target=lambda: any(iter(done, True)))
    thread.start()
    return thread


def test_a_turn_ends_when_no_thread_spins() -> None:
    end = time.monotonic() + 0.2
    thread = awake_until(lambda: time.monotonic() > end)
    assert rest.take_turn(lambda: None, 0.0)
    assert not thread.is_alive()


def test_threads_that_never_sleep_are_waited_for_until_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "PATIENCE", 0.0)
    stop = threading.Event()
    thread = awake_until(stop.is_set)
    rest.rest()
    assert thread.is_alive()
    stop.set()
    thread.join()
