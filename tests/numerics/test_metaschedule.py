"""The spaces as tasks of MetaSchedule, and its databases as records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, ReplayTrace

from tvmconv.accuracy import difference
from tvmconv.errors import ReplayError, SourceError, TargetError, TvmconvWarning
from tvmconv.measuring.race import arrays_of
from tvmconv.metaschedule import Arguments, build, export_database, import_database, tasks
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.contexts import workload_in, workload_of
from tvmconv.tuning.records import Record, Records
from tvmconv.tuning.replay import spaces_of
from tvmconv.tuning.search import Candidate, Search

HOST = Target.parse("host")
PROBLEM = parse_signature("conv2d-n1-i16x8x8-o32x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias")
OTHER = parse_signature("conv2d-n1-i16x8x8-o16x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g16-NXC-XIO-f32")


@derived_object
class Builder(ms.builder.PyBuilder):
    """A builder as a user of TVM may write one."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        results = []
        for each in build_inputs:
            path = self._folder / f"{len(list(self._folder.iterdir()))}.so"
            build(each.mod, each.target).export_library(str(path))
            results.append(ms.builder.BuilderResult(str(path), None))
        return results


@derived_object
class Runner(ms.runner.PyRunner):
    """A runner of the same kind, which checks the answers."""

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        futures = []
        for each in runner_inputs:
            inputs, output, expected = arrays_of(PROBLEM)
            main = tvm.runtime.load_module(each.artifact_path)["main"]
            start = time.perf_counter()
            main(*map(tvm_ffi.from_dlpack, [*inputs, output]))
            seconds = time.perf_counter() - start
            wrong = difference(output, expected, "transform", PROBLEM)
            result = ms.runner.RunnerResult(None, wrong) if wrong else ms.runner.RunnerResult([seconds], None)
            futures.append(ms.runner.RunnerFuture(lambda: True, lambda result=result: result))
        return futures


SMALL = partial(EvolutionarySearch, population_size=4, init_min_unmeasured=2, genetic_num_iters=1)


@pytest.mark.parametrize("strategy", [ReplayTrace, SMALL])
def test_tasks_run_with_components_of_a_users_own(strategy: Any, tmp_path: Path) -> None:
    contexts = tasks([PROBLEM], strategy=strategy, math="strict", seed=1)[:1]
    assert [context.task_name for context in contexts] == [f"{format_signature(PROBLEM)} direct"]
    built, work = tmp_path / "built", tmp_path / "work"
    built.mkdir()
    work.mkdir()
    ms.tune_tasks(
        tasks=contexts,
        task_weights=[1.0],
        work_dir=str(work),
        max_trials_global=4,
        num_trials_per_iter=4,
        builder=Builder(built),
        runner=Runner(),
        cost_model=ms.cost_model.RandomModel(seed=1),
        measure_callbacks=[ms.measure_callback.AddToDatabase()],
    )
    records = Records(tmp_path / "records", shipped=False)
    (record,) = import_database(work, records)
    assert record == records.best(PROBLEM, HOST)
    assert (record.algorithm, record.rank, record.placements, record.trials) == ("direct", 0, 0, 4)
    assert record.candidate in spaces_of(PROBLEM, HOST, "strict")[0]
    # A record of the user's own stays.
    with pytest.warns(TvmconvWarning, match="already, which stays"):
        assert import_database(work, records) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_arguments_are_what_a_built_task_takes(dtype: str, tmp_path: Path) -> None:
    """As LocalRunner asks for them; their shapes are not those of the task's module."""
    problem = PROBLEM.with_(dtype=dtype)
    context = tasks([OTHER, problem], math="strict")[-1]
    asked = [each.as_json() for each in ms.arg_info.ArgInfo.from_prim_func(context.mod["main"])]
    given = Arguments(tasks([OTHER, problem], math="strict"))(tvm.cpu(), asked, 2)
    assert [tuple(each.shape) for each in given[1]] == [problem.data_shape, problem.filter_shape, (32,), (1, 8, 8, 32)]
    build(context.generate_design_space()[0].mod, context.target).export_library(str(tmp_path / "task.so"))
    tvm.runtime.load_module(str(tmp_path / "task.so"))["main"](*given[0])
    assert given[0][-1].numpy().any()


def test_build_is_for_cpus() -> None:
    context = tasks([PROBLEM], "cuda:sm_80")[0]
    with pytest.raises(TargetError, match="modules are built for CPUs, and cuda:sm_80 is a GPU"):
        build(context.generate_design_space()[0].mod, context.target)


@pytest.mark.parametrize("problem", [PROBLEM, OTHER])
def test_every_schedule_has_its_trace(problem: Problem) -> None:
    spaces = spaces_of(problem, HOST)
    defaults = [each for space in spaces for each in space.defaults]
    for candidate in dict.fromkeys([*defaults, *Search(spaces, 0, {}).propose(40)]):
        workload = workload_of(problem, HOST, candidate.algorithm)
        trace = workload.trace(candidate)
        found = workload.candidate(trace)
        # Two sketches may have one schedule (the default of Winograd, and one of those it was taken from): the first is found.
        assert found == candidate or (found.sketch < candidate.sketch and str(workload.trace(found)) == str(trace))
        assert workload_in(workload.module) is workload


def test_records_go_there_and_back(tmp_path: Path) -> None:
    ours, theirs = Records(tmp_path / "ours", shipped=False), Records(tmp_path / "theirs", shipped=False)
    spaces = spaces_of(PROBLEM, HOST)
    for number, space in enumerate(spaces[:2]):
        ours.put([record_of(space.defaults[-1], space.version, number)])
    gone = replace(record_of(Candidate("direct", 99, ()), 1, 0), signature=format_signature(OTHER))
    ours.put([replace(gone, algorithm="grouped", version=spaces_of(OTHER, HOST)[0].version)])
    with pytest.warns(TvmconvWarning, match="is left out"):
        assert export_database(tmp_path / "database", HOST, ours) == 1
    (record,) = import_database(tmp_path / "database", theirs)
    winner = ours.best(PROBLEM, HOST)
    assert winner is not None and record.candidate == winner.candidate and record.seconds == winner.seconds


def test_what_is_no_database_or_no_workload_of_ours(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has no database_workload\.json; give the folder"):
        import_database(tmp_path)
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    function = tirx.PrimFunc([], tirx.Evaluate(tirx.IntImm("int32", 0))).with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": function})
    workload = database.commit_workload(module)
    schedule = Schedule(module)
    for seconds in (1e-6, 1e10):  # the second failed
        database.commit_tuning_record(ms.database.TuningRecord(schedule.trace, workload, [seconds], HOST.tvm(), []))
    with pytest.warns(TvmconvWarning, match=r"none of tvmconv\.metaschedule\.tasks") as caught:
        assert import_database(tmp_path, Records(tmp_path / "records")) == []
    assert len(caught) == 1


def test_a_workload_of_another_version_is_refused() -> None:
    workload = workload_of(PROBLEM, HOST, "direct")
    older = tvm.IRModule({"main": workload.module["main"].with_attr("tvmconv.version", 0)})
    with pytest.raises(ReplayError, match="version 0 of direct, which is at"):
        workload_in(older)
    with pytest.raises(ReplayError, match="of no sketch"):
        workload.candidate(Schedule(workload.module).trace)


def record_of(candidate: Candidate, version: int, rank: int) -> Record:
    where = {"signature": format_signature(PROBLEM), "target": HOST.name, "version": version, "rank": rank}
    what = {"seconds": 1e-5, "default_seconds": None, "trials": 1, "seed": 0, "machine": "m", "date": "2026-01-31"}
    return Record(**asdict(candidate), **where, **what, tools={})
