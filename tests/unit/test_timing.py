"""Wall time by stage, of this process and of its workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tvmconv.support import timing
from tvmconv.support.workers import Worker

ROOT = str(Path(__file__).parents[2])
PROGRAM = """
import time
from tvmconv.support.timing import stage
from tvmconv.support.workers import Worker
with stage("outer"):
    with stage("inner"):
        time.sleep(0.05)
worker = Worker("tests.unit.test_timing:answer", 1)
worker.call(1)
worker.close()
"""


def answer(task: int) -> int:
    with timing.stage("answering"):
        return task + 1


def rows_of(text: str) -> dict[str, list[float]]:
    lines = [line.split() for line in text.splitlines()]
    return {name: [float(each) for each in cells] for name, *cells in lines[1:]}


def test_a_stage_within_another_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(timing, "_clock", timing.Clock())
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    with timing.stage("outer"):
        now[0] += 2
        with timing.stage("inner"):
            now[0] += 3
        now[0] += 4
    now[0] += 5
    spent = timing.collect()
    assert (spent["outer"], spent["inner"]) == (6, 3)


def test_any_program_prints_the_table_with_its_workers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": ROOT, timing.VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines()[0].split() == ["seconds", "this", "process", "1", "workers"]
    rows = rows_of(done.stderr)
    assert rows["inner"][0] >= 0.05 and {"outer", "answering", "import", "waiting", "rest", "total"} <= set(rows)
    for column in range(2):
        parts = sum(cells[column] for name, cells in rows.items() if name != "total")
        assert abs(parts - rows["total"][column]) < 0.01 * len(rows)  # each is rounded


def test_nothing_is_printed_unasked() -> None:
    environment = {name: value for name, value in os.environ.items() if name != timing.VARIABLE} | {"PYTHONPATH": ROOT}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_worker_says_what_it_spent() -> None:
    worker: Worker[int, int] = Worker("tests.unit.test_timing:answer", 1)
    try:
        assert worker.call(1) == 2
        assert worker._spent["total"] >= worker._spent["import"] > 0
    finally:
        worker.close()
