"""How evenly threads share the loops of default plans, as `benchmarks.many_cores` counts it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tvm import tirx
from tvm.ir import Call

from benchmarks.filters_read import Read
from benchmarks.many_cores import Layer, layer, main, summary
from benchmarks.simulated_cores import LOOP, Simulated, makespan, rows_of
from tvmconv.algorithms.annotations import CUT
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.common.rewrites import find_all
from tvmconv.lowering.compiler import default_choice, schedule
from tvmconv.lowering.cpu.functions import functions_of
from tvmconv.lowering.cpu.lowering import lower
from tvmconv.lowering.cpu.rewrites.tasks.cuts import FUNCTION, LEAST_STORES, PRODUCTS, announce_tasks
from tvmconv.lowering.cpu.rewrites.tasks.together import share_together, steps_of
from tvmconv.lowering.cpu.sharing import divide_tasks, most_useful
from tvmconv.runtime.packed import PACKED_SYMBOL
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

SIGNATURE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g64-NXC-XIO-f32"
PROBLEM = parse_signature(SIGNATURE)


def _loop(tasks: int, rows: int, each: int, cuts: bool = False) -> tirx.For:
    """Return a parallel loop over tasks of some rows, of which each has so many stores."""
    buffer = tirx.decl_buffer((1,), "float32")
    element, row = tirx.Var("element", "int32"), tirx.Var("row", "int32")
    stores = tirx.For(element, 0, each, tirx.ForKind.SERIAL, tirx.BufferStore(buffer, tirx.const(0.0, "float32"), [0]))
    serial = tirx.For(row, 0, rows, tirx.ForKind.SERIAL, stores, annotations={CUT: "rows"} if cuts else {})
    return tirx.For(tirx.Var("task", "int32"), 0, tasks, tirx.ForKind.PARALLEL, serial)


def _copy(source: tirx.Buffer, made: tirx.Buffer, tasks: int = 8) -> tirx.For:
    """Return a parallel loop whose tasks are long, and copy one array to another."""
    task, time = tirx.Var("task", "int32"), tirx.Var("time", "int32")
    store = tirx.BufferStore(made, source[task], [task])
    body = tirx.For(time, 0, LEAST_STORES, tirx.ForKind.SERIAL, store)
    return tirx.For(task, 0, tasks, tirx.ForKind.PARALLEL, body)


def test_loops_wait_for_what_they_need() -> None:
    data, a, b, out = (tirx.decl_buffer((1 << 23,), "float32", name) for name in ("data", "a", "b", "out"))
    phases = [_copy(data, a), _copy(a, out), _copy(data, b, 3), _copy(b, out, 16)]
    assert steps_of(phases) == [[phases[0], phases[2]], [phases[1], phases[3]]]
    again = [_copy(data, a), _copy(a, out), _copy(data, a), _copy(a, out)]
    assert steps_of(again) == [[loop] for loop in again]  # the third writes what the second reads
    direct = [_copy(data, out, 16), _copy(data, out, 3)]
    assert steps_of([_copy(data, a), _copy(a, out), *direct])[1][1:] == direct
    small = tirx.decl_buffer((1 << 20,), "float32", "small")
    filled = [_copy(data, small), _copy(data, small, 3)]  # the first stores as much as there is
    assert steps_of(filled) == [[loop] for loop in filled]
    assert steps_of(phases[:1]) == [phases[:1]] and steps_of([]) == []


def test_loops_share_threads_where_they_end_a_function() -> None:
    data, out = (tirx.decl_buffer((1 << 23,), "float32", name) for name in ("data", "out"))
    loops = [_copy(data, out), _copy(data, out, 3)]
    joined = str(share_together(tirx.SeqStmt(loops)))
    assert joined.count("T.parallel") == 3  # one of both, and each
    last = tirx.Evaluate(tirx.call_extern("int32", "after"))
    assert str(share_together(tirx.SeqStmt([*loops, last]))).count("T.parallel") == 2
    assert Layer(PROBLEM, "direct", tuple(loops)).efficiency(16) == pytest.approx(11 / 16)
    assert Layer(PROBLEM, "direct", tuple(loops)).efficiency(8) == pytest.approx(11 / 16)


def test_efficiency_is_work_by_the_busiest_threads_time() -> None:
    found = Layer(PROBLEM, "direct", (_loop(8, 1, 100), _loop(3, 1, 100)))
    assert found.efficiency(1) == 1
    assert found.efficiency(2) == pytest.approx(1100 / (2 * (400 + 200)))
    assert found.efficiency(16) == pytest.approx(1100 / (16 * (100 + 100)))
    assert summary([found])[0] == ["2", "0.92", "0.92", "0"]


def test_tasks_are_cut_for_many_threads() -> None:
    loop = _loop(8, 6, LEAST_STORES, cuts=True)
    assert divide_tasks(loop, 8) == (8, 6 * LEAST_STORES)
    assert divide_tasks(loop, 16) == (16, 3 * LEAST_STORES)
    assert divide_tasks(loop, 64) == (48, LEAST_STORES)
    size = LEAST_STORES // 4 - 1000  # work for 15.8 pieces: rounded down, its 8 tasks would stay whole
    assert divide_tasks(_loop(8, 8, size, cuts=True), 64) == (16, 4 * size)


def test_tasks_are_announced_by_32_bits() -> None:
    """Functions between kernels may count by 64."""
    task, out = tirx.Var("task", "int64"), tirx.decl_buffer((16,), "float32", "out")
    store = tirx.BufferStore(out, tirx.const(0.0, "float32"), [task])
    loop = tirx.For(task, 0, tirx.const(16, "int64"), tirx.ForKind.PARALLEL, store)
    (asked,) = find_all(announce_tasks(loop), Call)
    assert [int(each) for each in asked.args[1:]] == [16, 1, 0, 0]
    assert {str(each.ty.dtype) for each in asked.args[1:]} == {"int32"}


@pytest.mark.parametrize(("pixels", "products"), [(1, 1024 * 1152 * PRODUCTS), (2, 2 * 1024 * 1152)])
def test_tasks_of_one_pixel_are_large(pixels: int, products: int) -> None:
    """Each element of the filter comes from L3 or memory for one product."""
    problem = parse_signature(f"conv1d-n1-i1024x{pixels}-o1152x{pixels}-k1-s1-d1-p0_0-g1-NXC-XIO-f32")
    target = Target.parse("x86-64-v3")
    definition, scheduled = schedule(problem, target, default_choice(problem, target), EntryPoints.PACKED)
    functions = functions_of(lower(scheduled.mod, definition, EntryPoints.PACKED, last="tasks").module)
    asked = [call for call in find_all(functions[PACKED_SYMBOL].body, Call) if call.args[0] == FUNCTION]
    assert sum(int(each.args[4]) for each in asked) == products // LEAST_STORES


def test_threads_that_gain() -> None:
    assert most_useful([_loop(1, 1, 100)]) == 1
    assert most_useful([_loop(8, 1, 100)]) == 8
    assert most_useful([_loop(8, 6, LEAST_STORES, cuts=True)]) == 64


def test_loops_are_those_of_the_default_plan() -> None:
    target = Target.parse("x86-64-v3")
    assert isinstance(target, CpuTarget)
    tasks = [divide_tasks(loop, 1) for loop in layer(PROBLEM, target).loops]
    assert all(count > 0 for count, _ in tasks)
    assert sum(count * size for count, size in tasks) >= 64 * 56 * 56


def test_a_line_for_each_number_of_threads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([SIGNATURE, "--target", "x86-64-v3", "--list", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:8]] == ["2", "4", "8", "16", "32", "64"]
    assert re.search(rf"{SIGNATURE} +\w+ +\d+:\d+", lines[-1])


def test_threads_take_the_next_task_when_they_are_done() -> None:
    assert makespan([3, 1, 1, 1], 2) == 3
    assert makespan([1, 1, 1, 3], 2) == 4
    assert makespan([2, 2], 64) == 2
    assert makespan([], 4) == 0
    call = Simulated([(2, [3, 1, 1, 1]), (1, [5])], between=7)
    assert call.makespan() == 3 + 5 + 7
    assert call.makespan(wake=0.5) == pytest.approx(3 + 5 + 7 + 2 * LOOP + 0.5)
    assert call.limit(2, wake=0.5) == pytest.approx(3.5 + 3 + 7 + 2 * LOOP)
    assert call.limit(1, wake=0.5) == pytest.approx(6 + 5 + 7 + 2 * LOOP)
    assert call.shared(2) == (6 + 5) / 2 and call.longest() == 3 + 5 + 7
    call = replace(call, reads=[Read([frozenset()] * len(times), times) for _, times in call.loops])
    other = Simulated([(2, [2, 2, 1, 1]), (1, [6])], 8, [Read(call.reads[0].parts, [9, 0, 9, 9]), call.reads[1]])
    least = call.least(other)
    assert (least.loops, least.between, least.reads[0].cold) == ([(2, [2, 1, 1, 1]), (1, [5])], 7, [3, 0, 1, 1])
    cells = [row[-2:] for row in rows_of("net", [{2: call}], 16.4)]
    assert cells == [
        ["15", "16"],
        ["37", ""],
        ["15", ""],
        ["0", ""],
        ["16", ""],
        ["13", ""],
        ["16", ""],
        ["14", ""],
        ["6", ""],
        ["15", ""],
    ]
