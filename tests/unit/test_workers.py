"""Worker processes: results, errors, deaths, and that none stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tvmconv.errors import TargetError
from tvmconv.support import workers
from tvmconv.support.sandbox import Sandbox, run_all
from tvmconv.support.workers import WorkerDiedError

pytestmark = pytest.mark.usefixtures("fresh_workers")


def work(task: str) -> tuple[str, int]:
    """Do what `task` says; runs in a worker."""
    print("what a compiler prints does not disturb the answers")
    if task == "abort":
        os.abort()
    if task == "unexpected":
        raise ValueError("boom")
    if task == "refuse":
        raise TargetError("no such target")
    if task == "sleep":
        time.sleep(600)
    return task.upper(), os.getpid()


def test_every_task_is_answered_by_few_processes() -> None:
    results = dict(run_all(work, ["a", "b", "c", "d", "e"], jobs=2, threads=1))
    assert {task: answer for task, (answer, _) in results.items()} == {c: c.upper() for c in "abcde"}
    assert 1 <= len({pid for _, pid in results.values()}) <= 2


class LateTimer:
    """Timer that ends as it is cancelled."""

    def __init__(self, _: float, function: Callable[[], None]) -> None:
        self.cancel = function

    def start(self) -> None:
        pass


def test_a_limit_that_ends_with_a_task_leaves_the_next_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvmconv.support.sandbox.Timer", LateTimer)
    sandbox = Sandbox(work, threads=1)
    try:
        assert [sandbox.call(task, 600)[0] for task in "ab"] == ["A", "B"]
    finally:
        sandbox.close()


def test_no_tasks() -> None:
    assert list(run_all(work, [], jobs=2, threads=1)) == []


@pytest.mark.parametrize(
    ("task", "error", "words"),
    [
        ("abort", WorkerDiedError, "abort: the worker process was ended by SIGABRT"),
        ("unexpected", WorkerDiedError, "ValueError: boom"),
        ("refuse", TargetError, "no such target"),
    ],
)
def test_a_failure_names_its_task_and_ends_the_others_at_once(task: str, error: type[Exception], words: str) -> None:
    start = time.monotonic()
    with pytest.raises(error, match=words):
        list(run_all(work, ["sleep", task, "sleep"], jobs=2, threads=1))
    assert time.monotonic() - start < 300


def test_it_works_from_a_script_on_stdin_without_a_main_guard(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text("def double(task):\n    return 2 * task\n")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from doubling import double\nfrom tvmconv.support.sandbox import run_all\n"
        "print(sorted(run_all(double, [1, 2, 3], 2, 1)))\n"
    )
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout == "[(1, 2), (2, 4), (3, 6)]\n"


def test_workers_that_are_started_ahead_are_taken_and_end() -> None:
    with workers.workers_ahead(2, "tests.unit.test_workers"):
        started = {process.pid: process for process, _ in workers._ahead}
        taken = {pid for _, (_, pid) in run_all(work, ["a"], jobs=1, threads=1)}
        assert taken < started.keys() and len(workers._ahead) == 1
    assert workers._ahead == [] and all(each.returncode is not None for each in started.values())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")
def test_a_process_of_ours_forks_its_workers() -> None:
    """The modules that it has imported are theirs; they end alike, and when nobody asks them."""
    script = """
import os, sys
from tvmconv.support.forking import _waiting, be_alone, fork_workers
from tvmconv.support.sandbox import run_all
from tvmconv.support.workers import WorkerDiedError, serve_forked
from tests.unit.test_workers import work

fork_workers(2, serve_forked)
assert not _waiting, "a host's process is not forked"
print("written once", end=" ")
be_alone()
fork_workers(2, serve_forked, "tests.unit.test_workers")
forked = {each._pid for each in _waiting}
found = {pid for _, (_, pid) in run_all(work, "abcdefgh", jobs=2, threads=1)}
assert found and found <= forked, (found, forked)
fork_workers(3, serve_forked)
last = _waiting[-1]._pid
for task, words in {"abort": "abort: the worker process was ended by SIGABRT", "unexpected": "ValueError: boom"}.items():
    try:
        list(run_all(work, [task], jobs=1, threads=1))
    except WorkerDiedError as error:
        assert words in str(error), error
print(last)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *words, last = done.stdout.split()
    assert words == ["written", "once"]
    while Path(f"/proc/{last}").exists():  # it ends when its requests do
        time.sleep(0.01)
