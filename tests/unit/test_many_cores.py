"""How evenly threads share the loops of default plans, as `benchmarks.many_cores` counts it."""

from __future__ import annotations

import re

import pytest

from benchmarks.many_cores import Layer, Loop, layer, main, summary
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

SIGNATURE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g64-NXC-XIO-f32"
PROBLEM = parse_signature(SIGNATURE)


def test_efficiency_is_work_by_the_busiest_threads_time() -> None:
    found = Layer(PROBLEM, "direct", (Loop(8, 800), Loop(3, 300)))
    assert found.efficiency(1) == 1
    assert found.efficiency(2) == pytest.approx(1100 / (2 * (400 + 200)))
    assert found.efficiency(16) == pytest.approx(1100 / (16 * (100 + 100)))
    assert summary([found])[0] == ["2", "0.92", "0.92", "0"]


def test_loops_are_those_of_the_default_plan() -> None:
    target = Target.parse("x86-64-v3")
    assert isinstance(target, CpuTarget)
    found = layer(PROBLEM, target)
    outputs = 64 * 56 * 56
    assert all(loop.tasks > 0 for loop in found.loops)
    assert sum(loop.stores for loop in found.loops) >= outputs


def test_a_line_for_each_number_of_threads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([SIGNATURE, "--target", "x86-64-v3", "--list", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:8]] == ["2", "4", "8", "16", "32", "64"]
    assert re.search(rf"{SIGNATURE} +\w+ +\d+:\d+", lines[-1])
