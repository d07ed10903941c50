"""Pairs of bf16 of the channels of all taps of a row: exact, and of no other pixel's data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernels import assert_exact, compile_and_call, isa

from tvmconv import fills
from tvmconv.algorithms import table
from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.algorithms.cpu.windows.paired_taps import PairedTapsWindow
from tvmconv.lowering.compiler import Choice
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

PAIRS = Target.parse("znver4")
assert isinstance(PAIRS, CpuTarget)
SIGNATURES = [
    "conv1d-n1-i1x160-o512x31-k10-s5-d1-p0_0-g1-NXC-XIO-bf16",
    "conv1d-n2-i3x90-o40x43-k7-s2-d1-p1_1-g1-NXC-OIX-bf16-bias-hardswish",
    "conv2d-n1-i3x30x29-o20x15x14-k7x7-s2x2-d1x1-p3x3_2x2-g1-NXC-XIO-bf16",
    "conv2d-n2-i3x16x20-o96x4x5-k4x4-s4x4-d1x1-p0x0_0x0-g1-NXC-OIX-bf16-bias-relu",
    "conv2d-n1-i1x12x13-o40x12x13-k3x3-s1x1-d2x1-p2x1_2x1-g1-NXC-XIO-bf16",
    "conv3d-n1-i3x5x6x7-o17x5x6x9-k3x1x2-s1x1x1-d1x1x1-p1x0x2_1x0x1-g1-NXC-XIO-bf16",
]
OTHERS = [
    "conv2d-n1-i2x12x13-o40x12x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16",  # pairs of channels are full
    "conv2d-n1-i3x12x13-o40x12x13-k3x3-s1x1-d1x2-p1x2_1x2-g1-NXC-XIO-bf16",  # taps are apart
    "conv2d-n1-i3x12x13-o2x12x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16",  # few products
    "conv2d-n1-i3x12x13-o40x12x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16",
    "conv2d-n1-i9x12x13-o48x12x13-k3x3-s1x1-d1x1-p1x1_1x1-g3-NXC-XIO-bf16",
]


@isa("znver4")
@pytest.mark.parametrize("signature", SIGNATURES)
def test_paired_taps_are_exact(signature: str, tmp_path: Path) -> None:
    assert_exact(parse_signature(signature), PAIRS, tmp_path, Choice("dot"))


@pytest.mark.parametrize("signature", SIGNATURES)
def test_pairs_are_across_taps(signature: str) -> None:
    (window,) = direct_windows(parse_signature(signature), PAIRS, vnni_factor=2)
    assert isinstance(window, PairedTapsWindow)


@pytest.mark.parametrize("signature", OTHERS)
def test_other_pairs_are_of_channels(signature: str) -> None:
    (window,) = direct_windows(parse_signature(signature), PAIRS, vnni_factor=2)
    assert not isinstance(window, PairedTapsWindow)


def test_one_channel_has_pairs_only_across_taps() -> None:
    dot, signature = table.get("dot"), "conv1d-n1-i1x160-o{}-k{}-s1-d1-p0_0-g1-NXC-XIO-bf16"
    assert (
        dot.covers(parse_signature(signature.format("16x151", 10)), PAIRS)
        == "it multiplies pairs of channels, and there is one"
    )
    assert (
        dot.covers(parse_signature(signature.format("32x160", 1)), PAIRS)
        == "it multiplies pairs of channels, and there is one"
    )
    assert dot.covers(parse_signature(signature.format("32x151", 10)), PAIRS) is None


@isa("znver4")
def test_what_is_no_number_stays_where_it_is(tmp_path: Path) -> None:
    problem = parse_signature(
        "conv1d-n1-i3x64-o32x31-k3-s2-d1-p0_0-g1-NXC-XIO-bf16"
    )  # 9 channels: a pair is half empty
    arrays = fills.random_fill(problem)
    arrays.data[0, 11, 0] = np.nan
    output = compile_and_call(problem, PAIRS, tmp_path, arrays, Choice("dot")).astype(np.float32)
    assert np.isnan(output[0]).any(axis=-1).nonzero()[0].tolist() == [5]
