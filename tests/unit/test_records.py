"""Records and trials: what is kept, found, missed, and survives damage and other writers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tvmconv.algorithms.table import applicable, get
from tvmconv.errors import TvmconvError, TvmconvWarning
from tvmconv.isa.x86 import ISA as X86
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support import jsonlines
from tvmconv.targets.cuda import CudaTarget
from tvmconv.targets.target import CpuTarget
from tvmconv.tuning import records
from tvmconv.tuning.records import FILE, Record, Records
from tvmconv.tuning.search import Candidate, Sketch, Space
from tvmconv.tuning.trials import Trial, TrialLog

SIGNATURE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
PROBLEM = parse_signature(SIGNATURE)
TARGET = CpuTarget("x86-64-v3", ("avx2", "f16c", "fma"), "x86-64-v3", isa=X86)
DIRECT = applicable(PROBLEM, TARGET, "strict")[0]
RECORD = Record(
    signature=SIGNATURE,
    target=TARGET.name,
    algorithm=DIRECT.name,
    version=DIRECT.version,
    sketch=0,
    decisions=(1, 14, 4, 7),
    seconds=1e-3,
    default_seconds=1.1e-3,
    trials=64,
    seed=0,
    machine="a machine (2 threads)",
    date="2026-01-31",
    tools={"tvmconv": "0.1.0"},
)


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for the records that ship."""
    folder = tmp_path / "shipped"
    monkeypatch.setattr(records, "shipped_folder", lambda: folder)
    return folder


@pytest.mark.smoke
def test_a_record_is_found_as_it_was_put(tmp_path: Path) -> None:
    ours = Records(tmp_path / "user")
    assert ours.best(PROBLEM, TARGET) is None
    ours.put([RECORD])
    assert ours.best(PROBLEM, TARGET) == RECORD
    assert Records(tmp_path / "user").best(PROBLEM, TARGET) == RECORD
    assert ours.best(PROBLEM.with_(batch=2), TARGET) is None
    assert ours.best(PROBLEM, replace(TARGET, name="x86-64-v4")) is None


def test_the_fastest_algorithm_is_the_best(tmp_path: Path) -> None:
    faster = replace(RECORD, algorithm="grouped", seconds=9e-4)
    ours = Records(tmp_path)
    ours.put([RECORD, faster])
    assert ours.best(PROBLEM, TARGET) == faster
    assert ours.best(PROBLEM, TARGET, among=(DIRECT.name, "grouped")) == faster
    assert ours.best(PROBLEM, TARGET, among=(DIRECT.name, "planar")) == RECORD
    assert ours.best(PROBLEM, TARGET, among=("planar", DIRECT.name)) is None  # it won over no planar schedule


def test_putting_replaces_the_same_algorithm_and_keeps_the_file_sorted(tmp_path: Path) -> None:
    ours = Records(tmp_path)
    other = replace(RECORD, signature=format_signature(PROBLEM.with_(batch=8)))
    ours.put([other])
    ours.put([RECORD])
    ours.put([replace(RECORD, seconds=2e-3)])
    lines = (tmp_path / TARGET.name / FILE).read_text().splitlines()
    assert [json.loads(line)["signature"] for line in lines] == sorted([SIGNATURE, other.signature])
    assert ours.best(PROBLEM, TARGET) == replace(RECORD, seconds=2e-3)


def test_other_cpus_records_of_the_same_problem_are_found(tmp_path: Path, shipped: Path) -> None:
    ours, wider = Records(tmp_path / "user"), replace(RECORD, target="x86-64-v4")
    Records(shipped).put([wider, replace(RECORD, target="znver4"), replace(RECORD, target="cuda:sm_90")])
    ours.put([RECORD, faster := replace(wider, seconds=5e-4)])
    assert ours.elsewhere(PROBLEM, TARGET) == [faster, replace(RECORD, target="znver4")]
    assert ours.elsewhere(PROBLEM.with_(batch=2), TARGET) == []


def test_other_gpus_records_are_found_by_their_folders(tmp_path: Path, shipped: Path) -> None:
    several = replace(RECORD, target="cuda:sm_80,sm_90", algorithm="cuda_fma", version=get("cuda_fma").version)
    Records(shipped).put([RECORD, several])
    ours, gpu = Records(tmp_path / "user"), CudaTarget.parse("cuda:sm_90")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ours.elsewhere(PROBLEM, gpu) == [several]
        ours.put([faster := replace(several, seconds=5e-4)])
        assert ours.elsewhere(PROBLEM, gpu) == [faster]


def test_a_record_of_another_version_or_of_no_algorithm_is_a_miss(tmp_path: Path) -> None:
    ours = Records(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.put([replace(RECORD, version=RECORD.version + 1), replace(RECORD, algorithm="gone")])
        assert ours.best(PROBLEM, TARGET) is None
    slower = replace(RECORD, seconds=5e-3)
    ours.put([slower])
    assert ours.best(PROBLEM, TARGET) == slower


def test_the_users_records_win_over_the_shipped(tmp_path: Path, shipped: Path) -> None:
    Records(shipped).put([RECORD])
    users = Records(tmp_path / "user")
    assert users.best(PROBLEM, TARGET) == RECORD
    slower = replace(RECORD, seconds=5e-3)
    users.put([slower])
    assert users.best(PROBLEM, TARGET) == slower
    users.put([replace(slower, version=RECORD.version + 1)])
    Records(tmp_path / "other").put([replace(slower, version=RECORD.version + 1)])
    assert Records(tmp_path / "other").best(PROBLEM, TARGET) == RECORD


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "Expecting property name"),
        ("[1]", "it must be a table with signature, target"),
        (json.dumps({"signature": SIGNATURE}), "target is missing; it must be a text"),
        ({"seconds": "fast"}, "seconds is 'fast'; it must be a number above 0"),
        ({"seconds": -1.0}, "seconds is -1.0; it must be a number above 0"),
        ({"seconds": float("nan")}, "seconds is nan; it must be a number above 0"),
        ({"version": True}, "version is True; it must be a whole number"),
        ({"decisions": [1, "two"]}, "decisions[1] is 'two'; it must be a whole number"),
        ({"signature": "conv"}, "is not a signature"),
        ({"target": "znver4"}, "lies in the folder of 'x86-64-v3'"),
    ],
)
def test_a_malformed_line_is_named_and_the_others_work(line: str | dict, words: str, tmp_path: Path) -> None:
    ours = Records(tmp_path)
    ours.put([RECORD])
    path = tmp_path / TARGET.name / FILE
    good = path.read_text()
    bad = line if isinstance(line, str) else json.dumps({**json.loads(good), **line})
    path.write_text(f"\n{bad}\n{good}")
    with pytest.warns(TvmconvWarning) as caught:
        assert Records(tmp_path).best(PROBLEM, TARGET) == RECORD
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith(f"{path}, line 2 is ignored: ")
    assert words in message
    # Writing keeps what somebody else may want to repair.
    with pytest.warns(TvmconvWarning):
        Records(tmp_path).put([replace(RECORD, seconds=2e-3)])
    assert path.read_text().splitlines()[-1] == bad


def test_a_later_versions_fields_are_left_out(tmp_path: Path) -> None:
    ours = Records(tmp_path)
    ours.put([RECORD])
    path = tmp_path / TARGET.name / FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "energy": 1}) + "\n")
    assert Records(tmp_path).best(PROBLEM, TARGET) == RECORD


def test_a_lookup_reads_no_file_again(tmp_path: Path) -> None:
    ours = Records(tmp_path)
    problems = [PROBLEM.with_(batch=batch) for batch in range(1, 2001)]
    ours.put([replace(RECORD, signature=format_signature(problem)) for problem in problems])
    assert ours.best(PROBLEM, TARGET) is not None
    (tmp_path / TARGET.name / FILE).unlink()
    start = time.process_time()
    assert all(ours.best(problem, TARGET) for problem in problems)
    assert (time.process_time() - start) / len(problems) < 1e-3


def test_the_users_folder_follows_the_convention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert Records().folder == tmp_path / ".local" / "share" / "tvmconv"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert Records().folder == tmp_path / ".local" / "share" / "tvmconv"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert Records().folder == tmp_path / "data" / "tvmconv"


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(TvmconvError, match="set HOME or XDG_DATA_HOME"):
        Records().folder.exists()


SPACE = Space("direct", 3, "exact", (Sketch(((1, 2), (4, 8)), (1, 8)),))


def trial(*decisions: int, **changes: object) -> Trial:
    return replace(Trial(Candidate("direct", 0, decisions), 3, "ok", 1e-3), **changes)


def test_trials_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = TrialLog(tmp_path, PROBLEM, TARGET, "one")
    assert log.read([SPACE]) == []
    written = [trial(1, 8), trial(2, 8, status="crashed", seconds=None, detail="SIGILL")]
    for each in written:
        log.append(each)
    assert log.read([SPACE]) == written


def test_trials_of_other_machines_versions_and_spaces_are_not_read(tmp_path: Path) -> None:
    log = TrialLog(tmp_path, PROBLEM, TARGET, "one")
    for each in (trial(1, 8), trial(1, 4, version=2), trial(9, 9), trial(1)):
        log.append(each)
    TrialLog(tmp_path, PROBLEM, TARGET, "another").append(trial(2, 4))
    assert log.read([SPACE]) == [trial(1, 8)]


@pytest.mark.parametrize(
    "changes", [{"status": "good"}, {"status": "ok", "seconds": None}, {"status": "wrong"}, {"seconds": float("inf")}]
)
def test_a_trial_that_contradicts_itself_is_malformed(changes: dict, tmp_path: Path) -> None:
    log = TrialLog(tmp_path, PROBLEM, TARGET, "one")
    log.append(trial(1, 8, **changes))
    with pytest.warns(TvmconvWarning, match="line 1 is ignored"):
        assert log.read([SPACE]) == []


def test_a_line_cut_short_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    jsonlines.append(path, 1)
    with path.open("a") as file:
        file.write('{"half": ')
    jsonlines.append(path, 2)
    jsonlines.append(path, 3)
    with pytest.warns(TvmconvWarning, match="line 2 is ignored"):
        assert jsonlines.read(path, int) == ([1, 2, 3], ['{"half": '])


def test_appending_and_putting_from_several_processes_lose_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, pickle\n"
        "from pathlib import Path\n"
        "from dataclasses import replace\n"
        "from tvmconv.support import jsonlines\n"
        "from tvmconv.tuning.records import Records\n"
        "folder, first, record = Path(sys.argv[1]), int(sys.argv[2]), pickle.loads(bytes.fromhex(sys.argv[3]))\n"
        "for number in range(first, first + 40):\n"
        "    jsonlines.append(folder / 'x86-64-v3' / 'lines.txt', number)\n"
        "    Records(folder).put([replace(record, algorithm=str(number))])\n"
    )
    import pickle

    arguments = [sys.executable, "-c", script, str(tmp_path)]
    processes = [
        subprocess.Popen([*arguments, str(first), pickle.dumps(RECORD).hex()], stderr=subprocess.PIPE, text=True)
        for first in (0, 1000)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    expected = [*range(40), *range(1000, 1040)]
    lines, malformed = jsonlines.read(tmp_path / TARGET.name / "lines.txt", int)
    assert (sorted(lines), malformed) == (expected, [])
    kept = (tmp_path / TARGET.name / FILE).read_text().splitlines()
    assert sorted(int(json.loads(line)["algorithm"]) for line in kept) == expected
