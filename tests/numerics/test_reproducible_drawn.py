"""Reproducible kernels of drawn problems: one digest each on AVX2, AVX-512, AVX512-BF16 and 64-bit ARM, in a golden file.

Kernels are compiled for each of these, and run here or under QEMU; a machine without AVX-512 compares what it has with what others wrote.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from campaign.draw import small_problem
from emulated import N1, V1, cpu_of, emulator_of
from test_reproducible import HOST, PLANNED, Tried, answers, ways

from tvmconv.dtypes import FLOATS
from tvmconv.lowering.compiler import default_choice
from tvmconv.runtime.bundle import BundleTarget
from tvmconv.runtime.selection import obstacle
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import CpuTarget

GOLDEN = Path(__file__).parents[1] / "golden/reproducible_drawn.txt"
KNOWN = dict(line.split() for line in GOLDEN.read_text().splitlines())
TARGETS = ("x86-64-v3", "x86-64-v4", "cooperlake", N1, V1)
DRAWN, PART = 500, 25
FEW = 3  # of every part, in each run


def skip_what_does_not_run(target: CpuTarget) -> None:
    reason = obstacle(BundleTarget("cpu", target.features))
    if reason and emulator_of(target.name) is None:
        pytest.skip(reason)


def defaults(signatures: list[str], target: CpuTarget, turn: int) -> list[Tried]:
    """Return default schedules of problems, every other one for packed filters."""
    problems = [*map(parse_signature, signatures)]
    choices = [default_choice(each, target, "reproducible") for each in problems]
    both = zip(problems, choices, strict=True)
    return [Tried(each, target, choice, (number + turn) % 2 == 1) for number, (each, choice) in enumerate(both)]


def assert_golden(tried: list[Tried], target: CpuTarget, folder: Path, quick: bool) -> None:
    found = [*answers(tried, target, folder, quick)]
    assert {each.problem for each, _ in found} == {each.problem for each in tried}
    assert [(each, digest) for each, digest in found if KNOWN[format_signature(each.problem)] != digest] == []


@pytest.mark.parametrize("target", [*TARGETS[:-1], pytest.param(V1, marks=pytest.mark.slow)])
def test_few_have_the_golden_answers(target: str, tmp_path: Path) -> None:
    cpu = cpu_of(target)
    skip_what_does_not_run(cpu)
    few = [*KNOWN][TARGETS.index(target) :: DRAWN // FEW]
    assert_golden(defaults(few, cpu, TARGETS.index(target)), cpu, tmp_path, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("part", range(DRAWN // PART))
def test_all_have_the_golden_answers(part: int, target: str, tmp_path: Path) -> None:
    """Compiled as they are shipped: LLVM's optimizations change no bit."""
    cpu = cpu_of(target)
    skip_what_does_not_run(cpu)
    assert_golden(defaults([*KNOWN][part :: DRAWN // PART], cpu, TARGETS.index(target)), cpu, tmp_path, quick=False)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(DRAWN // PART))
def test_drawn_schedules_have_the_golden_answers(part: int, tmp_path: Path) -> None:
    draw = random.Random(part)
    problems = map(parse_signature, [*KNOWN][part :: DRAWN // PART])
    tried = [way for each in problems for way in draw.sample([*ways(each, PLANNED[:3], every=False)], 3)]
    assert_golden(tried, HOST, tmp_path, quick=True)


def test_golden_answers_are_written(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if not request.config.getoption("--update-golden"):
        pytest.skip("without --update-golden")
    draw, lines = random.Random(66), set()
    drawn = dict.fromkeys(format_signature(small_problem(draw, FLOATS)) for _ in range(2 * DRAWN))
    for part in range(DRAWN // PART):
        tried = defaults([*drawn][:DRAWN][part :: DRAWN // PART], HOST, 0)
        (folder := tmp_path / str(part)).mkdir()
        lines |= {f"{format_signature(each.problem)} {digest}" for each, digest in answers(tried, HOST, folder)}
    GOLDEN.write_text("".join(f"{line}\n" for line in sorted(lines)))
