"""Blocks of families: their problems."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvmconv.algorithms.table import get
from tvmconv.family_text import parse_family
from tvmconv.frontends.families import any_size
from tvmconv.lowering.cpu.blocks import block_problem, cost_of
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target


@pytest.mark.parametrize(("taps", "stride", "pad"), [(2, 2, 0), (4, 2, 0), (4, 2, 1), (3, 2, 1), (5, 3, 1), (1, 2, 0)])
def test_transposed_blocks_have_the_phase_of_the_pads(taps: int, stride: int, pad: int) -> None:
    out = 3 * stride + taps - 2 * pad
    layer = parse_signature(f"backprop1d-n1-i8x4-o8x{out}-k{taps}-s{stride}-d1-p{pad}_{pad}-g1-NXC-XIO-f32")
    family = replace(any_size(layer), pads=((pad,), (pad,)))
    block = block_problem(family, (4 * stride,))
    (begin,), (inputs,) = block.pads_begin, block.in_spatial
    assert (begin - pad) % stride == 0 or taps < stride
    # An input before the first would be a whole stride before what the first tap of the last reads.
    assert begin - (taps - 1) > -stride
    assert (inputs - 1) * stride <= begin + 4 * stride - 1 < inputs * stride


@pytest.mark.parametrize(("channels", "in_l2"), [(64, True), (1024, False)])
def test_blocks_of_few_pixels_for_amx_find_the_filter_in_l2_where_it_fits(channels: int, in_l2: bool) -> None:
    family = parse_family(f"conv2d-n?-i{channels}x?x?-o{channels}x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16")
    target, amx = Target.parse("sapphirerapids"), get("amx")
    assert isinstance(target, CpuTarget)
    alone = amx.cycles(block_problem(family, (1, 1)), target)
    assert (cost_of(family, (1, 1), target, amx, False).cycles < alone / 3) == in_l2
