"""Tiles of output channels of planes, of which the last is shifted to end with them: every choice is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tvmconv.algorithms.cpu.planar import planar_windows
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

LAYER = "conv2d-n1-i64x32x32-o{}x32x32-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32"
TILED = [
    "conv2d-n2-i16x13x20-o19x13x20-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias-relu",
    "conv2d-n1-i3x33x40-o37x17x20-k3x3-s2x2-d1x1-p1x1_1x1-g1-NCX-XIO-f32-scale",
    "conv2d-n1-i32x32x32-o38x32x32-k1x1-s1x1-d1x1-p0x0_0x0-g2-NCX-OIX-bf16-bias",
    "conv1d-n1-i24x500-o23x500-k3-s1-d2-p2_2-g1-NCX-OIX-f32-bias",
    "conv3d-n1-i8x3x9x16-o17x3x9x16-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NCX-OIX-f32",
    "backprop2d-n1-i8x9x16-o34x18x32-k2x2-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias",
    "backprop2d-n1-i8x9x20-o29x18x20-k4x3-s2x1-d1x1-p1x1_1x1-g1-NCX-XIO-f32",
]


def channel_tile(signature: str, target: str = "x86-64-v4") -> int:
    """Return the channels of a tile that is shifted, 0: tiles divide the channels."""
    cpu = Target.parse(target)
    assert isinstance(cpu, CpuTarget)
    windows = planar_windows(parse_signature(signature), cpu, prepacked=True)
    (tile,) = {window.channel_tile for window in windows}
    for window in windows:
        assert window.computed_outputs - window.outputs < max(tile, 1)
        assert not tile or {plan.channels for plan in window.plans} == {tile}
    return tile


def test_channels_that_divide_into_no_good_tiles_are_shifted() -> None:
    assert all(map(channel_tile, TILED))
    assert all(channel_tile(LAYER.format(outputs)) for outputs in (17, 19, 37))
    # 16 and 14 divide; 13 are a tile.
    assert not any(channel_tile(LAYER.format(outputs)) for outputs in (64, 70, 13))


# Packed in each call: L2 does not keep the filter, whose elements of a sum lie in too few sets of L1.
PACKED = [
    "backprop2d-n1-i1024x3x16-o160x6x32-k2x2-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias",
    "conv1d-n2-i640x24-o512x24-k1-s1-d1-p0_0-g1-NCX-XIO-f32",
]


@pytest.mark.parametrize("signature", TILED + PACKED)
def test_shifted_channels_and_packed_filters_are_exact(signature: str, try_sketches: Callable[..., None]) -> None:
    try_sketches(signature, "planar")
