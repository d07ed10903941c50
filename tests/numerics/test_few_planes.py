"""A few channels in planes are read where they lie, unless they are padded: every choice is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

PATCHES = "conv2d-n1-i{0}x32x32-o32x8x8-k4x4-s4x4-d1x1-p{1}-g1-NCX-OIX-{2}"
IN_PLACE = {
    "conv2d-n2-i3x48x56-o40x6x7-k8x8-s8x8-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias": "direct",
    "conv2d-n1-i4x19x23-o24x9x11-k3x3-s2x2-d1x1-p0x0_0x0-g2-NCX-XIO-f32-scale": "direct",
    "conv1d-n2-i2x130-o16x64-k4-s2-d1-p0_0-g1-NCX-OIX-f32-bias-relu": "direct",
    "conv3d-n1-i3x4x16x16-o16x2x8x8-k2x2x2-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NCX-OIX-f32": "direct",
    "backprop2d-n1-i4x9x8-o16x18x16-k2x2-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias": "phased",
    "conv2d-n1-i4x18x18-o32x16x16-k3x3-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias": "winograd4",  # copied
}


def is_copied(signature: str) -> bool:
    """Whether direct copies the data of a problem."""
    target = Target.parse("x86-64-v4")
    assert isinstance(target, CpuTarget)
    (window,) = direct_windows(parse_signature(signature), target)
    return window.stages_data


def test_a_few_planes_are_read_in_place() -> None:
    assert not is_copied(PATCHES.format(3, "0x0_0x0", "f32")) and not is_copied(PATCHES.format(4, "0x0_0x0", "f32"))
    # More channels; padding; to be widened.
    assert is_copied(PATCHES.format(5, "0x0_0x0", "f32")) and is_copied(PATCHES.format(3, "2x2_1x1", "f32"))
    assert is_copied(PATCHES.format(3, "0x0_0x0", "bf16"))


@pytest.mark.parametrize("signature", IN_PLACE)
def test_planes_in_place_are_exact(signature: str, try_sketches: Callable[..., None]) -> None:
    try_sketches(signature, IN_PLACE[signature])
