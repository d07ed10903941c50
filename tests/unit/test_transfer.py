"""Transfer of schedules between similar problems, and of their decisions."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from tvmconv.isa.x86 import ISA as X86
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import CpuTarget
from tvmconv.tuning.records import Record
from tvmconv.tuning.search import Candidate, Search, Sketch, Space
from tvmconv.tuning.transfer import FARTHEST, adapt, distance, donor, nearest

PROBLEM = parse_signature("conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
TARGET = CpuTarget("x86-64-v3", ("avx2", "f16c", "fma"), "x86-64-v3", isa=X86)
OTHERS = {
    "batch": PROBLEM.with_(batch=2),
    "channels": PROBLEM.with_(in_channels=128, out_channels=128),
    "layout": PROBLEM.with_(data_format="NCX"),
    "type": PROBLEM.with_(dtype="bf16"),
    "taps": parse_signature("conv2d-n1-i64x56x56-o64x56x56-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32"),
    "stride": parse_signature("conv2d-n1-i64x56x56-o64x28x28-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32"),
    "groups": parse_signature("conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g64-NXC-XIO-f32"),
    "operation": parse_signature("backprop2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"),
    "rank": parse_signature("conv1d-n1-i64x56-o64x56-k3-s1-d1-p1_1-g1-NXC-XIO-f32"),
}


def record(problem: Problem, **changes: object) -> Record:
    made = Record(
        signature=format_signature(problem), target=TARGET.name, algorithm="direct", version=1, sketch=0,
        decisions=(1, 14, 4, 7), seconds=1e-3, default_seconds=1.1e-3, trials=64, seed=0,
        machine="a machine (2 threads)", date="2026-01-31", tools={"tvmconv": "0.1.0"},
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def test_the_distance_is_one_of_sizes() -> None:
    far = {name: distance(PROBLEM, other) for name, other in OTHERS.items()}
    assert distance(PROBLEM, PROBLEM) == 0
    assert far["batch"] == 1
    assert far["channels"] == 2
    assert 0 < far["batch"] < far["channels"] < far["type"] < far["stride"] < far["taps"] < FARTHEST
    assert far["groups"] == far["operation"] == far["rank"] == inf
    assert all(distance(other, PROBLEM) == pytest.approx(far[name]) for name, other in OTHERS.items())


def test_the_nearest_come_first_and_what_is_far_not_at_all() -> None:
    records = [record(other) for other in (*OTHERS.values(), PROBLEM, PROBLEM.with_(batch=4096))]
    names = {format_signature(other): name for name, other in OTHERS.items()}
    found = [names[each.signature] for each in nearest(PROBLEM, records)]
    assert found == ["batch", "channels", "layout", "type", "stride", "taps"]


def test_the_donor_has_an_algorithm_that_covers_the_problem_and_gained_by_tuning() -> None:
    near, far = record(OTHERS["batch"]), record(OTHERS["channels"])
    assert donor(PROBLEM, TARGET, "default", [far, near]) == near
    assert donor(PROBLEM, TARGET, "default", [far, replace(near, algorithm="grouped")]) == far
    winograd = replace(near, algorithm="winograd4")
    assert donor(PROBLEM, TARGET, "default", [winograd]) == winograd
    assert donor(PROBLEM, TARGET, "strict", [winograd]) is None
    # That nothing beat the default there is what there is to learn.
    assert donor(PROBLEM, TARGET, "default", [far, replace(near, default_seconds=near.seconds)]) is None
    assert donor(PROBLEM, TARGET, "default", [record(OTHERS["type"])]) is not None
    assert donor(PROBLEM, TARGET, "default", [record(OTHERS["stride"])]) is None  # too far
    assert donor(PROBLEM, TARGET, "default", []) is None


SPACES = [
    Space("grouped", 1, "exact", (Sketch(((1, 2),), (1,)),)),
    Space("direct", 1, "exact", (Sketch(((4,), (1, 7, 14)), (4, 7)), Sketch(((2,), (1, 7, 28)), (2, 28)), Sketch((), ()))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("candidate", "adapted"),
    [
        (Candidate("direct", 0, (4, 14)), Candidate("direct", 0, (4, 14))),
        (Candidate("direct", 0, (2, 28)), Candidate("direct", 1, (2, 28))),  # sketches are known by their decisions
        (Candidate("direct", 1, (4, 28)), Candidate("direct", 1, (2, 28))),  # of equals, its own number
        (Candidate("direct", 0, (3, 8)), Candidate("direct", 0, (4, 7))),  # ratios count
        (Candidate("grouped", 5, (9,)), Candidate("grouped", 0, (2,))),
        (Candidate("direct", 0, (4, 14, 1)), None),
        (Candidate("winograd4", 0, (4, 14)), None),
    ],
)
def test_decisions_become_the_nearest_that_are_allowed(candidate: Candidate, adapted: Candidate | None) -> None:
    assert adapt(candidate, SPACES) == adapted
    assert adapted is None or any(adapted in space for space in SPACES)


def test_the_search_starts_from_them_after_the_defaults() -> None:
    start = Candidate("direct", 1, (2, 7))
    defaults = Search(SPACES, 0, {}).propose(4)
    assert Search(SPACES, 0, {}, [start, defaults[0]]).propose(5) == [*defaults, start]
