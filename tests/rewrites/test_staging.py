"""Sums stored before approximated steps (tvmconv/lowering/cpu/rewrites/staging.py)."""

from __future__ import annotations

import pytest
from tvm import tirx
from tvm.tirx import ForKind

from tvmconv.lowering.common.rewrites import find_all
from tvmconv.lowering.compiler import Choice
from tvmconv.lowering.cpu.kernels import lower_choice
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

TILE = "conv1d-n1-i16x64-o64x64-k1-s1-d1-p0_0-g1-NXC-XIO-f32-bias"


def stages(problem: Problem) -> list[tirx.For]:
    """Return the loops that read stored sums, of the kernel for x86-64-v4."""
    module = lower_choice(problem, Target.parse("x86-64-v4"), Choice("direct")).module
    loops = find_all(module["tvmconv_kernel"].body, tirx.For)
    return [
        each for each in loops if each.kind == ForKind.SERIAL and "= T.tvmconv." in str(each) and "sums[" in str(each)
    ]


@pytest.mark.parametrize("epilogue", ["silu", "add-gelu", "gelu-add", "scale-tanh", "elu(0.5)"])
def test_approximated_steps_are_in_loops_of_their_own(epilogue: str):
    assert stages(parse_signature(TILE).with_(epilogue=epilogue))


@pytest.mark.parametrize("epilogue", ["relu", "hardswish", "add-leaky(0.5)"])
def test_short_steps_stay_with_the_sums(epilogue: str):
    assert not stages(parse_signature(TILE).with_(epilogue=epilogue))


def test_a_few_vectors_stay():
    few = parse_signature("conv1d-n1-i16x2-o16x2-k1-s1-d1-p0_0-g1-NXC-XIO-f32-silu")
    assert not stages(few)
