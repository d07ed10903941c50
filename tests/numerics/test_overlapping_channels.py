"""Copies of channels that no vectors divide, of which the last overlaps: of groups, pairs, phases and Winograd's tiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kernels import isa

KERNELS = {
    "conv2d-n2-i18x7x9-o20x4x5-k3x3-s2x2-d1x1-p1x1_1x1-g2-NXC-XIO-f32-bias": "direct",
    "conv1d-n1-i42x30-o33x15-k5-s2-d1-p2_2-g3-NXC-OIX-f32": "direct",
    "conv2d-n1-i36x7x9-o36x4x5-k3x3-s2x2-d1x1-p1x1_1x1-g2-NXC-XIO-bf16-bias-relu": "dot",
    "backprop2d-n1-i21x5x6-o24x10x12-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias": "phased",
    "conv2d-n1-i36x9x9-o36x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g2-NXC-XIO-f32": "winograd4",
}


@pytest.mark.parametrize("signature", [pytest.param(each, marks=isa("znver4")) for each in KERNELS])
def test_copies_are_exact(signature: str, try_sketches: Callable[..., None]) -> None:
    try_sketches(signature, KERNELS[signature], "znver4")
