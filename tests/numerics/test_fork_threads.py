"""Threads of a call, and calls in forked processes; each in a fresh process without TVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import model, save, value
from onnx import helper
from toys import compile_bundle, run_python

from tvmconv.lowering.compiler import Choice
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.runtime.processors import usable_processors
from tvmconv.signature import parse_signature

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
    """By default no more than there are processors for."""
    script = "before = tasks(); call(tvmconv.load(sys.argv[1])); print(tasks() - before)"
    expected = min(threads, usable_processors()) - 1
    assert _run(script, small_bundle, OMP_NUM_THREADS=str(threads)) == str(expected)


def test_threads_of_each_registry(small_bundle: Path) -> None:
    """One pool has as many as the call that asked for the most, whichever registry and library it is of."""
    script = """
registries = {n: tvmconv.load(sys.argv[1], threads=n) for n in (None, 1, 2, 4)}
before = tasks()
def new_threads(n):
    call(registries[n])
    return tasks() - before
print([new_threads(n) for n in (1, 2, None, 1, 4, 2)])
"""
    assert (
        _run(script, small_bundle, OMP_NUM_THREADS="2") == f"[0, 1, {max(1, min(2, usable_processors()) - 1)}, 1, 3, 3]"
    )


def test_libraries_share_one_pool(small_bundle: Path) -> None:
    script = """
registry = tvmconv.load(sys.argv[1], threads=3)
before = tasks()
for each in registry:
    arrays = fills.random_fill(tvmconv.parse_signature(each))
    registry[each](*arrays.given().values())
files = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line and sys.argv[1] in line}
print(len(files) > 1, tasks() - before)
"""
    assert _run(script, small_bundle) == "True 2"


def test_callers_at_once_share_what_is_there(small_bundle: Path) -> None:
    """Eight threads that call at once start no more threads than one of them asked for."""
    script = """
registry = tvmconv.load(sys.argv[1], threads=3)
before = tasks()
barrier = threading.Barrier(8)
def work():
    barrier.wait()
    for _ in range(50): call(registry)
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
settle(before + max(2, {usable} - 1)) if {usable} > 3 else settle(before + 2)
print("settled")
""".replace("{usable}", str(usable_processors()))
    assert _run(script, small_bundle, OMP_NUM_THREADS="1") == "settled"


def test_a_caller_that_is_bound_binds_no_other(small_bundle: Path) -> None:
    """The first call is its: the default is the process's, and so are the processors of the threads that it starts."""
    script = """
from tvmconv.runtime.processors import kernel_threads
allowed, threads, registry = os.sched_getaffinity(0), kernel_threads(), tvmconv.load(sys.argv[1])
def work():
    os.sched_setaffinity(0, {min(allowed)})
    call(registry)
    settle(threads + 1)  # the first did nothing
    workers = {int(each) for each in os.listdir("/proc/self/task")} - {os.getpid(), threading.get_native_id()}
    while any(os.sched_getaffinity(each) != allowed for each in workers): time.sleep(0.001)
    print(kernel_threads() == threads)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    assert _run(script, small_bundle, OMP_NUM_THREADS="2") == "True"


@pytest.mark.parametrize("processors", [1, None])
def test_many_threads_of_several_callers_on_few_processors(tmp_path: Path, processors: int | None) -> None:
    """Of more than eight workers, those that sleep are woken by others: after a while, and in turns, each answer is right."""
    problem = parse_signature("conv2d-n2-i64x16x16-o64x16x16-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    bundle = compile_bundle(tmp_path / "large", [problem], choice=Choice("direct"))  # smaller ones ask for fewer
    script = """
if PROCESSORS: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:PROCESSORS])
registry = tvmconv.load(sys.argv[1], threads=33)
def work():
    for _ in range(5):
        for _ in range(4): call(registry)
        time.sleep(0.01)  # longer than they wait awake
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(tasks() > 24)  # there are 32 tasks
""".replace("PROCESSORS", str(processors))
    assert _run(script, bundle) == "True"


def test_small_loops_ask_for_few_threads(small_bundle: Path) -> None:
    script = "before = tasks(); call(tvmconv.load(sys.argv[1], threads=33)); print(tasks() - before)"
    assert int(_run(script, small_bundle)) < 8


def test_small_loops_between_kernels_ask_for_few_threads(tmp_path: Path) -> None:
    made = model([helper.make_node("Add", ["x", "x"], ["y"])], [value("x", (1, 4, 128, 128))])
    build(read_onnx(save(made, tmp_path)), tmp_path / "network.so")
    script = """
import os, sys, numpy as np
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import tvmconv
network = tvmconv.load_network(sys.argv[1])
x, y = np.ones((1, 4, 128, 128), np.float32), np.zeros((1, 4, 128, 128), np.float32)
before = len(os.listdir("/proc/self/task"))
network.run([x.ctypes.data], [y.ctypes.data], threads=33)
print(len(os.listdir("/proc/self/task")) - before, (y == 2).all())
"""
    assert run_python(script, tmp_path / "network.so") == "7 True"


def test_waiting_threads_sleep(small_bundle: Path) -> None:
    """After a call they spin for microseconds and no more, and nothing is bound to a processor."""
    script = """
registry = tvmconv.load(sys.argv[1], threads=3)
workers = []
while len(workers) < 2:  # they give themselves their names
    call(registry)
    workers = [task for task in os.listdir("/proc/self/task") if open(f"/proc/self/task/{task}/comm").read() == "tvmconv\\n"]
def state(task):
    return open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()[0]
while any(state(task) != "S" for task in workers): time.sleep(0.001)
before = time.process_time()
time.sleep(0.5)
used = time.process_time() - before
assert used < 0.1, used
print(len(workers), all(os.sched_getaffinity(int(task)) == os.sched_getaffinity(0) for task in workers))
"""
    assert _run(script, small_bundle) == "2 True"


def test_a_loop_does_not_wait_for_a_thread_without_a_processor(small_bundle: Path) -> None:
    """A worker that gets no processor keeps nobody waiting: it has not begun, and its caller takes its share."""
    script = """
import ctypes, signal
registry = tvmconv.load(sys.argv[1], threads=2)
workers = []
while not workers:  # it gives itself its name
    call(registry)
    workers = [task for task in os.listdir("/proc/self/task") if open(f"/proc/self/task/{task}/comm").read() == "tvmconv\\n"]
# The lowest priority that there is, and a process that never sleeps on each processor.
SCHED_IDLE = 5
os.sched_setscheduler(int(workers[0]), SCHED_IDLE, os.sched_param(0))
children = []
for _ in os.sched_getaffinity(0):
    child = os.fork()
    if child == 0:
        while True: pass
    children.append(child)
for _ in range(20): call(registry)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print("done")
"""
    assert _run(script, small_bundle) == "done"


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
    """The parent's threads are not in the child; both must go on computing, and grandchildren too."""
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
