"""Windows whose taps overlap, as pixels with the channels of all taps: padded, dilated, in both filter formats, all types."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import assert_exact, isa

from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.algorithms.cpu.windows.im2col import Im2colWindow
from tvmconv.lowering.compiler import Choice
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

SIGNATURES = [
    "conv2d-n1-i16x14x14-o64x7x7-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32",
    "conv2d-n2-i8x13x15-o136x7x7-k3x5-s2x2-d1x1-p1x1_1x1-g1-NXC-OIX-f32-bias-relu",
    "conv2d-n1-i24x29x27-o128x7x7-k3x3-s4x3-d2x3-p0x0_0x0-g1-NXC-OIX-f16",
    "conv3d-n1-i8x7x11x15-o128x3x5x7-k3x3x3-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NXC-XIO-bf16",
]


@isa("x86-64-v3")
@pytest.mark.parametrize("signature", SIGNATURES)
def test_overlapping_taps_are_exact(signature: str, tmp_path: Path) -> None:
    problem, target = parse_signature(signature), Target.parse("x86-64-v3")
    (window,) = direct_windows(problem, target)
    assert isinstance(window, Im2colWindow)
    assert_exact(problem, target, tmp_path, Choice("direct"))
