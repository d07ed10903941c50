"""The tuner: what it measures, keeps, rejects and survives; and a real problem tuned, recorded and replayed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fake_candidates as fake
import pytest
from fake_candidates import quiet_placements

from benchmarks import metaschedule_search
from tvmconv.cli import main
from tvmconv.cli.tune import progress_text
from tvmconv.errors import (
    ReplayError,
    TargetError,
    TuningError,
    TvmconvWarning,
    UnsupportedMachineError,
)
from tvmconv.measuring.measure import Check, measure
from tvmconv.measuring.peak import Peak
from tvmconv.measuring.placements import PLACEMENTS
from tvmconv.measuring.race import Built
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support.workers import WorkerDiedError
from tvmconv.targets.target import Target
from tvmconv.tuning import drive, evaluate, tuner, turns
from tvmconv.tuning.problem_tuner import ProblemTuner, Proposes, Session
from tvmconv.tuning.records import Records
from tvmconv.tuning.replay import compile_candidate, spaces_of
from tvmconv.tuning.search import Candidate, first_of

SIGNATURE = "conv2d-n1-i16x8x8-o32x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"


@pytest.fixture(autouse=True)
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test waits until two threads have a processor each: others may be at work on all of them."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with quiet_placements(len(PLACEMENTS)):
        yield


@pytest.mark.smoke
def test_the_defaults_are_measured_first_and_the_fastest_wins(tmp_path: Path) -> None:
    states: list[turns.TuneProgress] = []
    result = fake.tune(tmp_path, fake.good, trials=20, progress=states.append)  # all there are
    lines = fake.trial_lines(tmp_path)
    assert [(line["algorithm"], line["decisions"]) for line in lines[:2]] == [("direct", [0, 4]), ("grouped", [0, 6])]
    assert result.record is not None
    assert result.record.candidate.decisions == (fake.RIGHT, 1)
    assert result.record.default_seconds == pytest.approx(4 * fake.STEP_SECONDS, rel=0.3)
    assert result.gain == pytest.approx(4, rel=0.3)
    assert (result.trials, result.failures) == (20, ())
    assert [state.trials for state in states] == list(range(1, 21))
    assert states[0].default_seconds == states[0].best_seconds
    assert states[-1].remaining == 0
    # The other algorithm's best is kept as well, as it beats the default.
    kept = {record["algorithm"]: record for record in map(json.loads, (tmp_path / "fake" / "records.jsonl").open())}
    assert kept.keys() == {"direct", "grouped"}
    assert all(record["seconds"] <= record["default_seconds"] for record in kept.values())


def test_a_candidate_that_is_fast_in_one_placement_loses(tmp_path: Path) -> None:
    result = fake.tune(tmp_path, fake.fickle, trials=4)  # all there are
    lines = fake.trial_lines(tmp_path)
    assert min(lines, key=lambda line: line["seconds"])["decisions"][0] == fake.FICKLE
    assert result.record is not None
    assert result.record.decisions == (fake.RIGHT, 3)
    assert result.gain == pytest.approx(4 / 3, rel=0.1)


def test_the_default_stays_when_others_disturbed_the_race(tmp_path: Path) -> None:
    with quiet_placements(3), pytest.warns(TvmconvWarning, match="during 5 of 8 parts"):
        result = fake.tune(tmp_path, fake.fickle, trials=4)
    assert result.record is not None
    assert (result.record.decisions, result.record.placements) == ((fake.RIGHT, 4), 3)
    # It races again, without a new trial.
    result = fake.tune(tmp_path, fake.fickle, trials=4)
    assert len(fake.trial_lines(tmp_path)) == 4
    assert result.record is not None
    assert (result.record.decisions, result.record.placements) == ((fake.RIGHT, 3), len(PLACEMENTS))


def test_running_again_continues_and_measures_nothing_twice(tmp_path: Path) -> None:
    fake.tune(tmp_path, fake.good, trials=6)
    first = fake.trial_lines(tmp_path)
    assert len(first) == 6
    assert fake.tune(tmp_path, fake.good, trials=6).trials == 6
    assert fake.trial_lines(tmp_path) == first
    result = fake.tune(tmp_path, fake.good, trials=100)  # the space has 20
    lines = fake.trial_lines(tmp_path)
    assert result.trials == len(lines) == 20
    assert lines[:6] == first
    assert len({(line["algorithm"], *line["decisions"]) for line in lines}) == 20


def test_what_ships_does_not_stand_for_a_race_of_this_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = fake.tune(tmp_path / "shipped", fake.good, trials=6).record
    monkeypatch.setattr("tvmconv.tuning.records.shipped_folder", lambda: tmp_path / "shipped")
    again = fake.tune(tmp_path / "ours", fake.good, trials=6).record
    assert shipped is not None and again is not None and shipped.trials == again.trials
    assert Records(tmp_path / "ours", shipped=False).best(fake.PROBLEM, fake.TARGET) == again


def test_a_seed_gives_its_sequence(tmp_path: Path) -> None:
    """Always the same: see test_search.py."""
    sequences = []
    for seed in (0, 1):
        fake.tune(tmp_path / str(seed), fake.good, trials=8, seed=seed)
        sequences.append([(line["algorithm"], line["decisions"]) for line in fake.trial_lines(tmp_path / str(seed))])
    assert sequences[0] != sequences[1]


def test_bad_candidates_are_rejected_and_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "MEASURE_SECONDS", 8.0)
    with pytest.warns(TvmconvWarning) as caught:
        result = fake.tune(tmp_path, fake.bad, trials=7)
    statuses = {tuple(line["decisions"]): line["status"] for line in fake.trial_lines(tmp_path)}
    of_kind = {
        fake.RIGHT: "ok", fake.WRONG: "wrong", fake.CRASHES: "crashed",
        fake.HANGS: "timeout", fake.FAILS: "failed", fake.INCOMPLETE: "wrong", fake.BREAKS: "crashed",
    }  # fmt: skip
    assert statuses == {(kind, 1): status for kind, status in of_kind.items()}
    messages = [str(warning.message) for warning in caught]
    assert sum("is rejected, wrong" in message and "outputs differ" in message for message in messages) == 2
    assert sum("is rejected, crashed" in message and "SIGABRT" in message for message in messages) == 2
    assert result.record is not None
    assert result.record.decisions[0] == fake.RIGHT
    assert len(result.failures) == 6
    # They are not tried again either.
    assert fake.tune(tmp_path, fake.bad, trials=7).trials == len(fake.trial_lines(tmp_path)) == 7


def test_nothing_is_recorded_when_nothing_works(tmp_path: Path) -> None:
    with pytest.warns(TvmconvWarning, match="no candidate works"):
        result = fake.tune(tmp_path, fake.hopeless, trials=4)
    assert (result.record, result.gain, len(result.failures)) == (None, None, 4)
    assert Records(tmp_path).best(fake.PROBLEM, fake.TARGET) is None


def test_a_full_disk_is_no_candidates_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = evaluate.Sandbox.call

    def full(self: evaluate.Sandbox[Any, Any], task: Any, seconds: float) -> Any:
        if isinstance(task, evaluate.Compile):
            raise WorkerDiedError(f"LLVM ERROR: IO failure on output stream: {os.strerror(errno.ENOSPC)}")
        return call(self, task, seconds)

    monkeypatch.setattr(evaluate.Sandbox, "call", full)
    with pytest.raises(OSError, match="No space left on device, in "):
        fake.tune(tmp_path, fake.good, trials=4)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_an_interruption_before_the_first_trial_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: ProblemTuner, count: int) -> list[Candidate]:
        raise KeyboardInterrupt

    monkeypatch.setattr(ProblemTuner, "propose", interrupted)
    with pytest.warns(TvmconvWarning, match="no candidate was measured"), pytest.raises(KeyboardInterrupt):
        fake.tune(tmp_path, fake.good, trials=4)


def test_an_interruption_within_tvm_waits_for_our_code() -> None:
    """An exception raised by a signal between callbacks ended the process: TVM's C++ expects none there."""
    bench = drive._Bench(Mock(), {})
    reached = []
    with pytest.raises(KeyboardInterrupt), bench.raising():
        signal.raise_signal(signal.SIGINT)
        reached.append("TVM's")
        with bench.keeping():
            reached.append("ours")
    assert reached == ["TVM's"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupted_run_keeps_its_measurements_and_its_best(tmp_path: Path) -> None:
    script = (
        f"import sys, pathlib; sys.modules['torch'] = None; sys.path.insert(0, {str(Path(fake.__file__).parent)!r})\n"
        f"import fake_candidates; fake_candidates.tune_until_interrupted(pathlib.Path({str(tmp_path)!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 10:
            process.send_signal(signal.SIGINT)
            break
    _, errors = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    before = fake.trial_lines(tmp_path)
    assert 10 <= len(before) < 400
    record = Records(tmp_path).best(fake.PROBLEM, fake.TARGET)
    assert record is not None
    assert record.trials == len(before)
    # A line cut short by a crash spoils neither the others nor the next.
    path = tmp_path / "fake" / "trials" / f"{format_signature(fake.PROBLEM)}.jsonl"
    path.write_text(path.read_text() + '{"algorithm": "dir')
    with pytest.warns(TvmconvWarning, match=f"line {len(before) + 1} is ignored"):
        result = fake.tune(tmp_path, fake.large, trials=len(before) + 2)
    assert result.trials == len(before) + 2
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines[: len(before)]] == before
    assert len(lines) == len(before) + 3
    assert {json.loads(line)["status"] for line in lines[len(before) + 1 :]} == {"ok"}


def test_seconds_limit_a_run(tmp_path: Path) -> None:
    result = fake.tune(tmp_path, fake.large, trials=None, seconds=1)
    assert 1 <= result.trials < 400
    assert result.record is not None


@pytest.mark.parametrize("scheduler", ["gradient", "round-robin"])
def test_problems_for_which_there_is_no_time_are_the_next_run_s(scheduler: str, tmp_path: Path) -> None:
    tuned = []
    for _ in range(2):
        with pytest.warns(TvmconvWarning, match="1e-06 s were enough for 1 of 2 problems; tune again to go on"):
            result = fake.tune(tmp_path, fake.two, None, 1e-6, problems=[fake.PROBLEM, fake.OTHER], scheduler=scheduler)
        assert result.record is not None and result.trials == turns.LEAST_TURN
        tuned.append(result.problem)
    assert tuned == [fake.PROBLEM, fake.OTHER]


@pytest.mark.parametrize(
    ("scheduler", "often", "order"),
    [("gradient", 1, "pssssppp"), ("gradient", 40, "pspppsss"), ("round-robin", 1, "pspspsps")],
)
def test_who_has_the_next_turn(
    scheduler: str, often: int, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where time can be gained: of the slow problem, or of a quick one that a model has often; or in turns."""
    monkeypatch.setattr(turns, "BATCH", 2)
    asked: list[str] = []
    propose = turns.Turns.propose

    def noted(self: turns.Turns) -> Any:
        asked.append("p" if self.problem == fake.PROBLEM else "s")
        return propose(self)

    monkeypatch.setattr(turns.Turns, "propose", noted)
    problems = [fake.PROBLEM] * often + [fake.OTHER]
    result = fake.tune(tmp_path, fake.two, trials=6, problems=problems, scheduler=scheduler)
    assert result.trials == 6
    # Three turns each, and a fourth in which there is nothing left.
    assert "".join(asked) == order


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"trials": 0}, TuningError),
        ({"seconds": 0.0}, TuningError),
        ({"scheduler": "random"}, TuningError),
        ({"target": "no-such-cpu"}, TargetError),
    ],
)
def test_bad_budgets_and_targets(arguments: dict, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        tuner.tune([fake.PROBLEM], records=Records(tmp_path), **arguments)


def test_a_target_that_this_machine_cannot_run_is_refused(tmp_path: Path) -> None:
    other = replace(fake.TARGET, features=("avx9000",))
    with pytest.raises(UnsupportedMachineError, match="avx9000"):
        tuner.tune([fake.PROBLEM], other, trials=1, records=Records(tmp_path))


def test_real_problems_are_tuned_recorded_and_replayed(tmp_path: Path) -> None:
    target, records = Target.parse("host"), Records(tmp_path / "records")
    in_place = parse_signature(SIGNATURE)
    problems = [in_place, in_place.with_(filter_format="OIX")]  # the other's filter is prepacked
    # The transforms' candidates take a second each to compile: test_trial_library.py has them.
    results = tuner.tune([*problems, in_place.with_(batch=0)], trials=3, math="strict", records=records)
    assert [result.problem for result in results] == problems  # the empty problem has nothing to tune
    for number, result in enumerate(results):
        assert result.failures == () and result.record is not None
        assert result.record == records.best(result.problem, target) and result.record.algorithm == "direct"
        library = tmp_path / f"{number}.so"
        kernel = compile_candidate(result.problem, target, result.record.candidate, library)
        assert kernel.algorithm == result.record.algorithm
        assert measure(Check(result.problem, kernel.numerical_class, Built(str(library)))).seconds is not None


@pytest.mark.parametrize("strategy", ["replay-trace", "evolutionary"])
def test_another_search_proposes(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "BATCH", 4)
    monkeypatch.setattr(metaschedule_search, "POPULATION", 4)
    problem, target, records = parse_signature(SIGNATURE), Target.parse("host"), Records(tmp_path)
    spaces = spaces_of(problem, target, "strict")
    first = first_of(spaces, ())
    wanted = len(first) + 5

    def search(problem: Problem, *known: Any) -> Proposes:
        return metaschedule_search.MetaScheduleSearch(problem, target, known[0], strategy, "random", 0, *known[1:])

    with evaluate.Evaluator(1, 1) as evaluator:
        session = Session(evaluator, target, records, "here", 0, "strict", search=search)
        for trials in (wanted - 2, wanted) if strategy == "evolutionary" else (wanted,):  # the second goes on
            (result,) = tuner.tune_all(session, [problem], trials, None, None)
            assert result.trials == trials and not result.failures and result.record is not None
    (path,) = tmp_path.glob("*/trials/*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    measured = [Candidate(line["algorithm"], line["sketch"], tuple(line["decisions"])) for line in lines]
    assert measured[: len(first)] == first
    assert len(set(measured)) == wanted and all(any(each in space for space in spaces) for each in measured)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", SIGNATURE, "--trials", "2", "--math", "strict", "--records", str(tmp_path)]
    assert main([*command, "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)
    record = Records(tmp_path).best(parse_signature(SIGNATURE), Target.parse("host"))
    assert record is not None and record.algorithm == "direct"
    assert (facts["signature"], facts["trials"], facts["failures"]) == (SIGNATURE, 2, 0)
    assert (facts["seconds"], facts["default_seconds"]) == (record.seconds, record.default_seconds)
    assert main(command) == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[1].split()[:3] == [SIGNATURE, record.algorithm, "2"]
    assert output.err == ""
    assert main([*command, "--target", "z80"]) == 2
    assert "z80" in capsys.readouterr().err


def test_the_progress_line() -> None:
    problem = parse_signature(SIGNATURE)
    seconds = problem.flops / 50e9
    state = turns.TuneProgress(problem, 3, 20, 12, 64, seconds, 2 * seconds, 10.0, 3725.0)
    assert progress_text(state, Peak(100e9, 200e9, 1e10, 1e11, 1)) == (
        f"12/64 trials, 1:02:05 left, best {seconds * 1e6:.1f} us, 50.0 GFLOP/s (50% of peak), {SIGNATURE}"
    )
    bf16 = replace(state, problem=problem.with_(dtype="bf16"))
    assert "(25% of peak)" in progress_text(bf16, Peak(100e9, 200e9, 1e10, 1e11, 1))
    nothing = replace(state, wanted=None, best_seconds=None, default_seconds=None, remaining=65.0)
    assert progress_text(nothing, None) == f"12 trials, 1:05 left, nothing works yet, {SIGNATURE}"


def test_a_default_replays_where_a_packed_filter_has_other_options(tmp_path: Path) -> None:
    """7 vectors in place are 8 packed, whose rows divide into other parts."""
    problem = parse_signature("conv2d-n1-i96x56x56-o56x56x56-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16")
    target = Target.parse("x86-64-v3")
    (space,) = (each for each in spaces_of(problem, target, "strict") if each.algorithm == "direct")
    compile_candidate(problem, target, space.defaults[0], tmp_path / "kernel.so")


def test_a_record_that_does_not_replay_is_an_error(tmp_path: Path) -> None:
    problem, target = parse_signature(SIGNATURE), Target.parse("host")
    right = spaces_of(problem, target, "strict")[0].defaults[0]
    for wrong in (
        replace(right, sketch=99),
        replace(right, decisions=right.decisions[1:]),
        replace(right, decisions=(12345, *right.decisions[1:])),
        Candidate("no-such-algorithm", 0, ()),
    ):
        with pytest.raises(ReplayError):
            compile_candidate(problem, target, wrong, tmp_path / "kernel.so")
