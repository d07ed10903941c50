"""Every algorithm for GPUs equals the reference bit for bit, run by the emulator."""

from __future__ import annotations

import random

import numpy as np
import pytest
from emulator import run
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Call, calls

from tvmconv import fills
from tvmconv.algorithms.cuda import direct as cuda_direct
from tvmconv.algorithms.table import applicable
from tvmconv.epilogue import parse_epilogue
from tvmconv.lowering.compiler import Choice, samples, schedule
from tvmconv.lowering.cuda.lowering import to_source
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.cuda import CudaTarget

SM_80 = CudaTarget.parse("cuda:sm_80,sm_90")
PROBLEMS = [
    "conv2d-n1-i64x6x6-o16x6x6-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i48x13x13-o80x13x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i40x14x14-o64x7x7-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    "conv2d-n2-i24x9x9-o20x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
    "conv2d-n1-i30x9x9-o32x8x8-k3x3-s2x2-d1x1-p4x4_5x5-g2-NXC-XIO-f16",
    "conv2d-n1-i3x18x37-o6x9x19-k7x7-s2x2-d1x1-p3x3_3x3-g1-NCX-OIX-f32-bias",
    "backprop2d-n1-i16x9x16-o4x18x32-k4x4-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-f16-bias",
    "backprop2d-n1-i24x5x5-o24x8x10-k3x3-s2x2-d1x1-p1x1_2x0-g1-NXC-XIO-f32-bias",
    "backprop1d-n1-i16x10-o16x28-k1-s3-d1-p0_0-g1-NXC-XIO-bf16-bias",
    "conv1d-n1-i16x60-o32x60-k5-s1-d3-p6_6-g1-NXC-XIO-bf16",
    "conv3d-n1-i8x4x6x6-o16x4x6x6-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-f16",
    "conv3d-n1-i16x3x5x6-o24x3x5x6-k3x3x3-s1x1x1-d1x1x1-p2x1x1_0x1x1-g1-NXC-XIO-bf16-bias",  # causal in time
    "conv2d-n1-i32x13x20-o32x11x20-k5x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-f32",
    "conv2d-n1-i32x12x12-o64x12x12-k3x3-s1x1-d1x1-p1x1_1x1-g16-NCX-OIX-f32",
    "backprop2d-n1-i8x2x1-o8x1x1-k1x1-s2x1-d1x1-p1x0_1x0-g1-NXC-XIO-f16-bias",  # no tap meets the output
    "backprop2d-n1-i8x2x1-o8x3x1-k1x1-s2x1-d1x1-p0x0_0x0-g1-NCX-XIO-f16",  # rows shorter than a vector
    "conv2d-n1-i0x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-XIO-f16-bias",
    "conv2d-n0-i8x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
]
CALLS = calls(largest=11, channels=20)
SEEDS = st.integers(0, 2**32)
EPILOGUES = st.sampled_from(["", "scale-add-relu", "add-prelu", "clip(-inf,2)-scale", "leaky(0.5)-add"])


def check(problem: Problem, choice: Choice) -> None:
    definition, scheduled = schedule(problem, SM_80, choice)
    arrays, expected = fills.exact_case(problem)
    output = run(to_source(scheduled.mod, definition, SM_80), problem, arrays)
    what = f"{format_signature(problem)} {choice}"
    np.testing.assert_array_equal(output.astype(np.float64), expected.astype(np.float64), err_msg=what)


def random_choice(problem: Problem, algorithm: str | None, seed: int) -> Choice:
    """Return any schedule of an algorithm, or of any that covers the problem."""
    draw = random.Random(seed)
    candidates = [each for each in applicable(problem, SM_80) if algorithm in (None, each.name)]
    chosen = draw.choice(candidates)
    sketches = chosen.sketches(chosen.define(problem, SM_80), SM_80)
    number = draw.randrange(len(sketches))
    decisions = tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketches[number]))
    return Choice(chosen.name, number, decisions)


@pytest.mark.parametrize("signature", [pytest.param(PROBLEMS[0], marks=pytest.mark.smoke), *PROBLEMS[1:]])
def test_default_and_random_schedules_are_exact(signature: str) -> None:
    problem = parse_signature(signature)
    covering = applicable(problem, SM_80)
    assert covering, "no algorithm covers this problem"
    check(problem, Choice(covering[0].name))
    check(problem, random_choice(problem, None, len(signature)))


@pytest.mark.slow  # .ci/full runs it
@pytest.mark.parametrize("signature", PROBLEMS)
def test_the_other_algorithms_are_exact(signature: str) -> None:
    problem = parse_signature(signature)
    for algorithm in applicable(problem, SM_80)[1:]:
        check(problem, Choice(algorithm.name))


@pytest.mark.parametrize("signature", PROBLEMS[5:6] + PROBLEMS[7:8] + PROBLEMS[11:12])
def test_neighbours_share_data(signature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are many more outputs than here, which would take long."""
    monkeypatch.setattr(cuda_direct, "ENOUGH_THREADS", 0)
    problem = parse_signature(signature)
    assert cuda_direct.define(problem, SM_80).windows[0].neighbours > 1
    check(problem, Choice("cuda_direct"))


@pytest.mark.parametrize(
    "signature",
    [
        "backprop3d-n1-i1x1x1x4-o1x1x2x6-k1x2x3-s1x1x3-d1x1x1-p0x0x4_0x0x2-g1-NXC-XIO-f32",
        "backprop1d-n1-i8x2-o8x4-k4-s2-d1-p1_1-g1-NXC-XIO-f32",
        "backprop1d-n1-i4x5-o4x14-k5-s3-d2-p4_3-g1-NCX-OIX-f32",
    ],
)
def test_offsets_of_phases_are_no_quotients(signature: str) -> None:
    """TVM divided by zero where it simplified them beside the index of an output."""
    check(parse_signature(signature), Choice("cuda_direct"))


@settings(max_examples=5)
@given(call=CALLS, epilogue=EPILOGUES, seed=SEEDS)
def test_random_problems_are_exact(call: Call, epilogue: str, seed: int) -> None:
    problem = call.problem().with_(epilogue=parse_epilogue(epilogue or None))
    check(problem, random_choice(problem, None, seed))


@pytest.mark.slow
@settings(max_examples=400, derandomize=False)
@given(call=CALLS, epilogue=EPILOGUES, seed=SEEDS)
def test_many_random_problems_are_exact(call: Call, epilogue: str, seed: int) -> None:
    """New examples in every run."""
    problem = call.problem().with_(epilogue=parse_epilogue(epilogue or None))
    check(problem, random_choice(problem, None, seed))
