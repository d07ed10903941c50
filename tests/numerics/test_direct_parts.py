"""Plain filters taken part after part: exact in every layout and type, by every sketch, with the prepacked filter beside it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from campaign.check import Case
from kernels import isa

from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, samples, sketches_of
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

HOST = Target.parse("host")
# Filters that L2 does not keep, copied anyway.
COPIED = [
    "conv2d-n1-i384x5x5-o120x5x5-k3x3-s1x1-d2x2-p2x2_2x2-g1-NCX-OIX-f32-bias",
    "conv2d-n2-i256x3x5-o200x3x5-k3x3-s1x1-d1x1-p1x1_1x1-g2-NXC-OIX-f32",
    "conv1d-n1-i768x4-o500x4-k1-s1-d1-p0_0-g1-NXC-OIX-f32-relu",
    "conv2d-n1-i288x7x7-o257x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f16-bias",
    "backprop2d-n1-i256x4x4-o128x8x8-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "backprop1d-n1-i384x8-o96x64-k16-s8-d1-p4_4-g1-NCX-OIX-f32",
    "conv2d-n1-i640x7x7-o448x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-f16",
]
# Filters that L3 of these CPUs, of which there are smaller ones, does not keep.
FROM_MEMORY = {
    "conv2d-n1-i256x7x7-o512x4x4-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias": "skylake",
    "conv1d-n1-i2048x1-o544x1-k1-s1-d1-p0_0-g1-NXC-XIO-f32-bias": "skylake",
    "conv3d-n1-i256x2x4x4-o160x2x2x2-k3x3x3-s1x2x2-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-f32": "skylake",
    "conv1d-n3-i512x17-o832x17-k5-s1-d1-p2_2-g1-NXC-XIO-f16": "skylake",
    "conv1d-n1-i12000x3-o256x3-k1-s1-d1-p0_0-g1-NXC-XIO-f32": "skylake-avx512",
}
# Read in place, whole rows: one pixel, pixels in rows with padding that is skipped, taps, left-over channels.
WHOLE_ROWS = [
    "conv1d-n1-i1024x1-o1000x1-k1-s1-d1-p0_0-g1-NXC-XIO-f32-bias-relu",
    "conv2d-n1-i512x2x2-o512x2x2-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i256x8x8-o288x4x4-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32",
    "conv1d-n1-i768x7-o520x7-k5-s1-d1-p2_2-g1-NXC-XIO-f16-bias",
    "conv3d-n1-i288x2x2x2-o320x2x2x2-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-f32",
]
# Prepacked, a tile has all rows.
WHOLE_IMAGES = [
    "conv2d-n1-i1024x4x4-o480x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-OIX-f32-bias",
    "backprop2d-n1-i512x3x4-o336x6x8-k5x5-s2x2-d1x1-p2x2_1x1-g1-NXC-XIO-f32",
]
# Prepacked, a task goes tap by tap, in the most parts of the output channels.
DEEP = ["conv2d-n1-i448x8x6-o600x8x6-k5x5-s1x1-d1x1-p2x2_2x2-g1-NXC-OIX-f32"]
DOT = [
    "conv2d-n1-i256x7x7-o320x4x4-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
    "conv1d-n1-i2001x3-o520x3-k1-s1-d1-p0_0-g1-NXC-XIO-bf16",
    "conv2d-n1-i384x5x5-o240x5x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
    "backprop2d-n1-i256x4x4-o256x8x8-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16",
    "conv2d-n1-i1026x4x6-o512x4x6-k5x5-s1x1-d1x1-p2x2_2x2-g1-NXC-XIO-bf16",
    # Whole rows in place, pairs in registers: one pixel, tiles in rows with padding, taps, left-over channels.
    "conv1d-n1-i1024x1-o1000x1-k1-s1-d1-p0_0-g1-NXC-XIO-bf16-bias-relu",
    "conv2d-n1-i512x3x3-o512x3x3-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
    "conv1d-n1-i768x7-o520x7-k5-s1-d2-p4_4-g1-NXC-XIO-bf16-bias",
]


def cases(problem: Problem, algorithm: str, target: Target = HOST) -> list[Case]:
    """Return the problem by every sketch with its default decisions, and with random ones, its filter plain and prepacked."""
    definition, sketches = sketches_of(algorithm, problem, target)
    assert any(window.by_parts for window in definition.windows)
    packed = sketches_of(algorithm, problem, target, EntryPoints.PACKED)[1]
    assert [options(each) for each in packed] == [options(each) for each in sketches]
    draw, choices = random.Random(str(problem)), []
    for number, sketch in enumerate(sketches):
        choices.append(Choice(algorithm, number))
        choices.append(Choice(algorithm, number, tuple(map(draw.randrange, options(sketch)))))
    return [Case(problem, target, 0, tuple((choice, prepacked) for choice in choices for prepacked in (False, True)))]


def options(sketch: Any) -> list[int]:
    """Return among how many values each choice of a sketch is made."""
    return [len(each.attrs[0]) for each in samples(sketch)]


@pytest.mark.parametrize("signature", COPIED + WHOLE_IMAGES + DEEP)
def test_every_sketch_and_random_decisions_are_exact(signature: str, try_kernels: Callable[..., None]) -> None:
    try_kernels(cases(parse_signature(signature), "direct"))


@pytest.mark.parametrize(
    ("signature", "target"),
    [
        *(pytest.param(signature, "x86-64-v4", marks=isa("x86-64-v4")) for signature in WHOLE_ROWS),
        pytest.param(WHOLE_ROWS[1], "x86-64-v3", marks=isa("x86-64-v3")),
    ],
)
def test_whole_rows_in_place_are_exact(signature: str, target: str, try_kernels: Callable[..., None]) -> None:
    try_kernels(cases(parse_signature(signature), "direct", Target.parse(target)))


@pytest.mark.isa("avx512_bf16")
@pytest.mark.parametrize("signature", DOT)
def test_pairs_of_bf16_are_exact(signature: str, try_kernels: Callable[..., None]) -> None:
    try_kernels(cases(parse_signature(signature), "dot"))


@pytest.mark.parametrize(
    ("signature", "target"), [pytest.param(*each, marks=isa(each[1])) for each in FROM_MEMORY.items()]
)
def test_filters_from_memory_are_exact(signature: str, target: str, try_kernels: Callable[..., None]) -> None:
    try_kernels(cases(parse_signature(signature), "direct", Target.parse(target)))


@pytest.mark.parametrize("target", [pytest.param("x86-64-v3", marks=isa("x86-64-v3"))])
@pytest.mark.parametrize("signature", COPIED[::3])
def test_other_targets_are_exact(signature: str, target: str, try_kernels: Callable[..., None]) -> None:
    try_kernels(cases(parse_signature(signature), "direct", Target.parse(target)))
