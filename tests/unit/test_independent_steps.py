"""Steps that may run at once: which the plan finds, and which of their loops become one."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tvm_ffi import libinfo

from tvmconv.lowering.cpu.linker import compile_runtime
from tvmconv.network.emit.beside import firsts_beside, with_beside
from tvmconv.network.emit.network_plan import IF, Array, PlanStep, Region, Storage

# Its tasks, and its size, for which ten threads pay, or six; 0: an operator's, whose size nobody knows; 99: its first task fails.
LARGE, SMALL, UNKNOWN, FAILS = 5, 1, 0, 99
Loop = tuple[int, int]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("beside")
    (folder / "launcher.o").write_bytes(compile_runtime(Path(__file__).with_name("steps_beside.c")))
    subprocess.run(["cc", "-shared", "launcher.o", "-o", "launcher.so"], check=True, cwd=folder)
    ctypes.CDLL(libinfo.find_libtvm_ffi(), ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(folder / "launcher.so"))


def run(launcher: ctypes.CDLL, steps: Sequence[Sequence[Loop]], threads: int) -> tuple[int, list[list[int]]]:
    """Return the status, and of each loop that ran the numbers of its tasks: the step's and the loop's."""
    numbers = [each for step in steps for each in (len(step), *(number for loop in step for number in loop))]
    noted = (ctypes.c_int * 1000)()
    status = launcher.run_steps(len(steps), (ctypes.c_int * (len(numbers) + 1))(*numbers, -1), threads, noted)
    loops: list[list[int]] = []
    for number in noted:
        if number < 0:
            loops.append([])
        elif number > 0:
            loops[-1].append(number)
    return status, loops


def test_loops_of_steps_are_one(launcher: ctypes.CDLL) -> None:
    steps = [[(2, LARGE)], [(3, LARGE)], [], [(4, UNKNOWN)]]
    assert run(launcher, steps, 9) == (0, [[11] * 2 + [21] * 3 + [41] * 4])  # that of the longest tasks first
    assert run(launcher, steps, 64) == (0, [[41] * 4 + [11] * 2 + [21] * 3])
    assert run(launcher, steps[:1], 64) == (0, [[11] * 2])
    # For as few threads as plans have tasks, one after another.
    assert run(launcher, steps, 8) == run(launcher, steps, 2) == (0, [[11] * 2, [21] * 3, [41] * 4])


def test_small_loops_do_not_wait(launcher: ctypes.CDLL) -> None:
    first, second = [(2, SMALL), (3, LARGE), (4, LARGE)], [(2, SMALL), (5, LARGE), (3, SMALL)]
    together = [[11] * 2, [21] * 2, [12] * 3 + [22] * 5, [23] * 3, [13] * 4]
    assert run(launcher, [first, second], 16) == (0, together)
    # The rest of the last step is alone.
    assert run(launcher, [second, first], 16) == (0, [[11] * 2, [21] * 2, [22] * 3 + [12] * 5, [23] * 4, [13] * 3])


def test_as_many_loops_as_there_is_room_for(launcher: ctypes.CDLL) -> None:
    status, loops = run(launcher, [[(2, LARGE)]] * 11, 64)
    assert status == 0 and [len(each) for each in loops] == [16, 6]
    assert sorted(each for loop in loops for each in loop) == sorted([*range(11, 120, 10)] * 2)


def test_failures_end_all(launcher: ctypes.CDLL) -> None:
    status, loops = run(launcher, [[(2, LARGE), (2, LARGE)], [(3, FAILS)], [(2, LARGE)]], 64)
    assert status == -1 and loops == [[99]]
    # A last step without loops fails: an operator's loop, which waited, does not run, nor another of its step.
    assert run(launcher, [[(2, UNKNOWN), (2, LARGE)], [], []], 64) == (-1, [])


def value(region: Region, size: int = 4) -> Array:
    return Array(Storage(region, size), (size // 4,), "float32")


def test_steps_that_need_nothing_of_each_other() -> None:
    data, filters, a, b, c = map(value, (Region.INPUT, Region.WEIGHTS, Region.ARENA, Region.ARENA, Region.ARENA))
    out, other = value(Region.OUTPUT), value(Region.OUTPUT)
    made = PlanStep("made", (filters, value(Region.PREPARED)))
    steps = [made, made, *(PlanStep("f", (data, filters, each)) for each in (a, b))]
    steps += [PlanStep("g", (a, b, c)), PlanStep("f", (a, out)), PlanStep("f", (out, other))]
    assert firsts_beside(steps, 2) == [0, 1, 2, 2, 4, 4, 6]
    assert [each.beside for each in with_beside(steps, [0, 1, 2, 2, 4, 4, 6])] == [0, 0, 1, 0, 1, 0, 0]
    branch = PlanStep(IF, (data,), passed=1)
    assert firsts_beside([*steps, branch, steps[-1]], 2) == list(range(len(steps) + 2))


def test_no_more_memory_than_a_step_needs() -> None:
    data, out = value(Region.INPUT), value(Region.OUTPUT)
    a, b, c, d = (value(Region.ARENA, size) for size in (8, 4, 4, 4))
    steps = [PlanStep("f", (data, each)) for each in (a, b, c, d)]
    assert firsts_beside([*steps, PlanStep("g", (a, b, c, d, out))], 0) == [0, 0, 0, 0, 4]
    steps[2:2] = [PlanStep("f", (data, b, out))]
    assert firsts_beside([*steps, PlanStep("g", (c, d))], 0) == [0, 1, 2, 2, 4, 5]
