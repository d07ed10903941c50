"""A fleet on the loopback: what servers share, refuse and survive. The candidates are made up, as in the tuner's tests."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_candidates as fake
import pytest
import test_cuda_measure as gpu
from fake_cuda import compile_driver

from tvmconv.cli import main
from tvmconv.errors import TuningError, TvmconvWarning, UnsupportedMachineError
from tvmconv.fleet import fleet as fleets
from tvmconv.fleet import pool
from tvmconv.fleet.fleet import Fleet
from tvmconv.fleet.protocol import PROTOCOL
from tvmconv.fleet.tracker import Tracker
from tvmconv.isa.machine import model_name
from tvmconv.measuring.placements import PLACEMENTS
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning import evaluate
from tvmconv.tuning.evaluate import Evaluator
from tvmconv.tuning.problem_tuner import Session, TuneResult
from tvmconv.tuning.records import Records
from tvmconv.tuning.tuner import tune_all
from tvmconv.tuning.turns import TuneProgress

pytest.importorskip("tornado", reason="TVM's tracker needs it: tvmconv[fleet]")
# What the extras bring, but TVM.
ABSENT = ("cloudpickle", "filelock", "onnx", "onnxruntime", "openvino", "psutil", "rich", "tomli", "torch", "tornado")
keys = (f"key{number}" for number in itertools.count())


class Tower:
    """A tracker, and servers on demand."""

    def __init__(self) -> None:
        program = "import sys; sys.modules['torch'] = None; import fleet_servers; fleet_servers.main()"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([sys.executable, "-c", program], env=environment, text=True, **pipes)
        self.tracker = self._ask("tracker")[1]

    def start(self, key: str, *kinds: str) -> list[int]:
        """Start servers; return their processes once the tracker has them."""
        before = self.count(key)
        processes = [int(self._ask(f"{kind} {key}")[0]) for kind in kinds]
        wait_until(lambda: self.count(key) == before + len(kinds))
        return processes

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, line: str) -> list[str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().split()

    def count(self, key: str) -> int:
        with Tracker(self.tracker) as tracker:
            return len(tracker.servers().get(key, []))


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    """Races count, whatever else this machine does."""
    with fake.quiet_placements(len(PLACEMENTS)):
        yield


@pytest.fixture(scope="module")
def tower() -> Iterator[Tower]:
    tower = Tower()
    yield tower
    tower.close()


@pytest.fixture(scope="module")
def pair(tower: Tower) -> str:
    """The key of two good servers."""
    tower.start("pair", "good", "good")
    return "pair"


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def tune(
    folder: Path, fleet: Fleet, space: Any, trials: int, progress: Callable[[TuneProgress], None] | None = None
) -> TuneResult:
    """Tune as `fake_candidates.tune` does, on servers."""
    with Evaluator(jobs=1, threads=1, work=space, servers=fleet) as evaluator:
        session = Session(evaluator, fleet.target, Records(folder), fleet.machine, 0)
        return tune_all(session, [fake.PROBLEM], trials, None, progress)[0]


def tune_forever(folder: Path, tracker: str, key: str) -> None:
    """Tune until killed, printing the number of trials."""
    tune(folder, Fleet(tracker, key, fake.TARGET), fake.large, 400, lambda state: print(state.trials, flush=True))


def test_two_servers_share_the_work_and_find_what_one_machine_does(tower: Tower, pair: str, tmp_path: Path) -> None:
    fleet = Fleet(tower.tracker, pair, fake.TARGET)
    wait_until(lambda: fleet.size == 2)
    result = tune(tmp_path, fleet, fake.good, trials=20)  # all there are
    lines = fake.trial_lines(tmp_path)
    assert len({(line["algorithm"], *line["decisions"]) for line in lines}) == 20 == len(lines)
    assert {(line["status"], line["machine"]) for line in lines} == {("ok", fake.MACHINE)}
    assert result.record is not None
    assert (result.record.decisions, result.record.machine) == ((fake.RIGHT, 1), fake.MACHINE)
    assert len(fleet.measured) == 2 and sum(fleet.measured.values()) == 20 + 1  # the race


def test_bad_candidates_are_rejected_and_survived(
    tower: Tower, pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "MEASURE_SECONDS", 10.0)
    fleet = Fleet(tower.tracker, pair, fake.TARGET)
    wait_until(lambda: fleet.size == 2)
    with pytest.warns(TvmconvWarning, match="is rejected"):
        result = tune(tmp_path, fleet, fake.bad, trials=7)
    of_kind = {
        fake.RIGHT: "ok", fake.WRONG: "wrong", fake.CRASHES: "crashed",
        fake.HANGS: "timeout", fake.FAILS: "failed", fake.INCOMPLETE: "wrong", fake.BREAKS: "crashed",
    }  # fmt: skip
    assert {line["decisions"][0]: line["status"] for line in fake.trial_lines(tmp_path)} == of_kind
    assert result.record is not None and result.record.decisions[0] == fake.RIGHT


def test_one_that_is_killed_loses_its_work_and_one_that_comes_later_gets_some(tower: Tower, tmp_path: Path) -> None:
    key = next(keys)
    doomed, _ = tower.start(key, "slow", "slow")
    fleet = Fleet(tower.tracker, key, fake.TARGET)
    wait_until(lambda: fleet.size == 2)

    def progress(state: TuneProgress) -> None:
        if state.trials == 3:
            os.kill(doomed, signal.SIGKILL)
            wait_until(lambda: fleet.size == 1)
        if state.trials == 6:
            tower.start(key, "slow")
            wait_until(lambda: fleet.size == 2)

    with pytest.warns(TvmconvWarning, match=r"server 127.0.0.1:\d+ is lost: "):
        result = tune(tmp_path, fleet, fake.good, 12, progress)
    assert [line["status"] for line in fake.trial_lines(tmp_path)] == ["ok"] * 12
    assert result.record is not None and result.record.trials == 12
    assert len(fleet.measured) >= 2 and sum(fleet.measured.values()) == 12 + 1


def test_one_that_hangs_loses_its_work(tower: Tower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LOST_SECONDS", 5.0)
    key = next(keys)
    frozen, _ = tower.start(key, "slow", "slow")
    fleet = Fleet(tower.tracker, key, fake.TARGET)
    wait_until(lambda: fleet.size == 2)
    (session,) = (
        int(each) for file in Path(f"/proc/{frozen}/task").glob("*/children") for each in file.read_text().split()
    )

    def progress(state: TuneProgress) -> None:
        if state.trials == 3:
            os.kill(session, signal.SIGSTOP)

    with pytest.warns(TvmconvWarning, match="is lost: nothing came from it for 5 s"):
        tune(tmp_path, fleet, fake.good, 12, progress)
    assert [line["status"] for line in fake.trial_lines(tmp_path)] == ["ok"] * 12
    os.kill(session, signal.SIGKILL)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("liar", "its answer is invalid: it is -1.0; it must be a number above 0"),
        ("faulty", "a kernel that 127.0.0.1:.* found right was wrong there"),
    ],
)
def test_one_that_answers_wrongly_loses_its_work(tower: Tower, tmp_path: Path, kind: str, why: str) -> None:
    key = next(keys)
    tower.start(key, "slow", kind)
    fleet = Fleet(tower.tracker, key, fake.TARGET)
    wait_until(lambda: fleet.size == 2)
    with pytest.warns(TvmconvWarning, match=f"is refused: {why}"):
        result = tune(tmp_path, fleet, fake.steady, trials=8)
    assert result.trials == 8 and not result.failures


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("other", "it is another machine, and the other servers under key .* is fake machine"),
        ("old", "it speaks version 0 of the protocol"),
    ],
)
def test_one_that_comes_later_may_be_refused(tower: Tower, kind: str, why: str) -> None:
    key = next(keys)
    tower.start(key, "good")
    with (
        Fleet(tower.tracker, key, fake.TARGET) as fleet,
        pytest.warns(TvmconvWarning, match=f"is refused: {why}") as caught,
    ):
        tower.start(key, kind)
        wait_until(lambda: bool(caught.list))
        assert fleet.size == 1


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("old", f"speaks version 0 of the protocol .tvmconv 0.0.1., and this tvmconv .* version {PROTOCOL}"),
        ("lesser", "its CPU lacks avx2"),
        ("foreign", "it is not a tvmconv server; start it with tvmconv rpc-server"),
    ],
)
def test_a_key_without_a_server_that_can_be_used(tower: Tower, kind: str, why: str) -> None:
    key = next(keys)
    tower.start(key, kind)
    with (
        pytest.warns(TvmconvWarning, match="is refused"),
        pytest.raises(UnsupportedMachineError, match=f"no server under key {key} can be used: 127.0.0.1:.*{why}"),
    ):
        Fleet(tower.tracker, key, fake.TARGET)


def test_wrong_addresses_and_keys(tower: Tower, pair: str) -> None:
    with pytest.raises(TuningError, match=r"has no server under key pear; it has .*pair \(2\).*tvmconv rpc-server"):
        Fleet(tower.tracker, "pear")
    with pytest.raises(TuningError, match="the key is 'a b'"):
        Fleet(tower.tracker, "a b")
    with pytest.raises(TuningError, match="it must be HOST:PORT"):
        Fleet("localhost", pair)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    with pytest.raises(TuningError, match=f"no tracker answers at {address}: Connection refused"):
        Fleet(address, pair)


def test_no_more_servers_than_asked_for(tower: Tower, pair: str) -> None:
    with Fleet(tower.tracker, pair, fake.TARGET, devices=1) as one, Fleet(tower.tracker, pair, devices=1) as other:
        assert (one.size, other.size) == (1, 1)
        assert other.target.kind == "cpu" and other.target.features


def test_a_tuner_that_is_killed_frees_the_servers_and_goes_on(tower: Tower, pair: str, tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; sys.modules['torch'] = None\n"
        f"sys.path[:0] = [{str(Path(fake.__file__).parent)!r}, {str(Path(__file__).parent)!r}]\n"
        f"import test_fleet; test_fleet.tune_forever(pathlib.Path({str(tmp_path)!r}), {tower.tracker!r}, {pair!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 10:
            process.kill()
            break
    process.communicate(timeout=600)
    before = fake.trial_lines(tmp_path)
    assert len(before) >= 10
    fleet = Fleet(tower.tracker, pair, fake.TARGET)
    wait_until(lambda: fleet.size == 2)
    result = tune(tmp_path, fleet, fake.large, trials=len(before) + 4)
    assert fake.trial_lines(tmp_path)[: len(before)] == before and result.trials == len(before) + 4


def test_without_servers_tuning_ends_and_keeps_what_was_measured(
    tower: Tower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets, "LONELY_SECONDS", 1.0)
    key = next(keys)
    (doomed,) = tower.start(key, "slow")

    def progress(state: TuneProgress) -> None:
        if state.trials == 3:
            os.kill(doomed, signal.SIGKILL)

    with (
        pytest.warns(TvmconvWarning, match="the final race failed, so nothing is recorded: no server has been left"),
        pytest.raises(TuningError, match=f"no server has been left under key {key} for 1 s; what was measured is kept"),
    ):
        tune(tmp_path, Fleet(tower.tracker, key, fake.TARGET), fake.good, 20, progress)
    assert len(fake.trial_lines(tmp_path)) == 3


@pytest.fixture(scope="module")
def command(tower: Tower, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start `tvmconv rpc-server`, under the key `command`, on a machine with a fake GPU; check its description, and its end.

    Both are checked here, because parallel workers run tests in any order. Like a board, the machine has the run-time half and TVM,
    but nothing else of the extras, and no C compiler.
    """
    absent = tmp_path_factory.mktemp("absent")
    for name in ABSENT:
        (absent / f"{name}.py").write_text("raise ModuleNotFoundError(__name__)\n")
    driver = compile_driver(tmp_path_factory.mktemp("driver"))
    script = "from tvmconv.cli import main; raise SystemExit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "rpc-server", "--tracker", tower.tracker, "--key", "command", "--threads", "1"],
        stderr=subprocess.PIPE,
        env={
            **os.environ,
            "PATH": str(absent),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(absent), *sys.path])),
            "LD_LIBRARY_PATH": os.pathsep.join([str(driver.parent), os.environ.get("LD_LIBRARY_PATH", "")]),
        },
        text=True,
    )
    wait_until(lambda: tower.count("command") == 1)
    yield
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "tvmconv" in errors and f"(protocol {PROTOCOL}) measures at 127.0.0.1:" in errors and "avx2" in errors
    assert "runs whatever it is sent" in errors and "Traceback" not in errors


def test_a_server_ends_while_a_session_does() -> None:
    script = """
import shutil, signal
from tvm.support.utils import TempDirectory
# As the thread that listens does when a session ends.
shutil.rmtree = lambda folder, ignore_errors: TempDirectory.TEMPDIRS.discard(folder)
from tvmconv.fleet import server
TempDirectory.TEMPDIRS.update({"one", "two"})
server._end(signal.SIGINT, None)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 130


def test_the_command_line_tunes_for_a_lesser_cpu(
    tower: Tower, command: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signature = "conv1d-n1-i4x8-o8x8-k1-s1-d1-p0_0-g1-NXC-XIO-f32"
    arguments = ["tune", signature, "--target", "x86-64-v3", "--trials", "2", "--records", str(tmp_path)]
    assert main([*arguments, "--tracker", tower.tracker, "--key", "command", "--json"]) == 0
    output = capsys.readouterr()
    (facts,) = json.loads(output.out)
    record = Records(tmp_path, shipped=False).best(parse_signature(signature), Target.parse("x86-64-v3"))
    host = Target.parse("host")
    assert facts["trials"] == 2 and facts["share_of_peak"] is None
    assert record is not None and record.machine == f"{model_name()}, {host.name} (1 threads)"
    assert f"measured on {record.machine}: 3 by 127.0.0.1:" in output.err
    with Fleet(tower.tracker, "command") as fleet:
        assert fleet.target == host


def test_a_gpu_is_tuned_the_same_way(tower: Tower, command: None, tmp_path: Path) -> None:
    fleet = Fleet(tower.tracker, "command", gpu.TARGET)
    assert fleet.machine == "Fake 0 (sm_90, driver for CUDA 13.0)"
    with Evaluator(jobs=1, threads=1, work=gpu.work, servers=fleet) as evaluator:
        session = Session(evaluator, fleet.target, Records(tmp_path), fleet.machine, 0)
        with pytest.warns(TvmconvWarning, match="is rejected"):
            (result,) = tune_all(session, [gpu.PROBLEM], 8, None, None)
    assert result.record is not None and result.record.decisions[0] == gpu.RIGHT
    states = sorted((trial.status, trial.candidate.decisions[0]) for trial in result.failures)
    assert states == sorted([("wrong", gpu.WRONG), ("crashed", gpu.CRASHES), ("failed", gpu.FAILS)] * 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "--key", "k"], "--key is for servers: also name their tracker: --tracker HOST:PORT"),
        (["tune", "--devices", "2"], "--devices is for servers"),
        (["tune", "--target", "remote"], "--target remote is for servers"),
        (["tune", "--tracker", "127.0.0.1:1"], "--tracker needs --key KEY"),
        (["tune", "--tracker", "127.0.0.1:1", "--key", "k"], "no tracker answers at 127.0.0.1:1: Connection refused"),
        (
            ["rpc-server", "--tracker", "127.0.0.1:1", "--key", "k"],
            "no tracker answers at 127.0.0.1:1: Connection refused",
        ),
        (["rpc-server", "--tracker", "9190", "--key", "k"], "the tracker is '9190'; it must be HOST:PORT"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    signature = [format_signature(fake.PROBLEM)] if arguments[0] == "tune" else []
    assert main([*arguments, *signature]) == 2
    assert message in capsys.readouterr().err
