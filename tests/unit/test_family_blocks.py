"""Blocks of families: their problems."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvmconv.frontends.families import any_size
from tvmconv.lowering.cpu.blocks import block_problem
from tvmconv.signature import parse_signature


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
