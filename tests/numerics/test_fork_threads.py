"""Threads of a call, and calls in forked processes; each in a fresh process without TVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys import run_python

# `call(registry)` computes one convolution and checks it; `tasks()` counts this process' operating-system threads;
# `settle(n)` waits until there are n: a thread that has ended is still counted for a moment.
PROLOGUE = """
import os, threading, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np, tvmconv
from tvmconv import fills, reference
signature = next(s for s in tvmconv.load(sys.argv[1]) if s.startswith("conv2d-n2-") and s.endswith("f32"))
problem = tvmconv.parse_signature(signature)
(data, taps, _), expected = fills.exact_case(problem)
def call(registry):
    assert (registry[signature](data, taps) == expected).all()
def tasks():
    return len(os.listdir("/proc/self/task"))
def settle(n):
    while tasks() != n: time.sleep(0.001)
"""


def _run(script: str, bundle: Path, **environment: str) -> str:
    return run_python(PROLOGUE + script, bundle, **environment)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_omp_num_threads(small_bundle: Path, threads: int) -> None:
    script = "before = tasks(); call(tvmconv.load(sys.argv[1])); print(tasks() - before)"
    assert _run(script, small_bundle, OMP_NUM_THREADS=str(threads)) == str(threads - 1)


def test_threads_of_each_registry(small_bundle: Path) -> None:
    """Each call has the threads of its registry, whatever another registry of the same library has."""
    script = """
import time
registries = {n: tvmconv.load(sys.argv[1], threads=n) for n in (None, 1, 2, 4)}
alone = tasks()
def new_threads(n):
    # A thread of its own has no OpenMP threads yet: those that a call leaves are those it used.
    def work():
        before = tasks()
        call(registries[n])
        found.append(tasks() - before)
    found = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    while tasks() > alone:  # OpenMP's threads end with the one that called, but after it
        time.sleep(0.001)
    return found[0]
print([new_threads(n) for n in (4, 1, None, 2, 1, None, 4)])
"""
    assert _run(script, small_bundle, OMP_NUM_THREADS="3") == "[3, 0, 2, 1, 0, 2, 3]"


def test_registries_in_turns_and_at_once(small_bundle: Path) -> None:
    script = """
registries = [tvmconv.load(sys.argv[1], threads=n) for n in (None, 1, 2, 4)]
def work():
    for turn in range(100):
        call(registries[turn % 4])
    done.append(True)
done = []
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(done))
"""
    assert _run(script, small_bundle, OMP_NUM_THREADS="2") == "4"


# `in_child(work)` forks, runs `work` in the child and returns its exit status: 0 when all went well.
FORK = """
def in_child(work):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_fork(small_bundle: Path, threads: int | None) -> None:
    """The parent's OpenMP threads are not in the child; both must go on computing, and grandchildren too."""
    script = f"""
registry = tvmconv.load(sys.argv[1], threads={threads})
def child():
    before = tasks()
    for _ in range(3): call(registry)
    assert before == 1 and tasks() == {threads or 2}, (before, tasks())
    assert in_child(lambda: call(registry)) == 0
    call(registry)
statuses = []
for _ in range(5):
    call(registry)
    statuses.append(in_child(child))
call(registry)
settle({threads or 2})
print(statuses)
"""
    assert _run(FORK + script, small_bundle, OMP_NUM_THREADS="2") == "[0, 0, 0, 0, 0]"


def test_fork_before_the_first_call(small_bundle: Path) -> None:
    script = """
registry = tvmconv.load(sys.argv[1])
print(in_child(lambda: call(registry)), in_child(lambda: call(registry)))
call(registry)
"""
    assert _run(FORK + script, small_bundle, OMP_NUM_THREADS="2") == "0 0"


def test_fork_while_other_threads_call(small_bundle: Path) -> None:
    script = """
registry = tvmconv.load(sys.argv[1])
stop = threading.Event()
def work():
    while not stop.is_set(): call(registry)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
statuses = set()
for _ in range(20):
    call(registry)
    statuses.add(in_child(lambda: call(registry)))
stop.set()
for thread in threads: thread.join()
print(statuses)
"""
    assert _run(FORK + script, small_bundle, OMP_NUM_THREADS="2") == "{0}"


def test_multiprocessing(small_bundle: Path) -> None:
    script = """
import multiprocessing
registry = tvmconv.load(sys.argv[1])
call(registry)
def work(_):
    call(registry)
    return tasks() >= 2
with multiprocessing.get_context("fork").Pool(3) as pool:
    print(set(pool.map(work, range(12))))
call(registry)
"""
    assert _run(script, small_bundle, OMP_NUM_THREADS="2") == "{True}"
