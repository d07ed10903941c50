"""Definitions, spaces and lowering: every choice exact, roundings right, no multiplication by inserted zeros."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from campaign.check import Case
from kernels import assert_exact, compile_and_call, isa
from toys import entry, write_bundle

from tvmconv import fills, load
from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cpu.direct import define
from tvmconv.algorithms.cpu.kn2row import reach_of
from tvmconv.errors import InvalidProblemError, TvmconvError
from tvmconv.isa.x86.amx import TILES
from tvmconv.lowering.compiler import Choice, compile_problem, default_choice, samples, schedule
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

HOST = Target.parse("host")
SPACES = [
    # Few pixels whose plain filters are read row by row, part after part: rows of taps, in groups, of a transposed convolution.
    "conv2d-n2-i40x5x6-o36x3x3-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-OIX-f32-bias",
    "conv2d-n1-i512x4x4-o48x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g2-NCX-OIX-f32-bias",
    "conv2d-n1-i128x3x5-o40x3x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
    "conv1d-n1-i1024x6-o40x6-k1-s1-d1-p0_0-g1-NXC-OIX-f32",
    "conv1d-n2-i768x3-o20x3-k1-s1-d1-p0_0-g2-NCX-OIX-f16-bias",
    "backprop2d-n1-i128x3x4-o20x6x8-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    # Plain OIX of a transposed convolution: whole rows of taps, and taps of a channel by squares; in groups, of windows, of few taps.
    "backprop2d-n1-i64x4x4-o32x8x8-k5x5-s2x2-d1x1-p2x2_1x1-g1-NCX-OIX-f32-bias",
    "backprop2d-n1-i64x4x4-o32x8x8-k5x5-s2x2-d1x1-p2x2_1x1-g1-NCX-OIX-bf16-bias",
    "backprop1d-n2-i64x9-o24x35-k8-s4-d1-p2_3-g2-NXC-OIX-bf16",
    "backprop2d-n1-i128x3x4-o36x5x11-k3x4-s2x3-d2x1-p2x0_2x2-g1-NXC-OIX-f16-bias",
    "backprop1d-n1-i32x40-o21x81-k3-s2-d1-p0_0-g1-NCX-OIX-f32",
    "backprop2d-n2-i256x3x4-o24x6x7-k3x4-s2x2-d1x1-p1x1_0x2-g1-NCX-XIO-bf16",
    "conv2d-n1-i48x13x13-o80x13x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i1024x14x14-o64x7x7-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    "conv1d-n2-i48x4000-o16x2000-k3-s2-d1-p1_0-g1-NXC-XIO-f32-bias",  # AVX2: data copied part by part
    "conv1d-n3-i1x1604-o80x320-k10-s5-d1-p1_0-g1-NXC-XIO-f32-bias",  # short sums, block by block
    "conv2d-n1-i40x14x14-o136x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-f32-bias",  # 17 vectors of AVX2, one of them twice
    "backprop2d-n2-i24x5x12-o104x10x24-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
    "conv2d-n2-i128x13x15-o256x13x15-k1x1-s1x1-d1x1-p0x0_0x0-g2-NCX-OIX-f32-bias",  # AVX2: tiles of planes copied
    "conv2d-n2-i3x42x43-o32x14x14-k3x3-s3x3-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",  # patches
    "conv2d-n1-i4x70x42-o96x14x14-k4x3-s5x3-d1x1-p0x0_0x0-g1-NXC-OIX-bf16",
    "conv3d-n1-i3x4x28x28-o64x2x14x14-k2x2x2-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NXC-OIX-f32",
    "conv2d-n2-i24x9x9-o20x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
    "conv2d-n1-i30x9x9-o32x8x8-k3x3-s2x2-d1x1-p4x4_5x5-g2-NXC-XIO-bf16",
    "conv2d-n1-i8x18x37-o6x9x19-k3x3-s2x2-d1x1-p1x1_0x1-g1-NCX-OIX-f32-bias",
    "backprop2d-n1-i16x9x16-o4x18x32-k4x4-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-f16-bias",
    "backprop2d-n2-i6x9x19-o6x18x57-k5x5-s2x3-d1x1-p2x1_1x1-g1-NCX-OIX-f32-bias",
    "backprop2d-n1-i8x7x20-o8x14x40-k4x4-s2x2-d1x3-p1x5_1x3-g8-NCX-OIX-bf16",
    "backprop1d-n1-i24x18-o48x36-k3-s2-d1-p1_0-g1-NCX-XIO-f32-bias",
    "conv2d-n1-i40x7x7-o24x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias",
    "conv2d-n1-i6x14x23-o6x14x23-k3x3-s1x1-d2x2-p2x2_2x2-g6-NCX-OIX-f16-bias",
    "conv2d-n1-i16x5x21-o48x5x21-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f16-bias",
    "backprop2d-n1-i20x32x32-o32x64x64-k2x2-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias",
    "conv1d-n1-i16x60-o32x60-k5-s1-d3-p6_6-g1-NXC-XIO-f16",
    "conv3d-n1-i8x4x6x6-o16x4x6x6-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i32x13x20-o32x11x20-k5x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-f32",
    "conv2d-n1-i58x14x14-o58x7x7-k3x3-s2x2-d1x1-p1x1_0x0-g58-NXC-XIO-f32",
    "conv2d-n1-i32x12x12-o32x12x12-k3x3-s1x1-d1x1-p1x1_1x1-g16-NXC-XIO-f32",
    "conv2d-n1-i32x12x12-o64x12x12-k3x3-s1x1-d1x1-p1x1_1x1-g16-NCX-OIX-f32",
    "conv2d-n1-i12x9x9-o18x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g6-NXC-XIO-f32-bias",
    "conv2d-n2-i32x9x13-o32x9x13-k3x3-s1x1-d1x1-p1x1_1x1-g8-NXC-XIO-bf16-bias",
    "conv2d-n1-i40x13x23-o40x7x12-k3x3-s2x2-d1x1-p1x1_1x1-g10-NXC-OIX-f32-bias",
    "conv2d-n1-i80x13x23-o80x5x11-k5x3-s2x2-d1x2-p0x1_1x2-g10-NXC-XIO-bf16",
    "conv2d-n1-i6x14x17-o16x12x9-k3x2-s1x2-d1x1-p0x1_0x1-g2-NXC-XIO-f16-bias",
    "conv2d-n1-i64x13x23-o64x13x23-k3x3-s1x1-d5x5-p5x5_5x5-g8-NXC-XIO-f32",
    "conv1d-n2-i24x31-o64x29-k5-s1-d2-p3_3-g8-NXC-XIO-f32",
    "conv1d-n1-i64x50-o64x25-k7-s2-d1-p3_2-g16-NXC-OIX-bf16-bias",
    "conv3d-n1-i16x3x6x7-o48x3x6x7-k3x3x3-s1x1x1-d1x1x1-p2x1x1_0x1x1-g1-NXC-XIO-bf16-bias",  # causal in time
    "conv3d-n1-i16x4x5x6-o32x4x3x6-k3x3x3-s1x2x1-d1x1x1-p1x1x1_1x1x1-g8-NXC-XIO-bf16",
    "backprop2d-n1-i32x6x7-o32x12x14-k4x4-s2x2-d1x1-p1x1_1x1-g4-NXC-XIO-bf16-bias",
    "backprop2d-n1-i24x6x9-o48x11x17-k3x3-s2x2-d1x1-p1x1_1x1-g12-NXC-OIX-f32",
    "backprop2d-n1-i32x7x7-o24x14x14-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32-bias",
    "backprop2d-n1-i34x7x7-o24x13x13-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
    "backprop2d-n1-i24x6x6-o24x13x13-k4x4-s2x2-d1x1-p0x0_1x1-g24-NXC-XIO-f32",
    "conv2d-n2-i48x9x12-o3x9x12-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-OIX-f16-bias",
    "conv2d-n1-i24x9x12-o4x9x6-k3x3-s1x2-d1x1-p1x1_1x0-g2-NXC-XIO-bf16",
    "conv1d-n3-i64x30-o1x30-k1-s1-d1-p0_0-g1-NXC-XIO-f32-bias",
    "backprop2d-n1-i32x6x6-o2x12x12-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i1024x8x6-o32x8x6-k3x3-s1x1-d2x2-p2x2_2x2-g1-NXC-OIX-f32-bias",
    "conv2d-n1-i1024x8x6-o64x8x6-k3x3-s1x1-d2x2-p2x2_2x2-g1-NXC-XIO-bf16",
    "backprop2d-n2-i32x6x9-o48x8x9-k3x3-s1x1-d5x4-p4x4_4x4-g1-NCX-OIX-f32-bias",
    "backprop2d-n1-i32x7x8-o32x15x8-k3x3-s1x1-d4x6-p0x6_0x6-g2-NXC-XIO-bf16",
    "conv2d-n1-i36x11x11-o40x11x11-k3x3-s1x1-d6x4-p6x4_6x4-g1-NXC-XIO-bf16-bias",
    "conv2d-n1-i32x33x33-o32x33x33-k3x3-s1x1-d6x12-p6x12_6x12-g1-NXC-XIO-f32",
    "conv2d-n2-i64x15x17-o80x8x9-k3x4-s2x2-d8x5-p8x7_8x8-g2-NCX-OIX-f16-bias",
    "conv1d-n2-i64x5-o48x5-k3-s1-d12-p12_12-g1-NXC-XIO-f32",
    "conv3d-n1-i64x5x7x9-o64x5x7x9-k3x3x3-s1x1x1-d1x2x6-p1x2x6_1x2x6-g1-NXC-OIX-f32",
    "conv3d-n1-i20x2x6x7-o32x2x6x7-k5x5x5-s1x1x1-d1x1x1-p2x2x2_2x2x2-g1-NCX-OIX-f32",  # taps of parts: Winograd's first axis
    "conv2d-n2-i24x9x11-o40x9x11-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-OIX-f32-bias",
    "conv1d-n1-i66x30-o66x28-k3-s1-d1-p0_0-g2-NXC-XIO-f16-bias",
    "backprop2d-n1-i64x5x5-o40x20x20-k8x8-s4x4-d1x1-p2x2_2x2-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i10x15x61-o10x8x20-k3x5-s2x3-d1x1-p1x2_1x1-g10-NCX-OIX-f32-bias",
    "conv2d-n2-i6x14x14-o6x7x7-k3x3-s2x2-d1x1-p1x1_0x0-g6-NCX-OIX-f32",
    "conv3d-n1-i4x4x6x22-o6x2x3x11-k3x3x3-s2x2x2-d1x1x2-p1x1x1_0x0x2-g1-NCX-OIX-f32",
    # Axes that become channels, with what follows each channel; tall filters whose taps are summed one by one.
    "backprop2d-n5-i12x1x1-o3x4x4-k4x4-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias-prelu",
    "backprop2d-n3-i16x1x1-o3x4x6-k4x6-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16-bias-scale",
    "backprop2d-n2-i12x1x3-o4x5x7-k5x3-s1x2-d1x1-p0x0_0x0-g1-NCX-OIX-f16-bias",
    "conv2d-n3-i1x12x30-o20x10x1-k3x30-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
    "conv2d-n2-i6x5x7-o20x1x1-k5x7-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-bf16-bias",
    # Phases of a row as channels: whole, with places of the filter without a weight, of several channels, a row not whole strides.
    "backprop1d-n2-i34x19-o1x176-k32-s8-d1-p0_0-g1-NXC-XIO-f32-bias",
    "backprop1d-n2-i34x19-o1x158-k30-s8-d1-p10_6-g1-NCX-OIX-f32-bias",
    "backprop2d-n2-i12x9x5-o4x19x37-k3x16-s2x8-d1x1-p1x5_0x6-g1-NCX-OIX-f16-bias-prelu",
    "backprop2d-n1-i48x5x9-o12x10x36-k4x8-s2x4-d1x1-p1x2_1x2-g2-NXC-OIX-bf16-bias",
    # Rows that share loads beside more taps than registers hold.
    "conv2d-n1-i3x12x52-o3x12x52-k5x5-s1x1-d1x1-p2x2_2x2-g3-NCX-OIX-f32-bias",
    "conv3d-n1-i5x3x6x14-o5x3x6x14-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g5-NCX-OIX-bf16",
    # Lanes across groups: taps of a row in parts, whole rows with all taps.
    "conv2d-n1-i32x20x24-o32x20x24-k5x23-s1x1-d1x1-p2x11_2x11-g32-NXC-XIO-f32-bias",
    "conv2d-n1-i48x9x14-o48x9x14-k9x27-s1x1-d1x1-p4x13_4x13-g48-NXC-OIX-f32",
    "conv1d-n2-i32x90-o32x45-k31-s2-d1-p15_14-g32-NXC-XIO-f16-bias",
    "conv1d-n1-i32x90-o32x50-k21-s1-d2-p0_0-g32-NXC-XIO-f32",
    "conv2d-n1-i824x12x3-o112x8x3-k5x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i480x3x4-o1184x3x4-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",  # 37 blocks, which no small number divides
]
# Rows of which the last tile is shifted inwards on AVX2; pixels copied together; taps along a row outside of the others.
MOVED_BACK = [
    "conv2d-n2-i24x7x7-o48x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
    "conv2d-n2-i10x15x21-o32x8x7-k1x1-s2x3-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i20x13x13-o32x7x7-k1x1-s2x2-d1x1-p0x0_0x0-g2-NXC-OIX-f16-bias",
    "conv3d-n1-i9x4x15x7-o16x2x8x7-k1x1x1-s3x2x1-d1x1x1-p0x0x0_0x0x0-g1-NXC-XIO-bf16",
    "conv2d-n1-i3x11x17-o16x11x17-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i32x9x14-o64x9x14-k3x3-s1x1-d1x1-p1x1_1x1-g2-NXC-XIO-bf16-bias",
    "conv2d-n1-i16x22x23-o32x30x31-k3x3-s1x1-d1x1-p5x5_5x5-g1-NXC-XIO-f32",
    "backprop2d-n1-i16x5x13-o32x10x26-k2x2-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
    "backprop2d-n1-i16x5x13-o32x11x28-k4x5-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f16",
    "backprop1d-n2-i16x25-o32x201-k16-s8-d1-p4_3-g1-NXC-XIO-f32-bias",
    "conv1d-n1-i1x40-o16x19-k3-s2-d1-p0_0-g1-NXC-XIO-f32",
]
# A window whose phases are interleaved, with fewer channels in a tile, beside one whose are not.
UNLIKE_WINDOWS = "backprop2d-n1-i1x1x3-o8x1x10-k1x4-s1x3-d1x1-p0x0_0x0-g1-NCX-XIO-f32"


# Together they are for every exact algorithm that any CPU has.
SMOKE = [
    "conv2d-n2-i24x9x9-o20x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
    "conv2d-n1-i36x11x11-o40x11x11-k3x3-s1x1-d6x4-p6x4_6x4-g1-NXC-XIO-bf16-bias",
    "conv2d-n2-i32x9x13-o32x9x13-k3x3-s1x1-d1x1-p1x1_1x1-g8-NXC-XIO-bf16-bias",
    "backprop2d-n1-i48x5x9-o12x10x36-k4x8-s2x4-d1x1-p1x2_1x2-g2-NXC-OIX-bf16-bias",
    "conv2d-n1-i128x3x5-o40x3x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
    "backprop2d-n1-i64x4x4-o32x8x8-k5x5-s2x2-d1x1-p2x2_1x1-g1-NCX-OIX-bf16-bias",
]


def test_smoke_has_every_exact_algorithm() -> None:
    cpu = Target.parse("sapphirerapids")
    tested = {each.name for one in SMOKE for each in algorithms.applicable(parse_signature(one), cpu, "strict")}
    exact = {each.name for each in algorithms.ALGORITHMS if (each.kind, each.numerical_class) == ("cpu", "exact")}
    exact -= {each.name for each in algorithms.ALGORITHMS if each.ordered}  # test_reproducible.py
    elsewhere = {
        "constant",
        "mmla",
        "amx_exact",
        "quads",
        "winograd2_integers",
        "winograd4_integers",
        "tap_pairs",
    }  # integers: test_integers.py; BFMMLA is of 64-bit ARM: test_aarch64.py; f32 by tiles: test_amx.py
    assert tested == exact - elsewhere, "SMOKE needs a problem of each"


@pytest.mark.parametrize(
    "signature", [pytest.param(each, marks=[pytest.mark.smoke] * (each in SMOKE)) for each in SPACES]
)
def test_every_sketch_and_random_decisions_are_exact(signature: str, try_kernels: Callable[..., None]) -> None:
    """Of the default algorithm twice; test_winograd.py has the transforms."""
    problem = parse_signature(signature)
    draw = random.Random(signature)
    choices = []
    default, *others = algorithms.applicable(problem, HOST, "strict")
    for algorithm in (default, *others):
        for number, sketch in enumerate(algorithm.sketches(algorithm.define(problem, HOST), HOST)):
            sizes = [len(sample.attrs[0]) for sample in samples(sketch)]
            for decisions in {tuple(draw.randrange(size) for size in sizes) for _ in range(1 + (algorithm is default))}:
                choices.append((Choice(algorithm.name, number, decisions), draw.random() < 0.5))
    try_kernels([Case(problem, HOST, 0, tuple(choices))])


TILES_OF_ALL_ROWS = {
    "backprop2d-n2-i513x3x4-o336x5x8-k5x5-s2x2-d1x1-p2x2_2x1-g1-NXC-XIO-f32-bias": "x86-64-v4",
    "backprop2d-n1-i257x5x3-o672x9x6-k5x5-s2x2-d1x1-p2x2_2x1-g1-NCX-OIX-f16": "x86-64-v4",
    "conv2d-n1-i514x4x6-o672x4x6-k5x5-s1x1-d1x1-p2x2_2x2-g1-NXC-XIO-bf16": "znver4",
}


@pytest.mark.parametrize(
    ("signature", "target"), [pytest.param(*each, marks=isa(each[1])) for each in TILES_OF_ALL_ROWS.items()]
)
def test_tiles_of_all_rows_are_exact(signature: str, target: str, tmp_path: Path) -> None:
    problem, cpu = parse_signature(signature), Target.parse(target)
    choice = Choice("dot" if problem.dtype == "bf16" else "direct")
    assert any(window.whole_image for window in schedule(problem, cpu, choice)[0].windows)
    assert_exact(problem, cpu, tmp_path, choice)


@pytest.mark.parametrize("target", [pytest.param(name, marks=isa(name)) for name in ("x86-64-v3", "x86-64-v4")])
def test_other_targets_are_exact(target: str, try_kernels: Callable[..., None]) -> None:
    cpu = Target.parse(target)
    problems = map(parse_signature, [*SPACES[::2], *MOVED_BACK, UNLIKE_WINDOWS])
    try_kernels([Case(each, cpu, 0, ((default_choice(each, cpu, "strict"), False),)) for each in problems])


@pytest.mark.parametrize("target", [pytest.param("x86-64-v3", marks=isa("x86-64-v3"))])
def test_sketches_of_direct_windows_are_exact_on_avx2(target: str, try_kernels: Callable[..., None]) -> None:
    cpu, cases = Target.parse(target), []
    for problem in map(parse_signature, MOVED_BACK):
        choices = []
        for number, sketch in enumerate(algorithms.get("direct").sketches(define(problem, cpu), cpu)):
            for last in (False, True):
                decisions = tuple(last * (len(sample.attrs[0]) - 1) for sample in samples(sketch))
                choices.append((Choice("direct", number, decisions), False))
        cases.append(Case(problem, cpu, 0, tuple(choices)))
    try_kernels(cases)


@pytest.mark.parametrize(
    "signature",
    [
        "backprop1d-n1-i4x9-o4x20-k3-s2-d1-p0_0-g1-NXC-XIO-f32",
        "backprop1d-n1-i4x9-o4x28-k2-s3-d1-p1_0-g1-NXC-XIO-f32",
        "backprop1d-n1-i4x9-o4x48-k4-s6-d4-p3_10-g1-NXC-XIO-f32",
        "backprop1d-n1-i4x9-o4x44-k16-s4-d1-p4_0-g1-NXC-XIO-f32",
        "backprop2d-n1-i4x5x6-o4x9x17-k3x5-s2x3-d1x2-p1x1_1x6-g1-NXC-XIO-f32",
    ],
)
def test_backprop_multiplies_no_inserted_zero(signature: str) -> None:
    """Per axis, a window computes as many taps for an output as there are k with (y + pad - k*d) a multiple of s."""
    problem = parse_signature(signature)
    needed = 1
    for s, d, k, begin, y in zip(
        problem.strides, problem.dilations, problem.kernel, problem.pads_begin, problem.out_spatial, strict=True
    ):
        needed *= sum((out + begin - tap * d) % s == 0 for out in range(y) for tap in range(k))
    computed = 0
    for window in define(problem, HOST, across=False).windows:
        per_axis = 1
        for axis in window.axes:
            stored = [axis.store_index(phase, q) for phase in range(axis.phases) for q in range(axis.outputs)]
            per_axis *= axis.taps * sum(0 <= index < axis.store_extent for index in stored)
        computed += per_axis
    assert computed == needed


@pytest.mark.parametrize("signature", [each for each in SPACES if each.startswith("conv")])
def test_taps_visit_the_outputs_for_which_they_meet_data(signature: str) -> None:
    for axis in (axis for window in define(parse_signature(signature), HOST).windows for axis in window.axes):
        for tap in range(axis.taps):
            first, count = map(int, reach_of(axis, tap))
            reads = (axis.offset(0) + y * axis.stride + tap * axis.dilation for y in range(axis.outputs))
            assert [*range(first, first + count)] == [y for y, x in enumerate(reads) if 0 <= x < axis.inputs]


def test_windows_write_each_output_once() -> None:
    problem = parse_signature("backprop2d-n1-i4x5x6-o4x9x17-k3x5-s2x3-d1x2-p1x1_1x6-g1-NXC-XIO-f32")
    written: list[tuple[int, ...]] = []
    for window in define(problem, HOST, across=False).windows:
        per_axis = [
            [axis.store_index(phase, q) for phase in range(axis.phases) for q in range(axis.outputs)]
            for axis in window.axes
        ]
        written += [(h, w) for h in per_axis[0] for w in per_axis[1] if 0 <= h < 9 and 0 <= w < 17]
    assert len(written) == len(set(written)) == prod(problem.out_spatial)


SPECIAL = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 3.0e38, -3.0e38, 1e-40, 65504.0, 65519.0, 65520.0, 1e-8]


@pytest.mark.parametrize(
    ("dtype", "algorithm"),
    [
        ("bf16", "direct"),
        pytest.param("bf16", "dot", marks=pytest.mark.isa("avx512_bf16")),
        pytest.param("bf16", "amx", marks=pytest.mark.isa(*TILES.features)),
        ("f16", "direct"),
    ],
)
def test_one_rounding_to_nearest_even(dtype: str, algorithm: str, tmp_path: Path) -> None:
    """Sums of two products that lie between two numbers of the type round as the type's own conversion does."""
    kind = fills.numpy_dtype(dtype)
    rng = np.random.default_rng(0)
    data = np.stack([rng.standard_normal(4096), rng.standard_normal(4096)], axis=-1).astype(kind)
    with np.errstate(over="ignore"):
        data[: len(SPECIAL), 0], data[: len(SPECIAL), 1] = np.array(SPECIAL).astype(kind), 0
    weights = np.array([1.0, 1.0 / 256], kind)
    problem = Problem(
        "convolution", 1, 2, (4096,), 16, (4096,), (1,), (1,), (1,), (0,), (0,), dtype=dtype, bias=False
    )  # fmt: skip
    arrays = fills.Arrays(data[None], np.repeat(weights[None, :, None], 16, axis=2), None)
    if algorithm in ("dot", "amx"):  # the instruction takes denormals for zeros
        data[np.abs(data) < float(np.finfo(np.float32).tiny)] = 0
    output = compile_and_call(problem, HOST, tmp_path, arrays, Choice(algorithm))
    with np.errstate(over="ignore"):
        exact = data.astype(np.float32) @ weights.astype(np.float32)  # exact: few bits far from f32's limits
        expected = exact.astype(kind)
    np.testing.assert_array_equal(output[0, :, 3].astype(np.float32), expected.astype(np.float32))


def test_depthwise_sums_round_once_to_nearest_even(tmp_path: Path) -> None:
    """As `test_one_rounding_to_nearest_even`, the products being of two taps: x[y] + x[y + 1] / 256."""
    kind = fills.numpy_dtype("bf16")
    data = np.random.default_rng(0).standard_normal((1, 4097, 48)).astype(kind)
    with np.errstate(over="ignore"):
        data[0, : 2 * len(SPECIAL) : 2], data[0, 1 : 2 * len(SPECIAL) : 2] = np.array(SPECIAL).astype(kind)[:, None], 0
    # The instruction that rounds, on CPUs that have it, takes denormals for zeros.
    data[np.abs(data) < float(np.finfo(np.float32).tiny) * 256] = 0
    weights = np.array([1.0, 1.0 / 256], kind)
    problem = parse_signature("conv1d-n1-i48x4097-o48x4096-k2-s1-d1-p0_0-g48-NXC-XIO-bf16")
    arrays = fills.Arrays(data, np.repeat(weights, 48).reshape(problem.filter_shape), None)
    output = compile_and_call(problem, HOST, tmp_path, arrays, Choice("grouped"))
    with np.errstate(over="ignore", invalid="ignore"):
        widened = data.astype(np.float32)
        expected = (widened[:, :-1] + widened[:, 1:] * np.float32(1 / 256)).astype(kind)
    np.testing.assert_array_equal(output.astype(np.float32), expected.astype(np.float32))


def test_a_choice_that_does_not_fit_is_refused() -> None:
    problem = parse_signature(SPACES[0])
    with pytest.raises(LookupError, match="there is no sketch 99"):
        schedule(problem, HOST, Choice("direct", 99))
    with pytest.raises(LookupError, match="do not fit"):
        schedule(problem, HOST, Choice("direct", 0, (10**6,)))
    with pytest.raises(TvmconvError, match=f"allowed: {', '.join(each.name for each in algorithms.ALGORITHMS)}$"):
        schedule(problem, HOST, Choice("magic"))


def test_every_problem_has_an_algorithm_and_the_others_say_why_not() -> None:
    for signature in SPACES:
        problem = parse_signature(signature)
        assert algorithms.get(default_choice(problem, HOST, "strict").algorithm).numerical_class == "exact"
        reasons = [each.covers(problem, HOST) for each in algorithms.ALGORITHMS if each.kind == HOST.kind]
        assert None in reasons and all(reason is None or reason for reason in reasons)


def test_an_intermediate_array_beyond_32_bits_is_refused(tmp_path: Path) -> None:
    # Three outputs a group: each lane gets its own copy of 256 channels.
    problem = parse_signature("conv1d-n1-i512x2000000-o6x2000000-k3-s1-d1-p1_1-g2-NXC-XIO-f32")
    with pytest.raises(InvalidProblemError, match="the copy of data would have"):
        compile_problem(problem, HOST, tmp_path / "kernel.so", choice=Choice("grouped"))


@pytest.mark.parametrize(
    "signature",
    [
        "conv2d-n0-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
        "conv2d-n1-i16x9x9-o0x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16",
        "conv2d-n1-i0x9x9-o8x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
        "conv1d-n2-i3x7-o5x8-k0-s1-d1-p0_0-g1-NXC-XIO-f32-bias",
        "conv2d-n1-i3x5x4-o5x18x17-k2x3-s1x1-d1x1-p9x7_5x8-g1-NCX-OIX-f32-bias",
        "conv2d-n1-i16x1x9-o16x3x9-k1x5-s3x1-d1x1-p4x2_2x2-g1-NXC-XIO-f32",
        "backprop1d-n1-i4x3-o4x3-k3-s2-d1-p7_0-g1-NXC-XIO-f32-bias",
        "conv2d-n2-i24x9x12-o72x4x4-k3x2-s2x3-d2x3-p1x0_1x1-g24-NXC-OIX-f16-bias",
    ],
)
def test_the_plain_algorithm_covers_the_corners_of_the_contract(signature: str, tmp_path: Path) -> None:
    problem = parse_signature(signature)
    if not (problem.is_constant or problem.is_empty):
        assert_exact(problem, HOST, tmp_path, Choice("plain"))
        return
    folder = tmp_path / HOST.name
    folder.mkdir()
    made = entry(signature, HOST.name, algorithm="plain")
    compile_problem(problem, HOST, tmp_path / made.file, choice=Choice("plain"))
    digest = hashlib.sha256((tmp_path / made.file).read_bytes()).hexdigest()
    write_bundle(tmp_path, [replace(made, sha256=digest)], **{HOST.name: HOST.features})
    arrays, expected = fills.exact_case(problem)
    output = load(tmp_path)[signature](*arrays)
    np.testing.assert_array_equal(output, expected)
