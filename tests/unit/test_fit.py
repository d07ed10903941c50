"""Coefficients are found again from times that they made, and rows that a user calibrated are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tvmconv import cli
from tvmconv.algorithms.cpu.model.cold import COLD, WAIT, cold_lines
from tvmconv.algorithms.cpu.model.cost import cycles
from tvmconv.algorithms.cpu.model.fit import Sample, fit, with_coefficients
from tvmconv.algorithms.table import ALGORITHMS
from tvmconv.errors import TargetError
from tvmconv.signature import parse_signature
from tvmconv.targets import cost_rows as costs
from tvmconv.targets import target as targets
from tvmconv.targets.cost_rows import all_rows, forget, keep, user_rows
from tvmconv.targets.target import CpuTarget, Target
from tvmconv.tuning.calibrate import COLD_PROBLEMS, PROBLEMS, cold_row, row_of

HERTZ = 3e9


def made(row: costs.Costs, target: CpuTarget) -> list[Sample]:
    """Return samples whose times are exactly those of a row's coefficients."""
    samples = []
    for signature in PROBLEMS:
        problem = parse_signature(signature)
        for algorithm in ALGORITHMS:
            if algorithm.kind == "cpu" and algorithm.is_default and algorithm.covers(problem, target) is None:
                counts = algorithm.estimate(problem, target)
                seconds = sum(count * row.coefficient(name) for name, count in counts.items()) / HERTZ
                samples.append(Sample(signature, algorithm.name, seconds, counts))
    return samples


@pytest.mark.parametrize("name", ["znver3", "znver4", "znver5"])
def test_coefficients_are_found_again(name: str) -> None:
    """Also those of a CPU that is unlike the row that the fit begins with."""
    target = Target.parse(name)
    assert isinstance(target, CpuTarget)
    changed = {
        "points.product6": 2.5,
        "tile.scale": 1.1,
        "rows.scale": 2.0,
        "elements.transpose": 3.0,
        "lanes.scale": 2.5,
    }
    samples = made(with_coefficients(target.costs, changed), target)
    found = fit(samples, target.costs)
    unit = found.coefficient("tile.scale") / changed["tile.scale"]
    for event, value in changed.items():
        assert found.coefficient(event) == pytest.approx(unit * value, rel=0.25), event
    assert max((found.residuals or {}).values()) < 0.1
    assert replace(found, residuals=None).tile.vector == target.costs.tile.vector  # what shapes tiles stays


@pytest.mark.parametrize(("cold", "wait"), [(1.5, 9.0), (4.0, 0.0), (0.0, 20.0)])
def test_what_cold_filters_take_is_found_again(cold: float, wait: float) -> None:
    """Also where a kernel takes far longer than they explain; without times it stays."""
    target = Target.parse("znver4")
    assert isinstance(target, CpuTarget)
    row, pairs = with_coefficients(target.costs, {COLD: cold, WAIT: wait}), []
    for signature in COLD_PROBLEMS:
        problem = parse_signature(signature)
        for algorithm in ALGORITHMS:
            if algorithm.kind == "cpu" and algorithm.is_default and algorithm.covers(problem, target) is None:
                hot, counts = (
                    algorithm.estimate(problem, target),
                    cold_lines(problem, algorithm.filter_bytes(problem, target)),
                )
                times = [sum(count * row.coefficient(name) for name, count in each.items()) for each in (hot, counts)]
                slow = 2 if (signature, algorithm.name) == (COLD_PROBLEMS[-1], "winograd4") else 1
                pairs.append(
                    tuple(Sample(signature, algorithm.name, each, hot) for each in (times[0], slow * sum(times)))
                )
    found = cold_row(target.costs, pairs, target)
    assert (found.coefficient(COLD), found.coefficient(WAIT)) == pytest.approx((cold, wait), rel=0.1, abs=0.2)
    assert cold_row(row, [], target) == row


def test_a_coefficient_without_times_stays() -> None:
    target = Target.parse("znver4")
    assert isinstance(target, CpuTarget)
    samples = [sample for sample in made(target.costs, target) if sample.algorithm == "direct"]
    row = row_of(samples, target)
    assert row.points == target.costs.points
    assert "kernels on one core of" in row.source and set(row.residuals or {}) == {"direct"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    targets._costs.cache_clear()
    yield tmp_path / "tvmconv" / "costs.json"
    targets._costs.cache_clear()


def test_what_was_calibrated_is_for_the_host_alone(home: Path) -> None:
    host = replace(Target.parse("znver4"), caches=(2**20, 2**25))
    assert user_rows() == {} and isinstance(host, CpuTarget)
    row = replace(all_rows()["znver4"], task=777.0)
    assert keep("znver4", row) == home
    assert host.costs.task == 777.0
    named = Target.parse("znver4")
    assert isinstance(named, CpuTarget) and named.costs.task != 777.0
    problem = parse_signature(PROBLEMS[0])
    direct = next(each for each in ALGORITHMS if each.name == "direct")
    assert direct.cycles(problem, host) == cycles(direct.estimate(problem, host), host)
    forget("znver4")
    assert user_rows() == {} and not home.exists()


def test_a_damaged_file_says_what_to_do(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.parent.mkdir(parents=True)
    for content in (b'{"znver4": {}}', b"\xff"):
        home.write_bytes(content)
        with pytest.raises(TargetError, match=r"costs\.json"):
            user_rows()
    assert cli.main(["calibrate", "--remove"]) == 0
    assert "removed" in capsys.readouterr().out and not home.exists()
