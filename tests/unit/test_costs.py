"""The rows of the cost model: complete, found by facts of a CPU, and refused if malformed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from tvmconv.algorithms.cpu.model.cost import cycles, tile_step, total
from tvmconv.algorithms.table import ALGORITHMS
from tvmconv.errors import TargetError
from tvmconv.signature import parse_signature
from tvmconv.support.folders import lock
from tvmconv.targets import cost_rows as costs
from tvmconv.targets.cost_rows import all_rows, costs_of, row_text, rows_in
from tvmconv.targets.costs import StepCosts
from tvmconv.targets.target import Target

ROOT = Path(__file__).parents[2]
PROBLEMS = [
    "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16",
    "conv2d-n1-i512x21x21-o512x21x21-k3x3-s1x1-d8x8-p8x8_8x8-g1-NXC-XIO-f32",
    "backprop2d-n1-i256x32x32-o128x64x64-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f32",
    "conv2d-n1-i64x28x28-o64x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g64-NXC-XIO-f32",
]


def test_rows_are_as_they_are_read() -> None:
    assert rows_in(row_text(all_rows()), "again") == all_rows()


@pytest.mark.parametrize("name", all_rows())
def test_every_event_has_a_coefficient_in_every_row(name: str) -> None:
    target = Target.parse(name)
    for problem in map(parse_signature, PROBLEMS):
        covering = [each for each in ALGORITHMS if each.kind == "cpu" and each.covers(problem, target) is None]
        for algorithm in covering:
            counts = algorithm.estimate(problem, target)
            assert all(count >= 0 and target.costs.coefficient(event) >= 0 for event, count in counts.items())
            assert algorithm.cycles(problem, target) == cycles(counts, target) > 0


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("znver4", "znver4"),
        ("x86-64-v4", "znver4"),  # one multiply-add of 512 bits in a cycle
        ("x86-64-v3", "znver3"),
        ("skylake", "znver3"),
        ("icelake-server", "znver5"),
        ("sapphirerapids", "graniterapids"),  # its tiles
        ("emeraldrapids-no-amx-bf16-no-amx-tile", "graniterapids"),  # its caches
        ("neoverse-n1", "neoverse-n1"),
        ("cortex-a76", "neoverse-n1"),
    ],
)
def test_a_cpu_without_a_row_has_the_nearest(name: str, row: str) -> None:
    assert Target.parse(name).costs == all_rows()[row]


def test_a_cpu_is_added_by_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = replace(all_rows()["znver3"], l2=2**21, task=12345.0)
    monkeypatch.setattr(costs, "all_rows", lambda: {**all_rows_before, "haswell": toy})
    all_rows_before = dict(all_rows())
    core = (toy.vector_bits, toy.vector_registers, toy.multiply_adds)
    assert costs_of("haswell", core, 2**18, 2**23).task == 12345.0
    assert costs_of("broadwell", core, 2**21, toy.l3).task == 12345.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.pop("task"), "task"),
        (lambda row: row.update(tusk=1.0), "knows no tusk"),
        (lambda row: row.update(task=-1.0), "not negative"),
        (lambda row: row.update(task="much"), "'much'"),
        (lambda row: row.update(l2=0), "l2 is 0; allowed: int, above 0"),
        (lambda row: row.update(l3=float("inf")), "l3 is inf"),
        (lambda row: row.update(pays=[[]]), "pays"),
        (lambda row: row["elements"].pop("copy"), "copy"),
        (lambda row: row["tile"].update(spills=1.0), "knows no spills"),
        (lambda row: row.update(lines=[]), "not a row"),
    ],
)
def test_a_row_that_is_none_is_refused(change: object, message: str) -> None:
    rows = json.loads(row_text(all_rows()))
    change(rows["znver4"])  # type: ignore[operator]
    with pytest.raises(TargetError, match=message):
        rows_in(json.dumps(rows), "rows.json")


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="tvmconv calibrate"):
        rows_in(text, "rows.json")


def test_rows_of_two_calibrations_are_both_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    row = all_rows()["znver4"]
    path = costs.keep("first", row)
    with lock(path.parent):
        other = Thread(target=costs.keep, args=("third", row))
        other.start()
        other.join(0.2)
        path.write_text(row_text({"first": row, "second": row}))
    other.join()
    assert rows_in(path.read_text(), "").keys() == {"first", "second", "third"}
    costs.forget("first")
    assert rows_in(path.read_text(), "").keys() == {"second", "third"}


def test_the_slowest_bounds_a_step() -> None:
    step = StepCosts(chain=8, vector=1, broadcast=1, from_l2=3, beside_part=1, spill=4)
    assert tile_step(step, 1, 2, 2) == 8  # sums wait
    assert tile_step(step, 2, 6, 12, parts=2) == 14
    assert tile_step(step, 5, 6, 10) == 11  # loads
    assert tile_step(step, 5, 6, 10, stream=step.from_l2) == 15
    assert tile_step(step, 2, 6, 12, spilled=1) == 16
    assert total({"a": 1.0, "b": 2.0}, {"b": 3.0}) == {"a": 1.0, "b": 5.0}


def test_each_habit_is_asked_for_and_was_measured() -> None:
    """Compare the behaviours in rows with those that plans read; each has its measurement."""
    files = [path for name in ("tvmconv/algorithms", "schedules") for path in (ROOT / name).rglob("*.py")]
    asked = {
        name for path in files for name in re.findall(r'"(\w+)" (?:not )?in target\.costs\.pays', path.read_text())
    }
    assert asked == set().union(*(row.pays for row in all_rows().values()))
    measured = (ROOT / "benchmarks/results/coefficients.md").read_text()
    assert [name for name in sorted(asked) if f"`{name}`" not in measured] == []
